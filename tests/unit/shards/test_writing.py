"""Writing shards: the order is proved, leaves are cut exactly, reruns adopt what is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.arrow.order import OrderCheck
from dormouse.errors import (
    AlreadyExistsError,
    DamagedShardError,
    InvariantError,
    UnavailableError,
    UnsortedRowsError,
)
from dormouse.keys import KeyRange
from dormouse.ports import Storage
from dormouse.schema.schema import Schema
from dormouse.shards import footer as row_groups
from dormouse.shards import parquet
from dormouse.shards.footer import read_footer
from dormouse.shards.writer import ShardContext, write_shards
from dormouse.state.partitions import NewShard, Partition, PartitionTree
from dormouse.state.versions import Lineage, Provenance
from tests.support.batches import Row
from tests.support.memory_storage import MemoryStorage
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import batches_of
from tests.support.world import Crash

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
        rows: list[Row] | Iterator[pa.RecordBatch],
        leaves: list[Partition] = WHOLE,
        size: int = 3,
        inputs: tuple[str, ...] = ("x", "y"),
        **how: Any,
    ) -> list[NewShard]:
        context = ShardContext("table", SCHEMA, "job", lineage=Lineage(inputs=inputs))
        batches = batches_of(rows, SCHEMA, size) if isinstance(rows, list) else rows
        return write_shards(
            storage, batches, context, leaves, lambda n: f"job-{n}", scratch=tmp_path, **how
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
    provenances = [
        read_footer(storage, f"table/data/{new.shard.id}.parquet", new.shard.size_bytes).provenance
        for new in shards
    ]
    assert [(o.number, o.last) for o in provenances] == [(0, False), (1, False), (2, True)]
    assert [provenance.range for provenance in provenances] == [
        leaf.range for leaf in SPLIT.leaves()
    ][:3]


def test_a_row_no_leaf_holds_is_a_bug_and_never_dropped(write: Write) -> None:
    with pytest.raises(InvariantError, match="a row of job"):
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


def test_a_shard_that_is_deleted_before_it_is_adopted_has_the_run_tried_again(
    write: Write, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job was taken back meanwhile: a run that dies without a word would count as a crash."""
    write([row("a")])
    monkeypatch.setattr(storage, "list", lambda prefix: iter(()))
    with pytest.raises(UnavailableError, match=r"job-0\.parquet was there and is not any more"):
        write([row("a")])


@pytest.mark.parametrize("other", [[row("a")], [row("a"), row("c")], [row("b"), row("b", 1)]])
def test_a_shard_of_other_rows_under_the_name_is_not_adopted(
    write: Write, other: list[Row]
) -> None:
    write([row("a"), row("b")])
    with pytest.raises(AlreadyExistsError, match="job-0.*differs from what job"):
        write(other)


def test_a_shard_of_other_inputs_under_the_name_is_not_adopted(write: Write) -> None:
    write([row("a"), row("b")])
    with pytest.raises(AlreadyExistsError, match="job-0"):
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
    assert footer.provenance == Provenance(job="job", lineage=Lineage(inputs=("x", "y")))
    assert (footer.min_key, footer.max_key, footer.rows) == (("a", 0), ("b", 1), 2)


def test_rows_of_several_leaves_may_share_a_shard_which_counts_them_leaf_by_leaf(
    write: Write, storage: Storage
) -> None:
    leaves = list(SPLIT.leaves())
    rows = [row("a"), row("a", 1), row("b", 2), row("b", 3), row("b", 4)]
    (new,) = write(rows, leaves, spanning=True)
    counted = [(leaves[0].id, 2), (leaves[1].id, 1), (leaves[2].id, 2)]
    assert list(new.rows_by_partition) == counted
    footer = read_footer(storage, "table/data/job-0.parquet", new.shard.size_bytes)
    assert footer.provenance.range == KeyRange((), leaves[2].range.max)


def test_a_spanning_shard_in_one_leaf_is_written_for_that_leaf(
    write: Write, storage: Storage
) -> None:
    leaves = list(SPLIT.leaves())
    (new,) = write([row("b", 3), row("b", 4)], leaves, spanning=True)
    footer = read_footer(storage, "table/data/job-0.parquet", new.shard.size_bytes)
    assert footer.provenance.range == leaves[2].range


