"""Shards that are read as files: all of their rows count, and each once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.keys import Key, KeyRange
from dormouse.shards.reading import Slice
from dormouse.state.partitions import Shard
from dormouse.statements import running
from dormouse.statements.running import whole_shards

ALL = KeyRange()


def slices(*ranges: KeyRange, name: str = "s", low: Key = (10,), high: Key = (90,)) -> list[Slice]:
    shard = Shard.of(name, 100, 1_000, low, high)
    return [Slice(shard, range) for range in ranges]


def ranges_of(found: list[Slice]) -> list[KeyRange]:
    return [slice.range for slice in whole_shards(found)]


def test_a_shard_of_several_leaves_is_one_file() -> None:
    leaves = slices(KeyRange((60,)), KeyRange((), (30,)), KeyRange((30,), (60,)))
    assert ranges_of(leaves) == [ALL]
    assert ranges_of(leaves[1:]) == []  # its last rows do not count
    assert ranges_of([*leaves, *slices(ALL, name="t")]) == [ALL, ALL]


@pytest.mark.parametrize(
    "ranges",
    [
        (KeyRange((), (30,)), KeyRange((60,))),
        (KeyRange((), (30,)), KeyRange((30,), (60,))),
        (KeyRange((), (30,)), KeyRange((20,))),
        (ALL, ALL),
        (KeyRange((11,)),),
    ],
    ids=["a gap", "no end", "an overlap", "twice", "no beginning"],
)
def test_a_file_with_rows_that_do_not_count_once_is_not_read(ranges: tuple[KeyRange, ...]) -> None:
    assert ranges_of(slices(*ranges)) == []
    assert ranges_of([*slices(*ranges), *slices(ALL, name="t")]) == []


def test_rows_of_a_shard_of_several_leaves_come_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = []

    def recorded(found: list[Slice]) -> list[Slice]:
        joined.append(list(whole_shards(found)))
        return joined[-1]

    monkeypatch.setattr(running, "whole_shards", recorded)
    monkeypatch.setattr(running, "LEAST_BYTES", 0)
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table("t", "k:long, v:long", row_keys=["k"], split_points=[30, 60])
        table.ingest(pa.table({"k": range(100), "v": [k % 7 for k in range(100)]}))
        found = instance.sql("SELECT sum(k), count(DISTINCT v) FROM t WHERE k > 9 AND v < 9")
        assert [list(row.values()) for row in found.to_arrow().to_pylist()] == [[4905, 7]]
    assert [[slice.range for slice in each] for each in joined] == [[ALL]]
