"""Writing shards: the order is proved, leaves are cut exactly, reruns adopt what is there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError, InvariantError, UnsortedRowsError
from dormouse.model.keys import KeyRange
from dormouse.model.origins import Lineage, Origin
from dormouse.model.partitions import Partition, PartitionTree
from dormouse.model.schema import Schema
from dormouse.model.shards import NewShard
from dormouse.ports import Storage
from dormouse.shards import parquet
from dormouse.shards.footer import read_footer
from dormouse.shards.order import OrderCheck
from dormouse.shards.writing import UNSPLIT, ShardContext, write_shards
from dormouse.storage import MemoryStorage
from tests.unit.shards.strategies import Row
from tests.unit.shards.tables import batches_of

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "a", "type": "StringType"}, {"name": "b", "type": "LongType"}],
        "sortKeyFields": [{"name": "c", "type": "LongType"}],
        "valueFields": [{"name": "v", "type": "StringType", "nullable": True}],
    }
)
WHOLE = [Partition("root")]
SPLIT = PartitionTree.from_split_points([("b",), ("b", 3), ("z",)])
Write = Callable[..., list[NewShard]]


def row(a: str, b: int = 0, c: int = 0, v: str | None = None) -> Row:
    return {"a": a, "b": b, "c": c, "v": v}


@pytest.fixture
def storage() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def write(storage: Storage, tmp_path: Path) -> Write:
    def write_rows(
        rows: list[Row],
        leaves: list[Partition] = WHOLE,
        size: int = 3,
        inputs: tuple[str, ...] = ("x", "y"),
    ) -> list[NewShard]:
        tree = PartitionTree.of([UNSPLIT.get("root"), *leaves]) if len(leaves) == 1 else SPLIT
        context = ShardContext("table", SCHEMA, "job", tree, lineage=Lineage(inputs=inputs))
        batches = batches_of(rows, SCHEMA, size)
        return write_shards(
            storage, batches, context, leaves, lambda n: f"job-{n}", scratch=tmp_path
        )

    return write_rows


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("wrong", [row("b", 4, 9), row("b", 5, 0), row("a", 9, 9)])
def test_rows_out_of_order_stop_the_job_wherever_they_are(
    write: Write, storage: Storage, tmp_path: Path, size: int, wrong: Row
) -> None:
    rows = [row("a"), row("b", 5, 1), wrong, row("c")]
    with pytest.raises(UnsortedRowsError, match="row 2 "):
        write(rows, size=size)
    assert not list(storage.list(""))
    assert not list(tmp_path.iterdir())


_few = st.tuples(st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 1))


@given(rows=st.lists(_few, max_size=8), ordered=st.booleans(), size=st.integers(1, 4))
def test_exactly_the_sorted_streams_pass_the_check(
    rows: list[tuple[str, int, int]], ordered: bool, size: int
) -> None:
    rows = sorted(rows) if ordered else rows
    check = OrderCheck(SCHEMA)
    passed = True
    try:
        for batch in batches_of([row(*key) for key in rows], SCHEMA, size):
            check.see(batch)
    except UnsortedRowsError:
        passed = False
    assert passed == (rows == sorted(rows))


def test_leaves_may_meet_at_prefixes_and_rows_on_the_border_go_right(write: Write) -> None:
    leaves = list(SPLIT.leaves())
    shards = write([row("a", 9), row("b", -5), row("b", 2), row("b", 3), row("c")], leaves)
    assert [(s.shard.min_key, s.shard.max_key, s.rows_by_partition) for s in shards] == [
        (("a", 9), ("a", 9), ((leaves[0].id, 1),)),
        (("b", -5), ("b", 2), ((leaves[1].id, 2),)),
        (("b", 3), ("c", 0), ((leaves[2].id, 2),)),
    ]


def test_only_the_last_shard_of_a_run_says_so_and_each_where_its_partition_lies(
    write: Write, storage: Storage
) -> None:
    shards = write([row("a"), row("b", 2), row("c")], list(SPLIT.leaves()), size=100)
    origins = [
        read_footer(storage, f"table/data/{new.shard.id}.parquet", new.shard.size_bytes).origin
        for new in shards
    ]
    assert [(o.number, o.last) for o in origins] == [(0, False), (1, False), (2, True)]
    assert [(o.partition, o.splits) for o in origins] == [
        (leaf.id, SPLIT.split_keys_above(leaf.id)) for leaf in list(SPLIT.leaves())[:3]
    ]


def test_a_row_no_leaf_holds_is_a_bug_and_never_dropped(write: Write) -> None:
    with pytest.raises(InvariantError, match=r"\(a, 0\)"):
        write([row("a")], [Partition("p", KeyRange(("b",), None))])


def test_no_rows_make_no_shards(write: Write, storage: Storage) -> None:
    assert write([]) == []
    assert not list(storage.list(""))


def test_another_run_of_the_job_adopts_the_shard_that_is_there(
    write: Write, storage: Storage
) -> None:
    first = write([row("a"), row("b", 1, 2, "x")])
    assert write([row("a"), row("b", 1, 2, "y")], size=1) == first
    assert len(list(storage.list(""))) == 1


@pytest.mark.parametrize("other", [[row("a")], [row("a"), row("c")], [row("b"), row("b", 1)]])
def test_a_shard_of_other_rows_under_the_name_is_not_adopted(
    write: Write, other: list[Row]
) -> None:
    write([row("a"), row("b")])
    with pytest.raises(CorruptDataError, match="job-0.*does not hold"):
        write(other)


def test_a_shard_of_other_inputs_under_the_name_is_not_adopted(write: Write) -> None:
    write([row("a"), row("b")])
    with pytest.raises(CorruptDataError, match="job-0"):
        write([row("a"), row("b")], inputs=("z",))


def test_a_shard_says_to_any_parquet_reader_how_it_is_sorted(
    write: Write, storage: Storage
) -> None:
    (new,) = write([row("a"), row("b", 1, 2, "x")])
    path = f"table/data/{new.shard.id}.parquet"
    with storage.open(path, new.shard.size_bytes) as file:
        metadata = pq.read_metadata(file)
    group = metadata.row_group(0)
    assert [s.column_index for s in group.sorting_columns] == [0, 1, 2]
    assert group.column(0).compression == "ZSTD"
    assert group.column(0).has_column_index
    assert group.column(0).has_offset_index
    footer = read_footer(storage, path, new.shard.size_bytes)
    assert footer.origin == Origin("root", (), "job", lineage=Lineage(inputs=("x", "y")))
    assert (footer.min_key, footer.max_key, footer.rows) == (("a", 0), ("b", 1), 2)


def test_row_groups_are_cut_by_rows_by_bytes_and_grow(
    write: Write, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 4)
    monkeypatch.setattr(parquet, "ROW_GROUPS_BEFORE_DOUBLING", 2)
    narrow = [row("a", i) for i in range(21)]
    wide = [row("b", i, v="x" * 9_000_000) for i in range(3)]
    (new,) = write(narrow + wide)
    with storage.open("table/data/job-0.parquet", new.shard.size_bytes) as file:
        metadata = pq.read_metadata(file)
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert rows[:4] == [4, 4, 8, 5] or rows[:3] == [4, 4, 8]
    assert sum(rows) == 24
    assert len(rows) > 4
