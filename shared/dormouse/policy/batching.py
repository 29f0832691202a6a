"""How dropped files are put together into ingest jobs."""

from __future__ import annotations

from collections.abc import Sequence

from dormouse.model.sources import Source

MAX_FILES = 100
MAX_BYTES = 1024**3
"""A job's files are unpacked to a function's scratch folder of 10 GiB before they are sorted."""


def batches(sources: Sequence[Source]) -> list[tuple[Source, ...]]:
    """Cut sources into jobs of at most 100 files and 1 GiB, in order; a larger file goes alone."""
    jobs: list[list[Source]] = []
    room = 0
    for source in sources:
        if not jobs or len(jobs[-1]) == MAX_FILES or source.size_bytes > room:
            jobs.append([])
            room = MAX_BYTES
        jobs[-1].append(source)
        room -= source.size_bytes
    return [tuple(job) for job in jobs]
