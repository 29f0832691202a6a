"""Batch dropped files into ingest jobs, and the files of a Spark job into tasks."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from dormouse.model.sources import Source
from dormouse.tables.properties import Properties

MAX_MESSAGE_BYTES = 900_000
"""A job names its files in one message, and SQS accepts messages of up to a mebibyte."""
BATCH_TICK_SECONDS = 60
"""The messages of waiting files are all delayed until the next whole minute, so that those of a
table arrive together and can join."""


def batches(sources: Sequence[Source], properties: Properties) -> list[tuple[Source, ...]]:
    """Return sources cut, in order, into jobs as large as the properties allow.

    A file that is larger is a job of its own. A job's files are unpacked to a function's scratch
    folder of 10 GiB before they are sorted.
    """
    return _cut(sources, properties.ingest_job_max_files, properties.ingest_job_max_bytes)


def largest_batches(sources: Sequence[Source]) -> list[tuple[Source, ...]]:
    """Return sources cut, in order, into jobs for Spark, which only a message's size limits."""
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


def due_batches(
    sources: Sequence[Source], properties: Properties
) -> tuple[list[tuple[Source, ...]], tuple[Source, ...]]:
    """Return the jobs to send now, and the sources that wait because they are too few or too small.

    With at least 3 files and 100 bytes a job, and at most 5 files: of 7 files of 1 byte, the first
    5 are a full job and go at once, whatever their size; the last 2 wait. 3 files of 50 bytes go;
    so do not 2 of 50 bytes, which are too few, or 3 of 1 byte, which are too small.
    """
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
    """Return how long files first seen at `since_ms` wait from now on; 0 if they are due.

    They wait until the next tick, or until they reach the maximal age if that is earlier.
    """
    left = max_age_seconds - (now_ms - since_ms) // 1000
    return max(0, min(left, BATCH_TICK_SECONDS - now_ms // 1000 % BATCH_TICK_SECONDS))


def _message_bytes(source: Source) -> int:
    return 300 + 2 * len(source.key.encode())


def balanced_batches(
    sources: Sequence[Source], min_batches: int, max_bytes: int
) -> list[tuple[Source, ...]]:
    """Return sources in batches of about equal size: at least `min_batches`, if there are so many
    sources, and of about `max_bytes` at most, unless a single file is larger.

    Greedy: the largest file first, each into the batch that is smallest so far. Files of 7, 5, 4,
    3 and 1 bytes in two batches: 7 | 5, then 4 joins the 5, 3 the 7, and 1 the 9 → 10 | 10.
    """
    size_bytes = sum(source.size_bytes for source in sources)
    wanted = max(1, min_batches, -(-size_bytes // max_bytes))
    batches: list[list[Source]] = [[] for _ in range(min(wanted, len(sources)))]
    smallest = [(0, number) for number in range(len(batches))]
    for source in sorted(sources, key=lambda s: (-s.size_bytes, s.id)):
        filled_bytes, number = heappop(smallest)
        batches[number].append(source)
        heappush(smallest, (filled_bytes + source.size_bytes, number))
    return [tuple(batch) for batch in batches]
