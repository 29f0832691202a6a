"""The files of an export are uploaded while they are written, and are there when they are whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from dormouse.errors import DamagedShardError
from dormouse.features import export_rows
from dormouse.files import results as writers
from tests.support.memory_storage import MemoryStorage
from tests.support.world import World
from tests.unit.features.exports import filled


@pytest.fixture
def results(world: World, monkeypatch: pytest.MonkeyPatch) -> MemoryStorage:
    """A storage that gets files in parts, of which each row makes some."""
    monkeypatch.setattr(writers, "ROW_GROUP_ROWS", 1)
    results = MemoryStorage(world.clock)
    world.services = replace(world.services, results=results)
    return results


def watched(results: MemoryStorage, seen: list[int], *, dies: bool = False) -> Any:
    """Return queries whose every row comes alone, and which note how many uploads there are."""
    query = export_rows.query_slices

    def rows(*given: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        for batch in query(*given, **options):
            for at in range(batch.num_rows):
                yield batch.slice(at, 1)
                seen.append(len(list(results.list_uploads(""))))
                if dies and seen[-1]:
                    raise DamagedShardError("a shard is damaged", path="t/data/x.parquet")

    return rows


def test_a_file_is_on_its_way_while_its_rows_are_written(
    world: World, results: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, seen = filled(world), list[int]()
    monkeypatch.setattr(export_rows, "query_slices", watched(results, seen))
    world.export(table, to="out")
    world.settle()
    assert max(seen) == 1
    assert not list(results.list_uploads(""))
    assert [stored.path for stored in results.list("out/")]


def test_a_task_that_fails_between_two_parts_leaves_neither_file_nor_parts(
    world: World, results: MemoryStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, seen = filled(world), list[int]()
    monkeypatch.setattr(export_rows, "query_slices", watched(results, seen, dies=True))
    world.export(table, to="out")
    world.settle()
    assert max(seen) == 1
    assert not list(results.list_uploads("")) and not list(results.list("out/"))
