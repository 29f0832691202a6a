"""Shards of a few rows, which the process has read before."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import DamagedShardError
from dormouse.query import small_shards
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.shards import decoding
from dormouse.stored.paths import shard_path


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[Instance]:
    with Instance.open(tmp_path / "mice", background=False) as opened:
        yield opened


def rows(first: int, count: int = 10) -> pa.Table:
    numbers = list(range(first, first + count))
    return pa.table({"id": numbers, "text": [f"{n}" for n in numbers]})


def table_of(instance: Instance, *firsts: int) -> TableHandle:
    table = instance.create_table("t", like=rows(0), row_keys=["id"])
    for first in firsts:
        table.ingest(rows(first)).wait()
    return table


def answer(instance: Instance, statement: str) -> tuple[tuple[object, ...], int, int]:
    """The only row of a statement, how many shards it is of, and how many reads it took."""
    result = instance.sql(statement)
    (row,) = result.to_arrow().to_pylist()
    return tuple(row.values()), len(result.reads.shards), result.reads.requests


def test_what_a_process_has_read_of_small_shards_is_not_read_again(instance: Instance) -> None:
    table = table_of(instance, 0, 10, 20)
    total = "SELECT count(id), sum(id) FROM t"
    cells, shards, requests = answer(instance, total)
    assert (cells, shards) == ((30, sum(range(30))), 3)
    assert requests
    assert answer(instance, total) == (cells, 3, 0)
    table.ingest(rows(30)).wait()
    cells, shards, requests = answer(instance, total)
    assert (cells, shards) == ((40, sum(range(40))), 4)
    assert requests
    assert answer(instance, "SELECT count(text) FROM t")[:2] == ((40,), 4)
    table.delete("id < 5")
    assert answer(instance, total)[0] == (35, sum(range(5, 40)))


def test_rows_that_were_read_have_the_columns_that_the_table_has_now(instance: Instance) -> None:
    table = table_of(instance, 0, 10)
    every = "SELECT count(text), count(*), min(text) FROM t"
    for _ in range(3):
        assert answer(instance, every)[0] == (20, 20, "0")
    table.alter(drop=["text"], add=[Field("text", Primitive.STRING, nullable=True)])
    assert answer(instance, every)[0] == (0, 20, None)


def test_of_a_shard_of_several_leaves_the_rows_in_a_range_are_read(instance: Instance) -> None:
    table = instance.create_table("t", like=rows(0), row_keys=["id"], split_points=[5, 15])
    table.ingest(rows(0, 20)).wait()
    for _ in range(2):
        assert answer(instance, "SELECT count(id), sum(id) FROM t")[0] == (20, sum(range(20)))
        assert answer(instance, "SELECT sum(id) FROM t WHERE id >= 5 AND id < 7")[0] == (11,)


def test_of_a_shard_of_several_blocks_all_are_read_again(instance: Instance) -> None:
    instance.create_table("t", like=rows(0), row_keys=["id"]).ingest(rows(0, 3000)).wait()
    for _ in range(2):
        cells, _, _ = answer(instance, "SELECT count(text), sum(id) FROM t")
        assert cells == (3000, sum(range(3000)))


def test_small_shards_of_the_same_columns_are_decoded_together(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    excerpt = decoding.excerpt

    def counted(fields: Sequence[Field], groups: Sequence[decoding.PagesOfGroup]) -> pa.RecordBatch:
        decoded.append(len(groups))
        return excerpt(fields, groups)

    monkeypatch.setattr(decoding, "excerpt", counted)
    table = table_of(instance, 0, 10, 20)
    table.alter(add=[Field("more", Primitive.LONG, nullable=True)])
    for first in (30, 40):
        more = rows(first).append_column("more", pa.array([first] * 10))
        table.ingest(more).wait()
    found = answer(instance, "SELECT count(id), sum(id), sum(more), count(more) FROM t")[0]
    assert found == (50, sum(range(50)), 700, 20)
    assert sorted(decoded) == [2, 3]


def test_of_shards_that_are_decoded_together_the_damaged_one_is_named(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of(instance, 0, 10, 20)
    excerpt, asked = decoding.excerpt, list[int]()

    def broken(fields: Sequence[Field], groups: Sequence[decoding.PagesOfGroup]) -> pa.RecordBatch:
        asked.append(len(groups))
        if asked != [3, 1]:
            raise pa.ArrowInvalid("odd page")
        return excerpt(fields, groups)

    monkeypatch.setattr(decoding, "excerpt", broken)
    second = [each.id for each in sorted(table.state().shards.values(), key=lambda s: s.low)][1]
    with pytest.raises(DamagedShardError, match=rf"{second}\.parquet is damaged: odd page"):
        answer(instance, "SELECT count(id), sum(id) FROM t")


def test_what_the_cache_keeps_of_a_shard_keeps_few_others_in_memory(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "MOST_ALIKE", 2)
    table = table_of(instance, *range(0, 70, 10))
    assert answer(instance, "SELECT count(id), sum(id) FROM t")[0] == (70, sum(range(70)))
    paths = [shard_path(table.table.id, shard) for shard in table.state().shards]
    kept = [instance.services.cache.get(f"{path}#0", decoding.KeptBlock) for path in paths]
    ids = [block.rows.column("id") for block in kept if block is not None]
    assert sum(map(len, ids)) == 70
    assert all(each.buffers()[1].size <= 2 * 10 * 8 for each in ids)


def test_rows_that_were_read_keep_their_row_tags(instance: Instance) -> None:
    table = instance.create_table("t", like=rows(0), row_keys=["id"])
    for first in (0, 10):
        table.ingest(rows(first), tags={"day": f"{first}"}).wait()
    for _ in range(2):
        asked = "SELECT count(tag('day')), min(tag('day')), max(tag('day')) FROM t"
        assert answer(instance, asked)[0] == (20, "0", "10")


@pytest.mark.parametrize("pile_bytes", [0, 1500, small_shards.PILE_BYTES])
def test_rows_that_scans_took_together_are_those_of_the_shards_that_each_version_has(
    instance: Instance, monkeypatch: pytest.MonkeyPatch, pile_bytes: int
) -> None:
    monkeypatch.setattr(small_shards, "PILE_BYTES", pile_bytes)
    total = "SELECT count(id), sum(id), min(text) FROM t"
    table = table_of(instance, 20, 0)
    for _ in range(3):
        assert answer(instance, total)[:2] == ((20, sum((*range(10), *range(20, 30))), "0"), 2)
    earlier = table.state().version
    table.ingest(rows(10)).wait()
    for _ in range(2):
        assert answer(instance, total)[:2] == ((30, sum(range(30)), "0"), 3)
        assert answer(instance, f"{total} WHERE id >= 10 AND id < 20")[0] == (10, 145, "10")
    instance.compact("t", everything=True)
    instance.wait()
    for first in (30, 40, 50):
        table.ingest(rows(first)).wait()
        for _ in range(2):
            assert answer(instance, total)[0] == (first + 10, sum(range(first + 10)), "0")
    then = f"SELECT count(id), sum(id) FROM t FOR VERSION AS OF {earlier}"
    assert answer(instance, then)[0] == (20, sum((*range(10), *range(20, 30))))
