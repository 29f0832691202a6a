"""Measure what ten million remembered sources take: bytes, look-ups, commits and memory.

Sealed as the stages do it, in a folder: ``make bench-sources``, or ``ARGS=100000`` for fewer.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.common.figures import emit
from bench.state.memory import TABLE, built, cpu_seconds, resident_bytes
from dormouse.features.ingest.sealing import (
    MAX_SEGMENT_SOURCES,
    MIN_SEALED_SOURCES,
    segments_to_merge,
)
from dormouse.fold.fold import apply
from dormouse.model.overlay_map import OverlayMap
from dormouse.model.source_segments import SourceSegment
from dormouse.model.state import TableState
from dormouse.model.transactions import AddShards, Entry
from dormouse.readers.read_counters import CountedObjects, ReadCounters
from dormouse.statestore.delta.codec import encode_delta
from dormouse.statestore.snapshot.codec import encode_snapshot
from dormouse.statestore.source_codec import Cover, digests_of, encode_sources
from dormouse.statestore.source_lookup import ingested_of
from dormouse.storage import FolderStorage
from dormouse.stored.paths import sources_path

SOURCES = 10_000_000
ROUNDS = 50


def name(number: int) -> str:
    """Return the id of a source."""
    return blake2b(f"source {number}".encode(), digest_size=16).hexdigest()


def place(start: int, offset: int, total: int) -> int:
    """Return the number of a source: one that is remembered, or, from a negative start, none."""
    return start - offset if start < 0 else (start + offset) % total


def sizes(count: int) -> list[int]:
    """Return how many sources each segment has after so many were sealed a batch at a time."""
    counts: list[int] = []
    for _ in range(count // MIN_SEALED_SOURCES):
        taken = segments_to_merge(counts, MIN_SEALED_SOURCES)
        kept = counts[: len(counts) - taken]
        counts = [*kept, MIN_SEALED_SOURCES + sum(counts[len(kept) :])]
    return counts


def sealed(storage: FolderStorage, count: int) -> list[SourceSegment]:
    """Put the segments of so many sources, and print what they take."""
    segments: list[SourceSegment] = []
    first = seconds = 0.0
    for number, size in enumerate(sizes(count)):
        start = sum(segment.count for segment in segments)
        digests = digests_of(map(name, range(start, start + size)))
        cover = Cover(TABLE, "", 0, number, number + 1)
        (segment, body), spent = cpu_seconds(lambda: encode_sources(f"g{number}", cover, [digests]))  # noqa: B023  # called at once
        storage.put(sources_path(TABLE, segment.id), body)
        segments.append(segment)
        first, seconds = max(first, spent if size >= MAX_SEGMENT_SOURCES else 0), seconds + spent
    total = sum(segment.count for segment in segments)
    stored = sum(segment.size_bytes for segment in segments)
    emit(
        "remembered",
        "segments",
        total,
        bytes_per_source=stored / total,
        segments=len(segments),
        largest_seal_cpu_seconds=first,
    )
    return segments


def look_ups(storage: FolderStorage, state: TableState, total: int) -> None:
    """Print what it takes to look up one source and a thousand, absent and present."""
    for what, start in (("absent", -2_000_000), ("present", total // 2)):
        for asked in (1, 1000):
            reads, rounds = ReadCounters(), ROUNDS if asked == 1 else 3
            objects = CountedObjects(storage, reads)

            def look(rounds: int = rounds, asked: int = asked, start: int = start) -> int:
                found = 0
                for turn in range(rounds):
                    ids = [name(place(start, 7919 * turn + 101 * i, total)) for i in range(asked)]
                    found += len(ingested_of(objects, TABLE, state, ids))  # noqa: B023
                return found

            before = resident_bytes()
            found, seconds = cpu_seconds(look)
            assert found == (rounds * asked if what == "present" else 0), found
            emit(
                "look_up",
                what,
                asked,
                requests=reads.requests / rounds,
                kilobytes=reads.size_bytes / rounds / 1000,
                cpu_milliseconds=seconds / rounds * 1000,
                memory_kilobytes=max(0, resident_bytes() - before) / 1000,
            )


def commits(state: TableState, total: int) -> None:
    """Print what an ingest of one file adds to the log and takes to fold, and a snapshot's size."""
    entries = [
        Entry(AddShards(f"job{n}", (name(-n),), (), state.sealed_to), n, 0)
        for n in range(1, ROUNDS + 1)
    ]
    size = sum(len(encode_delta([entry], "t/0")) for entry in entries) / ROUNDS

    def fold() -> None:
        for entry in entries:
            _, verdict = apply(state, entry)
            assert not verdict.violations, verdict

    _, seconds = cpu_seconds(fold)
    emit(
        "commit",
        "one file",
        total,
        delta_bytes=size,
        fold_cpu_microseconds=seconds / ROUNDS * 1e6,
        snapshot_kilobytes=len(encode_snapshot(TABLE, state)) / 1000,
    )


def main() -> None:
    """Measure at no sealed sources, and at many."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else SOURCES
    base = replace(built(1000), sources=OverlayMap())
    commits(base, 0)
    with TemporaryDirectory() as folder:
        storage = FolderStorage(Path(folder))
        segments = sealed(storage, count)
        end = segments[-1].up_to
        state = replace(base, source_segments=tuple(segments), sealed_to=end, version=end)
        total = sum(segment.count for segment in segments)
        commits(state, total)
        look_ups(storage, state, total)


if __name__ == "__main__":
    main()