_keys = st.lists(st.tuples(st.sampled_from("abcz"), st.integers(0, 4)), min_size=1, max_size=30)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(keys=_keys, size=st.integers(1, 9), group=st.integers(1, 4), spanning=st.booleans())
def test_shards_are_cut_at_their_target_between_row_keys_wherever_batches_end(
    tmp_path: Path, keys: list[tuple[str, int]], size: int, group: int, spanning: bool
) -> None:
    leaves = list(SPLIT.leaves())
    rows = [row(a, b, i) for i, (a, b) in enumerate(sorted(keys))]

    def run(size: int) -> tuple[list[NewShard], list[Provenance]]:
        storage = MemoryStorage()
        context = ShardContext("table", SCHEMA, "job")
        shards = write_shards(
            storage,
            batches_of(rows, SCHEMA, size),
            context,
            leaves,
            lambda n: f"job-{n}",
            scratch=tmp_path,
            target_bytes=1,
            spanning=spanning,
        )
        paths = [(f"table/data/{new.shard.id}.parquet", new.shard.size_bytes) for new in shards]
        return shards, [read_footer(storage, path, bytes_).provenance for path, bytes_ in paths]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", group)
        shards, provenances = run(size)
        assert (shards, provenances) == run(100)
    spans = [(new.shard.min_key, new.shard.max_key) for new in shards]
    assert all(high < low for (_, high), (low, _) in pairwise(spans))
    assert [(o.number, o.last) for o in provenances] == [
        (n, n + 1 == len(shards)) for n in range(len(shards))
    ]
    assert sum(new.shard.rows for new in shards) == len(rows)
    for new in shards:
        assert sum(count for _, count in new.rows_by_partition) == new.shard.rows
        assert spanning or len(new.rows_by_partition) == 1
    alike = max(keys.count(key) for key in keys)
    assert all(new.shard.rows < group + alike for new in shards)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let rows be written soon, so that small shards have many parts."""
    write_small_blocks(monkeypatch, 4)


@pytest.mark.usefixtures("small_groups")
def test_a_shard_is_on_its_way_while_its_rows_are_written_and_an_object_after_the_last(
    write: Write, storage: MemoryStorage
) -> None:
    seen: list[tuple[list[str], list[str]]] = []
    name = "table/data/job-0.parquet"

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in batches_of([row("a", i) for i in range(200)], SCHEMA, 10):
            yield batch
            unfinished = [upload.path for upload in storage.list_uploads("")]
            seen.append((unfinished, [stored.path for stored in storage.list("")]))

    (new,) = write(batches())
    assert seen[0] == ([], [])
    assert seen[-1] == ([name], [])
    assert [stored.path for stored in storage.list("")] == [name]
    assert not list(storage.list_uploads(""))
    assert read_footer(storage, name, new.shard.size_bytes).rows == 200


@pytest.mark.usefixtures("small_groups")
def test_rows_that_end_with_an_error_leave_neither_object_nor_parts(
    write: Write, storage: MemoryStorage, tmp_path: Path
) -> None:
    def damaged() -> Iterator[pa.RecordBatch]:
        yield from batches_of([row("a", i) for i in range(200)], SCHEMA, 10)
        assert list(storage.list_uploads("")), "parts were sent"
        raise DamagedShardError("the last input is damaged", path="t/data/x.parquet")

    with pytest.raises(DamagedShardError):
        write(damaged())
    assert not list(storage.list("")) and not list(storage.list_uploads(""))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("small_groups")
def test_a_run_that_dies_between_two_parts_leaves_no_object_and_the_next_writes_it(
    write: Write, storage: MemoryStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, begin = [row("a", i) for i in range(200)], storage.begin_upload

    def die(path: str) -> None:
        begin(path)
        raise Crash

    monkeypatch.setattr(storage, "begin_upload", die)
    with pytest.raises(Crash):
        write(rows)
    assert not list(storage.list(""))
    assert [upload.path for upload in storage.list_uploads("")] == ["table/data/job-0.parquet"]
    monkeypatch.setattr(storage, "begin_upload", begin)
    (new,) = write(rows)
    assert new.shard.rows == 200
    assert [upload.path for upload in storage.list_uploads("")] == ["table/data/job-0.parquet"]


def test_a_failing_upload_stops_the_job_and_leaves_no_files(
    write: Write, storage: MemoryStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str, local: Path) -> bool:
        raise UnavailableError("no network")

    monkeypatch.setattr(storage, "upload", fail)
    with pytest.raises(UnavailableError):
        write([row("a"), row("b", 2), row("c")], list(SPLIT.leaves()))
    assert not list(tmp_path.iterdir())


def test_an_upload_that_fails_while_nothing_more_is_written_stops_the_job_too(
    write: Write, storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = storage.upload

    def fail_last(path: str, local: Path) -> bool:
        if "job-2" in path:
            raise UnavailableError("no network")
        return upload(path, local)

    monkeypatch.setattr(storage, "upload", fail_last)
    with pytest.raises(UnavailableError):
        write([row("a"), row("b", 2), row("c")], list(SPLIT.leaves()))


def test_a_part_of_a_run_does_not_say_that_the_run_ends_with_it(
    storage: MemoryStorage, tmp_path: Path
) -> None:
    """Others write parts beside it, and a rebuild must not take this one for all of them."""
    context = ShardContext("table", SCHEMA, "job", part=2)
    batches = batches_of([row("a")], SCHEMA, 3)
    (new,) = write_shards(storage, batches, context, WHOLE, lambda n: f"job-{n}", scratch=tmp_path)
    path = f"table/data/{new.shard.id}.parquet"
    assert not read_footer(storage, path, new.shard.size_bytes).provenance.last


def test_row_groups_take_bounded_memory_however_wide_rows_are(
    write: Write, storage: Storage
) -> None:
    wide = [row("b", i, v="x" * 6_000_000) for i in range(5)]
    (new,) = write([row("a", i) for i in range(10)] + wide)
    with storage.open("table/data/job-0.parquet", new.shard.size_bytes) as file:
        metadata = pq.read_metadata(file)
    rows = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
    assert sum(rows) == 15
    assert rows[-4:] == [1, 1, 1, 1]


def test_columns_have_statistics_only_where_they_can_leave_out_rows(
    write: Write, storage: Storage
) -> None:
    (new,) = write([row("a", i, v=f"text {i}") for i in range(10)])
    with storage.open("table/data/job-0.parquet", new.shard.size_bytes) as file:
        group = pq.read_metadata(file).row_group(0)
    assert [group.column(i).is_stats_set for i in range(4)] == [True, True, True, False]


def test_the_length_of_a_footer_is_guessed_closely_from_the_size_alone(
    write: Write, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "FIRST_ROW_GROUP_ROWS", 64)
    monkeypatch.setattr(parquet, "PAGE_ROWS", 64)
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 16 * 1024)
    monkeypatch.setattr(row_groups, "BLOCK_BYTES", 1024)
    monkeypatch.setattr(row_groups, "LEAST_GROUP_BYTES", 2048)
    rows = [row("a", i, i * 7919 % 1000003, f"text {i * 7919 % 1000003}") for i in range(10_000)]
    (new,) = write(rows, size=2500)
    size_bytes = new.shard.size_bytes
    with storage.open("table/data/job-0.parquet", size_bytes) as file:
        metadata = pq.read_metadata(file)
    guess = row_groups.estimated_footer_bytes(size_bytes, metadata.num_columns)
    assert metadata.num_row_groups > 10
    assert metadata.serialized_size < guess < 2 * metadata.serialized_size
    with storage.open("table/data/job-0.parquet", size_bytes) as file:
        body = file.read()
    before_end = len(body) - body.rfind(b"dormouse.index")
    guess = row_groups.estimated_index_bytes(size_bytes, metadata.num_columns, len(rows))
    assert before_end < guess < 2 * before_end
