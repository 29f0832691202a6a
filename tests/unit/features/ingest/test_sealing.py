"""How segments of sources are merged, and which of those found after a loss count."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.features.seal_sources import (
    MAX_SEGMENT_SOURCES,
    MIN_SEALED_SOURCES,
    SEGMENT_FANOUT,
    complete_chain,
    segments_to_merge,
)
from dormouse.state.state import SourceSegment


def sealed(batches: list[int]) -> tuple[list[int], int]:
    """Seal batches one after the other; return the counts of the segments, and all written."""
    counts: list[int] = []
    written = 0
    for fresh in batches:
        taken = segments_to_merge(counts, fresh)
        kept = counts[: len(counts) - taken]
        counts = [*kept, fresh + sum(counts[len(kept) :])]
        written += counts[-1]
    return counts, written


def test_of_ten_million_sources_there_are_few_segments_each_written_a_few_times() -> None:
    counts, written = sealed([MIN_SEALED_SOURCES] * (10_000_000 // MIN_SEALED_SOURCES))
    assert len(counts) <= 2 + 3 * (SEGMENT_FANOUT - 1)
    assert written / sum(counts) <= 4


@given(st.lists(st.integers(1, 50 * MIN_SEALED_SOURCES), max_size=300))
def test_no_source_is_lost_and_segments_stay_few_whatever_the_batches(batches: list[int]) -> None:
    counts, _ = sealed(batches)
    assert sum(counts) == sum(batches)
    assert max(counts, default=0) <= 2 * MAX_SEGMENT_SOURCES
    assert len([count for count in counts if count < MAX_SEGMENT_SOURCES]) <= 4 * (
        SEGMENT_FANOUT - 1
    )


def segment(name: str, after: int, up_to: int) -> SourceSegment:
    return SourceSegment(name, after, up_to, 1, 20, 16, 1)


def test_of_merged_and_uncommitted_segments_those_count_that_lead_furthest() -> None:
    found = [
        segment("a", 0, 10),
        segment("b", 10, 20),
        segment("merged", 0, 20),
        segment("dead", 0, 15),
        segment("c", 20, 30),
    ]
    chain, reasons = complete_chain(found)
    assert ([one.id for one in chain], reasons) == (["merged", "c"], [])


def test_a_gap_is_reported() -> None:
    _, reasons = complete_chain([segment("a", 0, 10), segment("c", 20, 30)])
    assert reasons == [
        "sources ingested after version 10 are lost: no segment leads up to segment c"
    ]
