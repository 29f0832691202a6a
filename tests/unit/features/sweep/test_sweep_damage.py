"""A damaged object beside a table is reported by each sweep that reads it, and stops nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dormouse.errors import CorruptDataError
from dormouse.features.sweep import sweep
from dormouse.messages.stages import ExportTask, OutboundMessage, PurgeStep
from dormouse.shards.run_markers import RunMarker, put_run_marker
from dormouse.state.versions import Provenance
from dormouse.stored.paths import (
    EXPORTS,
    PURGES,
    RUN_MARKERS,
    SPARK_JOBS,
    data_prefix,
    purge_matches_path,
    spark_run_path,
)
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import World, letters

TWO_WEEKS = 14 * 24 * 60 * 60
BESIDE: dict[str, Callable[[str], str]] = {
    "an export": lambda table: EXPORTS.path(table, "0damaged"),
    "the note of an end": lambda table: RUN_MARKERS.path(table, "0damaged"),
    "a request for Spark": lambda table: SPARK_JOBS.path(table, "0damaged"),
}


@pytest.fixture
@made_once
def table(world: World) -> Table:
    table = world.create()
    world.drop("letters/1.parquet", letters("abc"))
    world.settle()
    return table


def swept(world: World, table: Table) -> tuple[list[OutboundMessage], str]:
    """Audit a table; return the messages sent, and the damage it reported at the end."""
    sent: list[OutboundMessage] = []
    try:
        for outgoing in sweep(world.services, table, audit=True):
            sent.append(outgoing)
    except CorruptDataError as error:
        return sent, str(error)
    return sent, ""


@pytest.mark.parametrize("damaged", BESIDE)
def test_a_damaged_object_stops_nothing_that_a_sweep_does(
    world: World, table: Table, damaged: str
) -> None:
    world.storage.put(BESIDE[damaged](table.id), b"damaged")
    export_id = world.export(table)
    purge_id = world.purge(table, "letter = 'z'")
    world.queue.clear()
    put_run_marker(world.storage, table.id, RunMarker("spent", Provenance()))
    rests = [
        f"{data_prefix(table.id)}{'0' * 32}.parquet",
        spark_run_path(table.id, "gone", 1, "run"),
        RUN_MARKERS.path(table.id, "spent"),
    ]
    for path in rests[:2]:
        world.storage.put(path, b"")
    world.clock.advance(seconds=TWO_WEEKS)
    world.age_objects(seconds=TWO_WEEKS)
    sent, found = swept(world, table)
    assert "0damaged.json" in found
    messages = [outgoing.message for outgoing in sent]
    assert [m.export_id for m in messages if isinstance(m, ExportTask)] == [export_id]
    assert [m.purge_id for m in messages if isinstance(m, PurgeStep)] == [purge_id]
    assert not {stored.path for stored in world.storage.list(table.id)} & set(rests)


def test_a_damaged_purge_and_its_verdicts_stop_nothing_that_a_sweep_does(
    world: World, table: Table
) -> None:
    world.storage.put(PURGES.path(table.id, "0damaged"), b"damaged")
    world.storage.put(purge_matches_path(table.id, "0damaged", "1"), b"damaged")
    export_id = world.export(table)
    world.queue.clear()
    world.clock.advance(seconds=TWO_WEEKS)
    world.age_objects(seconds=TWO_WEEKS)
    sent, found = swept(world, table)
    assert found == ""  # its step reports it
    messages = [outgoing.message for outgoing in sent]
    assert [m.export_id for m in messages if isinstance(m, ExportTask)] == [export_id]
    (step,) = (outgoing for outgoing in sent if isinstance(outgoing.message, PurgeStep))
    with pytest.raises(CorruptDataError, match="0damaged.json"):
        world.deliver(step)
