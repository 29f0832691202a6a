from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.features.export import EXPORT, FILES, ExportRequest, SkippedShard, TaskFiles
from dormouse.features.long_jobs import ReadTable
from dormouse.features.requests import ResultFile
from dormouse.keys import KeyRange
from dormouse.query import selection as cutting
from dormouse.query.selection import Selection, decode_pieces, encode_pieces, plan_tasks
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import Primitive
from dormouse.sql.conditions import parse_condition
from dormouse.state.fold import apply
from dormouse.state.partitions import NewShard, PartitionTree, Shard
from dormouse.state.state import AddShards, Entry, TableState, Transaction
from dormouse.tables.properties import properties_of
from dormouse.tables.table import Table
from tests.support.trees import NUMBER, initialise

SCHEMA = Schema((Field("k", Primitive.LONG),))
LEAVES = 8


def folded(*transactions: Transaction) -> TableState:
    state = TableState()
    for transaction in transactions:
        state, verdict = apply(state, Entry(transaction, 0, 0))
        assert not verdict.violations
    return state


def table_of(counts: list[int]) -> TableState:
    """A table whose leaves, 10 keys wide, have so many shards of 100 bytes each."""
    tree = PartitionTree.from_split_points([(10 * n,) for n in range(1, len(counts))])
    leaves = sorted(tree.leaves(), key=lambda leaf: leaf.range.min)
    shards = tuple(
        NewShard(Shard.of(f"{n}-{i}", 5, 100, (10 * n,), (10 * n + 9,)), ((leaf.id, 5),))
        for n, (leaf, count) in enumerate(zip(leaves, counts, strict=True))
        for i in range(count)
    )
    partitions = initialise(tree, NUMBER)
    return folded(partitions, AddShards("job", (), shards))


COUNTS = st.lists(st.integers(0, 4), min_size=1, max_size=LEAVES).filter(any)


@given(COUNTS, st.integers(1, 700), st.integers(1, 9))
def test_tasks_are_whole_leaves_in_order_and_no_larger_than_they_must_be(
    counts: list[int], task_bytes: int, task_shards: int
) -> None:
    state = table_of(counts)
    with patch.object(cutting, "MAX_TASK_SHARDS", task_shards):
        tasks = list(plan_tasks(state, [KeyRange()], task_bytes))
    pieces = [piece for task in tasks for piece in task]
    assert [len(piece.shards) for piece in pieces] == [count for count in counts if count]
    assert [piece.range.min for piece in pieces] == sorted(piece.range.min for piece in pieces)
    for task in tasks:
        slices = sum(len(piece.shards) for piece in task)
        assert len(task) == 1 or (slices <= task_shards and 100 * slices <= task_bytes)


@given(COUNTS)
def test_ranges_cut_leaves_and_leave_others_out(counts: list[int]) -> None:
    state = table_of(counts)
    wanted = [KeyRange((3,), (5,)), KeyRange((15,), None)]
    pieces = [piece for task in plan_tasks(state, wanted) for piece in task]
    touched = [n for n, count in enumerate(counts) if count]
    assert [piece.shards[0].min_key for piece in pieces] == [(10 * n,) for n in touched]
    for piece in pieces:
        assert any(span.intersection(piece.range) == piece.range for span in wanted)


@given(COUNTS)
def test_pieces_are_stored_as_they_are(counts: list[int]) -> None:
    with patch.object(cutting, "MAX_TASK_SHARDS", 3):
        tasks = list(plan_tasks(table_of(counts), [KeyRange()]))
    for task in tasks:
        assert decode_pieces(encode_pieces(task, "k", "x"), "k", "x") == task


def test_an_export_and_its_files_are_stored_as_they_are() -> None:
    ranges = (KeyRange((1,), (2,)), KeyRange((5,), None))
    condition = parse_condition("k > 1", SCHEMA)
    selection = Selection(7, ("k",), ranges, condition, time_ms=99)
    properties = properties_of({}, {"filters": "where(k > 0)"})
    read = ReadTable.of(Table("table id", "name", SCHEMA, properties), selection)
    assert (read.schema, read.selection) == (SCHEMA, selection)
    export = ExportRequest("id", "to", read, cut="c", tasks=3)
    assert EXPORT.decode(EXPORT.encode(export, "x"), "x") == export
    assert export.read.table.properties.filters == "where(k > 0)"
    files = (ResultFile("part-00000-000.parquet", 3, 400),)
    skipped = (SkippedShard("data/a.parquet", 7, (1, "a"), (2, "b"), "it is damaged"),)
    for end in (TaskFiles(files), TaskFiles(files, skipped)):
        assert FILES.decode(FILES.encode(end, "x"), "x") == end


def decode_a_task(stored: bytes, path: str) -> object:
    return decode_pieces(stored, "a task of an export", path)


@pytest.mark.parametrize("decode", [EXPORT.decode, decode_a_task, FILES.decode])
@pytest.mark.parametrize("stored", [b"", b"{}", b'{"v": 1, "shards": [], "pieces": [["zz", 1]]}'])
def test_what_is_damaged_is_named(decode: object, stored: bytes) -> None:
    assert callable(decode)
    with pytest.raises(CorruptDataError, match="here.json"):
        decode(stored, "here.json")
