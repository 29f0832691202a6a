"""Increments: a snapshot with what changed since is the state that the fold made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.log import increments as stored
from dormouse.log.columns import StoredMap, write_file
from dormouse.log.increments import (
    GONE,
    StateChanges,
    changes_between,
    decode_increment,
    encode_increment,
    joined,
    rebased,
)
from dormouse.log.log import fold_delta
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.state.partitions import (
    OverlayMap,
    PartitionReferences,
    PartitionTree,
    Reference,
    Shard,
)
from dormouse.state.state import ResetTable, TableState
from tests.support.trees import initialise
from tests.unit.statestore.histories import ONE_LEAF, Delta, addition, fold_all, histories
from tests.unit.statestore.samples import GOLDEN, sample_increment, sample_state

USUAL = pa.default_memory_pool()
MEASURED = pa.proxy_memory_pool(USUAL)
"""It must live as long as what was allocated by it."""


def after(state: TableState, deltas: Sequence[Delta]) -> TableState:
    for delta in deltas:
        state, _ = fold_delta(state, delta.entries)
    return state


def changes(earlier: TableState, later: TableState) -> StateChanges | None:
    laid_over = rebased(later, earlier)
    return laid_over and changes_between("t", earlier, laid_over)


def increment(earlier: TableState, later: TableState) -> StateChanges | None:
    """What changed, as it is read again."""
    found = changes(earlier, later)
    return found and decode_increment("t", encode_increment(found), "an increment")


def again(made: StateChanges) -> StateChanges:
    """The same changes: who lays them over a snapshot uses up their rows."""
    return replace(made, rows=dict(made.rows))


@given(histories(), st.data())
def test_a_snapshot_with_increments_is_the_state_that_the_fold_made(
    deltas: list[Delta], data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(1, len(deltas)), min_size=3, max_size=4)))
    snapshot = encode_snapshot("t", fold_all(deltas[: cuts[0]]))
    state = cut = decode_snapshot("t", snapshot, "a snapshot")
    whole: StateChanges | None = None
    for start, end in zip(cuts, cuts[1:], strict=False):
        state = after(state, deltas[start:end])
        if start == end:
            continue
        made = increment(cut, state)
        if made is None:
            assert state.generation != cut.generation, "only a reset changes all of it"
            return
        whole, cut = joined(whole, made) if whole else made, state
        whole = decode_increment("t", encode_increment(whole), "an increment")
        found = decode_snapshot("t", snapshot, "a snapshot", again(whole))
        assert found == state
        assert encode_snapshot("t", found) == encode_snapshot("t", state)
        later = after(found, deltas[end:])
        assert later == after(state, deltas[end:]), "and is folded on as that"


def base_and_later() -> tuple[bytes, TableState, TableState]:
    deltas = [Delta((initialise(ONE_LEAF),), 1, 0)]
    deltas += [Delta((addition(n),), n, 0) for n in range(2, 5)]
    snapshot = encode_snapshot("t", fold_all(deltas))
    base = decode_snapshot("t", snapshot, "a snapshot")
    delta = Delta((addition(5), addition(6)), base.time_ms + 1, base.generation)
    return snapshot, base, after(base, [delta])


def test_an_increment_costs_what_changed_and_not_what_there_is() -> None:
    _, base, later = base_and_later()
    made = changes(base, later)
    assert made
    counts = {item: len(rows) for item, rows in made.rows.items()}
    changed = {"shard": 2, "reference": 2, "source": 2, "transaction": 2}
    assert counts == {item: changed.get(item, 0) for item in counts}


def test_an_increment_stored_once_can_be_read_for_ever() -> None:
    body = (GOLDEN / f"increment-{stored.FORMAT}.parquet").read_bytes()
    assert decode_increment("t", body, "x") == decode_increment(
        "t", encode_increment(sample_increment()), "x"
    )


def test_an_increment_of_another_table_or_a_foreign_file_is_refused() -> None:
    body = encode_increment(sample_increment())
    for owner, damaged in (("u", body), ("t", encode_snapshot("t", sample_state())), ("t", b"")):
        with pytest.raises(CorruptDataError, match="increment 7"):
            decode_increment(owner, damaged, "increment 7")


def test_a_flipped_bit_a_cut_and_a_newer_format_are_refused() -> None:
    made = sample_increment()
    body = encode_increment(made)
    for place in range(0, len(body), 97):
        flipped = bytearray(body)
        flipped[place] ^= 4
        with pytest.raises(CorruptDataError):
            decode_increment("t", bytes(flipped), "increment 7")
    with pytest.raises(CorruptDataError):
        decode_increment("t", body[:-20], "increment 7")
    newer = write_file([], pa.schema([]), stored.KIND, stored.FORMAT + 1, made.facts)
    with pytest.raises(CorruptDataError, match="format 2") as raised:
        decode_increment("t", newer, "increment 7")
    assert "upgrade" in raised.value.hint


def test_what_contradicts_the_snapshot_is_refused() -> None:
    snapshot, base, later = base_and_later()
    made = changes(base, later)
    assert made
    assert decode_snapshot("t", snapshot, "a snapshot", again(made)) == later
    another = replace(made, after=made.after - 1)
    twice = replace(made, counts=(made.counts[0] + 1, *made.counts[1:]))
    no_shards = replace(made, rows={**made.rows, "shard": made.rows["shard"].slice(0, 0)})
    no_references = {**made.rows, "reference": made.rows["reference"].slice(0, 1)}
    for wrong in (another, twice, no_shards, replace(made, rows=no_references)):
        with pytest.raises(CorruptDataError, match="snapshot 7"):
            decode_snapshot("t", snapshot, "snapshot 7", again(wrong))


def test_a_shard_that_goes_while_a_reference_to_it_stays_is_refused() -> None:
    snapshot, base, later = base_and_later()
    made = changes(base, later)
    assert made
    stored = base.shards.base
    assert isinstance(stored, StoredMap)
    gone = stored.rows.slice(0, 1).append_column(GONE, pa.array([True]))
    wrong = replace(made, rows={**made.rows, "shard": pa.concat_tables([made.rows["shard"], gone])})
    with pytest.raises(CorruptDataError, match="snapshot 7"):
        decode_snapshot("t", snapshot, "snapshot 7", wrong)


def test_laying_changes_over_a_snapshot_holds_few_columns_twice() -> None:
    """In bytes of Arrow: most of a cold load, and the same on any machine."""
    names = [f"{number:032x}-0" for number in range(0, 40_000, 2)]
    shards = {name: Shard.of(name, 1000, 64_000, (name,), (name,)) for name in names}
    held = {name: Reference("root", name, 1000) for name in names}
    state = fold_all([Delta((initialise(ONE_LEAF),), 1, 0)])
    whole = PartitionReferences(OverlayMap.of(held), 1000 * len(held), len(held))
    state = replace(
        state,
        shards=OverlayMap.of(shards),
        references=OverlayMap.of({"root": whole}),
        rows=whole.rows,
        reference_count=len(whole),
        reference_counts=OverlayMap.of(dict.fromkeys(names, 1)),
    )
    snapshot = encode_snapshot("t", state)
    base = decode_snapshot("t", snapshot, "a snapshot")
    body = encode_increment(found) if (found := changes(base, base_with_more(base))) else b""
    pa.set_memory_pool(MEASURED)
    try:
        loaded = decode_snapshot("t", snapshot, "a snapshot", decode_increment("t", body, "x"))
    finally:
        pa.set_memory_pool(USUAL)
    assert loaded.reference_count == len(names) + 2000
    assert MEASURED.max_memory() < 1.6 * MEASURED.bytes_allocated()


def base_with_more(state: TableState) -> TableState:
    """A state with two thousand shards more, which lie between the others."""
    names = [f"{number:032x}-0" for number in range(1, 4001, 2)]
    held = state.references["root"].insert(*(Reference("root", name, 7) for name in names))
    return replace(
        state,
        version=state.version + 1,
        shards=state.shards.update({n: Shard.of(n, 7, 64_000, (n,), (n,)) for n in names}),
        references=state.references.insert("root", held),
        rows=held.rows,
        reference_count=len(held),
        reference_counts=state.reference_counts.update(dict.fromkeys(names, 1)),
    )


def test_references_in_a_partition_that_changed_stay_where_they_are() -> None:
    snapshot, base, _ = base_and_later()
    (leaf,) = base.references
    grown = replace(base.partitions.get(leaf), height=7)
    tree = PartitionTree(base.partitions.by_id.insert(leaf, grown))
    later = replace(base, version=base.version + 1, partitions=tree)
    made = changes(base, later)
    assert made
    assert decode_snapshot("t", snapshot, "a snapshot", made) == later


def test_after_a_reset_there_is_no_increment() -> None:
    _, base, _ = base_and_later()
    reset = after(base, [Delta((ResetTable(1, ()),), 9, 0)])
    assert reset.generation == 1
    assert changes(base, reset) is None
