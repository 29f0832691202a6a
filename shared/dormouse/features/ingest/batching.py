"""How dropped files are put together into ingest jobs, which wait for more, and into tasks."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from dormouse.model.sources import Source
from dormouse.tables.properties import Properties

MAX_MESSAGE_BYTES = 900_000
"""A job names its files in one message, and a queue takes a mebibyte."""
MEETING_SECONDS = 60
"""Files that wait are looked at on whole minutes, all of a table at once, so that they can join."""


def batches(sources: Sequence[Source], properties: Properties) -> list[tuple[Source, ...]]:
    """Cut sources into jobs as large as the properties allow, in order; a larger file goes alone.

    A job's files are unpacked to a function's scratch folder of 10 GiB before they are sorted.
    """
    return _cut(sources, properties.ingest_job_max_files, properties.ingest_job_max_bytes)


def largest_batches(sources: Sequence[Source]) -> list[tuple[Source, ...]]:
    """Cut sources into jobs as large as a message can name, in order; they are for Spark."""
    return _cut(sources, len(sources), sum(source.size_bytes for source in sources))


def _cut(sources: Sequence[Source], max_files: int, max_bytes: int) -> list[tuple[Source, ...]]:
    jobs: list[list[Source]] = []
    room = message_room = 0
    for source in sources:
        if (
            not jobs
            or len(jobs[-1]) == max_files
            or source.size_bytes > room
            or _message_bytes(source) > message_room
        ):
            jobs.append([])
            room, message_room = max_bytes, MAX_MESSAGE_BYTES
        jobs[-1].append(source)
        room -= source.size_bytes
        message_room -= _message_bytes(source)
    return [tuple(job) for job in jobs]


def gathered(
    sources: Sequence[Source], properties: Properties
) -> tuple[list[tuple[Source, ...]], tuple[Source, ...]]:
    """Return the jobs to begin, and the sources left over: too few, or too small, for a job."""
    jobs = batches(sources, properties)
    if not jobs:
        return [], ()
    *before, last = jobs
    is_full = len(last) >= properties.ingest_job_max_files
    size_bytes = sum(source.size_bytes for source in last)
    is_large = size_bytes >= min(properties.ingest_batch_min_bytes, properties.ingest_job_max_bytes)
    if is_full or (is_large and len(last) >= properties.ingest_batch_min_files):
        return jobs, ()
    return before, last


def seconds_to_wait(since_ms: int, now_ms: int, max_age_seconds: int) -> int:
    """Return how long until files seen first at `since_ms` are looked at again; 0 if they go
    now."""
    left = max_age_seconds - (now_ms - since_ms) // 1000
    return max(0, min(left, MEETING_SECONDS - now_ms // 1000 % MEETING_SECONDS))


def _message_bytes(source: Source) -> int:
    return 300 + 2 * len(source.key.encode())


def even_bundles(
    sources: Sequence[Source], least: int, most_bytes: int
) -> list[tuple[Source, ...]]:
    """Put sources into bundles of about equal size, at least `least` if there are so many sources.

    A bundle takes about `most_bytes` at most, unless it is one larger file.
    """
    size_bytes = sum(source.size_bytes for source in sources)
    wanted = max(1, least, -(-size_bytes // most_bytes))
    bundles: list[list[Source]] = [[] for _ in range(min(wanted, len(sources)))]
    emptiest = [(0, number) for number in range(len(bundles))]
    for source in sorted(sources, key=lambda s: (-s.size_bytes, s.id)):
        filled_bytes, number = heappop(emptiest)
        bundles[number].append(source)
        heappush(emptiest, (filled_bytes + source.size_bytes, number))
    return [tuple(bundle) for bundle in bundles]
