"""Files whose ingest began before their times became nanoseconds, and committed after."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.arrow.types import arrow_schema
from dormouse.errors import ContendedError, InvalidRequestError
from dormouse.features import finer_times, ingest
from dormouse.schema.schema import parse_schema
from dormouse.tables.table import Table
from tests.support.world import World

SCHEMA = parse_schema("k:long, at:timestamp?", ["k"])


def drop(world: World, name: str, year: int) -> None:
    rows = [{"k": year, "at": dt.datetime(year, 1, 1, tzinfo=dt.UTC)}]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema(SCHEMA)), sink)
    world.drop(f"t/{name}.parquet", sink.getvalue())
    world.settle()


def before(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, do: Callable[[], None]) -> None:
    """Do something once, before the next call of a function."""
    real = getattr(place, name)

    def called(*arguments: object, **more: object) -> object:
        monkeypatch.setattr(place, name, real)
        do()
        return real(*arguments, **more)

    monkeypatch.setattr(place, name, called)


def years(world: World, table: Table) -> list[int]:
    found = world.tables.get(table.id)
    assert found is not None
    return sorted(row["k"] for row in world.rows(found))


@pytest.mark.parametrize("begun", ["look_up_sources", "_commit"])
@pytest.mark.parametrize("has_more", [True, False])
def test_a_file_that_was_read_before_its_times_became_finer_is_read_again(
    world: World, monkeypatch: pytest.MonkeyPatch, begun: str, has_more: bool
) -> None:
    table = world.create("t", SCHEMA)
    if has_more:
        drop(world, "first", 2024)
    before(monkeypatch, ingest, begun, lambda: finer(world, table))
    drop(world, "late", 2300)
    drop(world, "later", 2025)
    assert years(world, table) == [2024, 2025][not has_more :], "that of 2300 was refused"


def finer(world: World, table: Table) -> None:
    world.alter(table, types={"at": "timestamp_ns"})


def test_a_file_that_is_ingested_before_the_times_are_looked_through_refuses_the_alteration(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create("t", SCHEMA)
    before(monkeypatch, finer_times, "_refuse_begun", lambda: commit_late(world, monkeypatch))
    with pytest.raises(InvalidRequestError, match="1677 to 2262"):
        finer(world, table)
    drop(world, "later", 2024)
    assert years(world, table) == [2024, 2300], "nothing waits for the alteration any more"


def commit_late(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ingest a file that was written before the alteration began."""
    with monkeypatch.context() as patched:
        patched.setattr(ingest, "with_times", lambda services, table: table)
        drop(world, "late", 2300)


def test_ingests_wait_for_an_alteration_but_not_for_one_that_died(world: World) -> None:
    table = world.create("t", SCHEMA)
    drop(world, "first", 2024)
    until_ms = world.clock.now_ms() + 1000
    world.tables.change(table.id, lambda kept: replace(kept, finer_until_ms=until_ms))
    with pytest.raises(ContendedError):
        ingest.with_times(world.services, table)
    world.clock.advance(seconds=ingest.MOST_SKEW_MS // 1000 + 2)
    drop(world, "later", 2025)
    assert years(world, table) == [2024, 2025]


def test_an_alteration_that_took_too_long_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = world.create("t", SCHEMA)
    drop(world, "first", 2024)
    before(
        monkeypatch,
        finer_times,
        "_check",
        lambda: world.clock.advance(seconds=finer_times.HELD_MS // 1000),
    )
    with pytest.raises(ContendedError):
        finer(world, table)
    finer(world, table)
    assert years(world, table) == [2024]


def test_ingests_go_on_at_once_after_an_alteration_that_is_refused_for_something_else(
    world: World,
) -> None:
    table = world.create("t", SCHEMA, iceberg="on")  # its readers know no nanoseconds
    with pytest.raises(InvalidRequestError, match="Iceberg promotes"):
        finer(world, table)
    drop(world, "next", 2300)
    assert years(world, table) == [2300]
