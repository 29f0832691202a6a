"""A state in columns is the state it was made of, through whatever comes after."""

from __future__ import annotations

import io
from dataclasses import replace
from hashlib import blake2b

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from dormouse.errors import CorruptDataError
from dormouse.log.columns import (
    StoredIds,
    StoredMap,
    open_file,
    packed,
    places_among,
    unpacked,
    write_file,
)
from dormouse.log.snapshot import FORMAT, KIND, decode_snapshot, encode_snapshot
from dormouse.state.fold import Verdict, apply
from dormouse.state.partitions import (
    MOST_IN_A_DICT,
    OverlayMap,
    PartitionReferences,
    Reference,
    Shard,
)
from dormouse.state.state import Entry, TableState, Transaction
from dormouse.state.validation import broken_invariants
from tests.support.depth import examples
from tests.support.machine import TableMachine
from tests.support.strategies import text
from tests.support.trees import initialise
from tests.unit.fold.test_fold import SPLIT_AT_M
from tests.unit.statestore.histories import fold_all, histories
from tests.unit.statestore.samples import sample_state


class ColumnMachine(TableMachine):
    """The fold's own machine, whose state comes back from a snapshot every now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = TableState()

    def go(self, transaction: Transaction) -> Verdict:
        entry = Entry(transaction, self.count, self.state.generation)
        verdict = super().go(transaction)
        self.plain, expected = apply(self.plain, entry)
        assert verdict == expected
        assert self.state == self.plain
        return verdict

    @rule()
    def come_back_from_a_snapshot(self) -> None:
        body = encode_snapshot("t", self.state)
        assert body == encode_snapshot("t", self.plain), "the same state, the same bytes"
        self.state = decode_snapshot("t", body, "x")
        assert self.state == self.plain
        assert not broken_invariants(self.state, whole=True)


TestAnyHistoryInColumns = ColumnMachine.TestCase
TestAnyHistoryInColumns.settings = settings(
    max_examples=examples(30), stateful_step_count=30, deadline=None
)


@given(st.lists(text, unique=True).map(sorted), text)
def test_an_id_is_found_where_it_is_and_nowhere_else(ids: list[str], other: str) -> None:
    stored = StoredIds(pa.array(ids, pa.string()))
    assert list(stored) == ids
    for wanted in (*ids, other):
        assert stored.find(wanted) == (ids.index(wanted) if wanted in ids else None)


@given(st.lists(text, unique=True).map(sorted), st.lists(text))
def test_places_of_ids_are_found_among_others(ids: list[str], others: list[str]) -> None:
    wanted = [*others, *ids[::2], *ids[::3]]
    found = places_among(pa.array(wanted, pa.string()), pa.array(ids, pa.string()))
    expected = [ids.index(each) if each in ids else None for each in wanted]
    assert found.to_pylist() == expected


def test_an_id_is_not_found_inside_longer_ones_or_across_two() -> None:
    ids = ["ab", "abab", "ba", "bab"]
    stored = StoredIds(pa.array(ids, pa.string()))
    assert [stored.find(wanted) for wanted in ids] == [0, 1, 2, 3]
    assert [stored.find(absent) for absent in ("a", "b", "aba", "abb", "bb", "bbab")] == [None] * 6


def test_a_digest_is_not_found_across_two() -> None:
    ids = ["00" * 15 + "01", "02" + "00" * 15, "02" * 16]
    column = packed(pa.array(ids))
    assert column is not None
    stored = StoredIds(column)
    assert [stored.find(wanted) for wanted in ids] == [0, 1, 2]
    across = "00" * 14 + "0102"
    assert ids[0] < across < ids[1]
    assert stored.find(across) is None


def test_a_digest_that_also_lies_across_two_is_found() -> None:
    ids = ["00" * 8 + "aa" * 8, "aa" * 8 + "00" * 8, "aa" * 8 + "bb" * 8]
    ids = sorted([*ids, "00" * 15 + "aa", "aa" * 15 + "00", "aa" * 16])
    column = packed(pa.array(ids))
    assert column is not None
    stored = StoredIds(column)
    assert [stored.find(wanted) for wanted in ids] == list(range(len(ids)))


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
def test_ids_are_found_on_both_sides_of_where_a_search_begins(count: int) -> None:
    ids = sorted(blake2b(str(n).encode(), digest_size=16).hexdigest() for n in range(count))
    for column in (pa.array(ids), packed(pa.array(ids))):
        assert column is not None
        stored = StoredIds(column)
        assert [stored.find(wanted) for wanted in ids] == list(range(count))
        for absent in ("", "0", "f" * 32, "g", ids[0].upper(), ids[-1][:-1]):
            assert stored.find(absent) is None


@given(st.lists(st.binary(min_size=16, max_size=16)), st.integers(0, 3))
def test_hex_ids_become_bytes_and_are_the_same_again(digests: list[bytes], start: int) -> None:
    ids = pa.array([digest.hex() for digest in digests], pa.string())[start:]
    column = packed(ids)
    assert column is None if not len(ids) else column is not None
    if column is not None:
        assert column.to_pylist() == digests[start:]
        assert unpacked(column).equals(ids)
        assert unpacked(column[1:]).equals(ids[1:])


@pytest.mark.parametrize("odd", ["A" * 32, "0" * 31, "0" * 31 + "g", "0" * 31 + "\n", "é" * 16])
def test_an_id_that_bytes_would_not_give_back_keeps_all_as_text(odd: str) -> None:
    assert packed(pa.array(["0" * 32, odd])) is None


@given(histories())
def test_nothing_changed_since_it_was_read(history: list) -> None:  # type: ignore[type-arg]
    state = decode_snapshot("t", encode_snapshot("t", fold_all(history)), "x")
    maps: list[OverlayMap] = [  # type: ignore[type-arg]
        state.shards,
        state.references,
        state.reference_counts,
        state.unreferenced,
        state.sources,
        state.transactions,
        state.partitions.by_id,
    ]
    assert not any(layered.changes for layered in maps)


@pytest.mark.parametrize(("largest", "kind"), [(2**31 - 1, pa.int32()), (2**31, pa.int64())])
def test_versions_of_remembered_sources_take_half_the_memory_while_they_fit(
    largest: int, kind: pa.DataType
) -> None:
    digests = {blake2b(bytes([n]), digest_size=16).hexdigest(): largest - n for n in range(3)}
    body = encode_snapshot("t", TableState(sources=OverlayMap.of(digests)))
    loaded = decode_snapshot("t", body, "the/path")
    assert isinstance(loaded.sources.base, StoredMap)
    assert loaded.sources.base.rows["version"].type == kind
    assert dict(loaded.sources.items()) == digests
    assert encode_snapshot("t", loaded) == body
    later = replace(loaded, sources=loaded.sources.insert("by hand", 2**40))
    again = decode_snapshot("t", encode_snapshot("t", later), "the/path")
    assert dict(again.sources.items()) == digests | {"by hand": 2**40}


def test_many_remembered_sources_take_fewer_bytes_each_than_their_digests_and_versions() -> None:
    count = 30_000
    digests = {blake2b(bytes([n % 251, n // 251])).hexdigest()[:32]: n for n in range(count)}
    empty, full = (
        encode_snapshot("t", TableState(sources=OverlayMap.of(sources)))
        for sources in ({}, digests)
    )
    assert (len(full) - len(empty)) / len(digests) < 17.8


def test_a_source_that_is_no_digest_joins_those_that_are() -> None:
    digests = {blake2b(str(n).encode(), digest_size=16).hexdigest(): n for n in range(3)}
    body = encode_snapshot("t", TableState(sources=OverlayMap.of(digests)))
    state = decode_snapshot("t", body, "x")
    odd = TableState(sources=state.sources.insert("by hand", 9))
    again = decode_snapshot("t", encode_snapshot("t", odd), "x")
    assert dict(again.sources.items()) == digests | {"by hand": 9}


def test_many_references_in_many_partitions_are_each_found() -> None:
    held = {
        f"{p:03d}": PartitionReferences(
            OverlayMap.of(
                {
                    f"s{s}": Reference(f"{p:03d}", f"s{s}", s, job="j" if s % 2 else None)
                    for s in have
                }
            ),
            sum(have),
            sum(1 for s in have if not s % 2),
        )
        for p, have in ((p, range(p % 7, 9)) for p in range(600))
    }
    before, _ = apply(TableState(), Entry(initialise(SPLIT_AT_M), 0, 0))
    root = before.partitions.get("root")
    tree = before.partitions.by_id.update(dict.fromkeys(held, root))
    state = TableState(
        partitions=type(before.partitions)(tree),
        shards=OverlayMap.of({f"s{s}": Shard.of(f"s{s}", s, s, ("a",), ("b",)) for s in range(9)}),
        references=OverlayMap.of(held),
    )
    again = decode_snapshot("t", encode_snapshot("t", state), "x")
    assert again.references == state.references
    assert again.reference("007", "s3") == Reference("007", "s3", 3, job="j")
    assert again.reference("006", "s3") is None
    assert again.reference("9", "s3") is None


def test_a_partition_of_many_references_is_as_one_of_few() -> None:
    before, _ = apply(TableState(), Entry(initialise(SPLIT_AT_M), 0, 0))
    root = before.partitions.get("root").id
    many = [Reference(root, f"s{n:03d}", n) for n in range(3 * MOST_IN_A_DICT)]
    shards = {r.shard: Shard.of(r.shard, r.rows, 1, ("a",), ("b",)) for r in many}
    plain = PartitionReferences().insert(*many)
    state = replace(before, shards=OverlayMap.of(shards), references=OverlayMap.of({root: plain}))
    read = decode_snapshot("t", encode_snapshot("t", state), "x").references[root]
    assert read == plain
    for step in (many[:1], many[5:], many[:5]):
        names = [reference.shard for reference in step]
        assert read.discard(*names) == plain.discard(*names) != plain
        taken = [reference.held_by("j") for reference in step]
        assert read.insert(*taken) == plain.insert(*taken) != plain
        assert plain.insert(*taken).insert(*step) == plain
        assert plain.discard(*names).insert(*step) == plain


@pytest.mark.parametrize(
    ("group", "column", "values"),
    [
        (1, "id", ["s2", "s1"]),
        (1, "id", [None, "s1"]),
        (1, "rows", [None, 1]),
        (2, "shard_row", [0, 7]),
        (2, "shard_row", [-1, 1]),
        (2, "partition_row", [0, 99]),
        (2, "partition_row", [1, 0]),
    ],
)
def test_columns_in_which_something_would_not_be_found_are_refused(
    group: int, column: str, values: list[object]
) -> None:
    file, facts = open_file(encode_snapshot("t", sample_state()), KIND, FORMAT, "x")
    groups = [file.read_row_group(n, use_threads=False) for n in range(file.num_row_groups)]
    rows = groups[group]
    kept = len(rows) - len(values)
    assert kept >= 0
    damaged = pa.concat_arrays(
        [pa.array(values, rows.schema.field(column).type), rows[column].combine_chunks()[:kept]]
    )
    groups[group] = rows.set_column(rows.schema.get_field_index(column), column, damaged)
    kept_facts = {k: v for k, v in facts.items() if k not in ("dormouse.kind", "dormouse.format")}
    body = write_file(groups, rows.schema, KIND, FORMAT, kept_facts)
    with pytest.raises(CorruptDataError, match="does not hold a whole state"):
        decode_snapshot("t", body, "x")


def test_any_parquet_reader_can_see_the_kind_of_each_row() -> None:
    body = encode_snapshot("t", sample_state())
    items = pq.read_table(io.BytesIO(body), columns=["item"], use_threads=False)["item"].to_pylist()
    assert {"partition", "shard", "reference", "source", "transaction"} <= set(items)
