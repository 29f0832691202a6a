"""Sealed sources: the fold drops exactly what a segment holds, and refuses outdated look-ups."""

from __future__ import annotations

import pytest
from msgspec import structs

from dormouse.log.log import fold_delta
from dormouse.state.fold import Verdict
from dormouse.state.partitions import PartitionTree
from dormouse.state.rules import Rule
from dormouse.state.state import (
    AddShards,
    AdoptSegments,
    Entry,
    ResetTable,
    SealSources,
    SourceSegment,
    TableState,
    Transaction,
)
from tests.support.sealing import sealing_of
from tests.support.trees import initialise

ONE_LEAF = tuple(PartitionTree.from_split_points([]).by_id.values())


def after(state: TableState, *transactions: Transaction) -> TableState:
    """Apply transactions which must all be accepted, each in a delta of its own."""
    for transaction in transactions:
        state, (verdict,) = fold_delta(state, [Entry(transaction, 0, state.generation)])
        assert verdict == Verdict(), verdict
    return state


def broken_by(state: TableState, transaction: Transaction) -> set[Rule]:
    _, (verdict,) = fold_delta(state, [Entry(transaction, 0, state.generation)])
    return {violation.rule for violation in verdict.violations}


def ingest(name: str, looked_up_to: int = 0) -> AddShards:
    return AddShards(f"job-{name}-{looked_up_to}", (name,), (), looked_up_to)


BEGUN = after(TableState(), initialise(ONE_LEAF), ingest("a"), ingest("b"), ingest("c"))


def test_a_sealing_drops_just_the_sources_up_to_its_version() -> None:
    sealed = after(BEGUN, sealing_of(BEGUN, up_to=3))
    assert set(sealed.sources) == {"c"}
    assert sealed.sealed_to == 3
    assert [segment.count for segment in sealed.source_segments] == [2]


def test_a_source_looked_up_before_a_sealing_is_looked_up_again() -> None:
    sealed = after(BEGUN, sealing_of(BEGUN, up_to=3))
    assert broken_by(sealed, ingest("a", looked_up_to=1)) == {Rule.SOURCES_SEALED}
    assert broken_by(sealed, ingest("d", looked_up_to=2)) == {Rule.SOURCES_SEALED}
    assert broken_by(sealed, ingest("d", looked_up_to=4)) == {Rule.SOURCES_SEALED}, "in no state"
    assert not broken_by(sealed, ingest("d", looked_up_to=3))
    assert broken_by(sealed, ingest("c", looked_up_to=3)) == {Rule.SOURCE_INGESTED}


def test_shards_without_sources_need_no_look_up() -> None:
    sealed = after(BEGUN, sealing_of(BEGUN))
    assert not broken_by(sealed, AddShards("repair", (), ()))


def test_a_sealing_in_the_delta_of_an_ingest_does_not_take_its_source_along() -> None:
    entries = [Entry(ingest("d"), 0, 0), Entry(sealing_of(BEGUN), 0, 0)]
    state, verdicts = fold_delta(BEGUN, entries)
    assert [bool(verdict.violations) for verdict in verdicts] == [False, False]
    assert set(state.sources) == {"d"}


def test_a_segment_takes_in_the_last_ones_and_their_counts() -> None:
    one = after(BEGUN, sealing_of(BEGUN, "g1", up_to=2))
    two = after(one, sealing_of(one, "g2", up_to=3))
    all_of_it = after(two, sealing_of(two, "g3", replaced=1))
    found = [(s.id, s.after, s.up_to, s.count) for s in all_of_it.source_segments]
    assert found == [("g1", 0, 2, 1), ("g3", 2, 5 + 1, 2)]


def test_a_sealing_that_would_lose_or_invent_a_source_is_rejected() -> None:
    good = sealing_of(BEGUN)
    for count in (0, 2, 4):
        bad = structs.replace(good, segment=structs.replace(good.segment, count=count))
        assert broken_by(BEGUN, bad) == {Rule.SEGMENT_MISCOUNTED}


def test_of_two_sealings_of_one_state_the_second_is_rejected() -> None:
    first = after(BEGUN, sealing_of(BEGUN, "g1"))
    assert Rule.SEALED_BEFORE in broken_by(first, sealing_of(BEGUN, "g2"))
    one = after(BEGUN, sealing_of(BEGUN, "g1", up_to=2))
    merges = [sealing_of(one, name, replaced=1) for name in ("g2", "g3")]
    assert broken_by(after(one, merges[0]), merges[1])


@pytest.mark.parametrize("up_to", [-1, 0, 5, 2**63 - 1])
def test_versions_that_are_sealed_or_yet_to_come_cannot_be_sealed(up_to: int) -> None:
    assert broken_by(BEGUN, sealing_of(BEGUN, up_to=up_to))


def test_only_the_last_segments_can_be_replaced_in_order_and_by_what_follows() -> None:
    one = after(BEGUN, sealing_of(BEGUN, "g1", up_to=2))
    two = after(one, sealing_of(one, "g2", up_to=3))
    good = sealing_of(two, "g3", replaced=2)
    for names in (("g1",), ("g2", "g1"), ("g0", "g1", "g2"), ("g1", "g2", "g3")):
        assert broken_by(two, structs.replace(good, replaced=names)) == {Rule.SEGMENT_MISPLACED}
    moved = structs.replace(good, segment=structs.replace(good.segment, after=1))
    assert broken_by(two, moved) == {Rule.SEGMENT_MISPLACED}


def test_a_reset_table_has_no_sources_and_seals_from_the_beginning() -> None:
    sealed = after(BEGUN, sealing_of(BEGUN))
    emptied = after(sealed, ResetTable(1, ()))
    assert (emptied.sealed_to, emptied.all_source_segments, len(emptied.sources)) == (0, (), 0)
    again = after(emptied, ingest("a"))
    assert after(again, sealing_of(again)).source_segments[0].after == 0


def test_segments_of_earlier_logs_are_adopted_before_any_source_is_added() -> None:
    there = (
        SourceSegment("g1", 0, 900, 5, 100, 80, 5),
        SourceSegment("g2", 900, 950, 1, 20, 16, 1),
    )
    begun = after(TableState(), initialise(ONE_LEAF))
    adopted = after(begun, AdoptSegments(there), ingest("d"))
    assert adopted.all_source_segments == there
    assert broken_by(adopted, AdoptSegments(there[:1])) == {Rule.NOT_AT_BEGINNING}
    assert broken_by(begun, AdoptSegments(there[:1] * 2)) == {Rule.NAMED_TWICE}
    sealed = after(adopted, sealing_of(adopted, "g3"))
    assert [segment.id for segment in sealed.all_source_segments] == ["g1", "g2", "g3"]
    taken = SealSources(structs.replace(sealing_of(adopted).segment, id="g1"))
    assert broken_by(adopted, taken) == {Rule.SEGMENT_MISPLACED}
