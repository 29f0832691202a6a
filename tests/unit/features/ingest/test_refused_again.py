"""A refused file is judged again when it was dropped again, and not for ever."""

from __future__ import annotations

import pytest

from dormouse.client.contents import SINCE_INGESTED, jobs_of
from dormouse.features.batch_files import refusal_of
from dormouse.messages.requests import IngestFiles, SetProperties
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.tables.table import Table
from tests.support.world import World


def current(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


@pytest.mark.parametrize("by", ["drop", "audit", "request"])
def test_a_refused_file_dropped_again_after_a_change_is_ingested(world: World, by: str) -> None:
    table = world.create(csv_separator=";")
    body = b"letter,at,note\na,1,x\n"
    source = world.drop("letters/1.csv", body)
    world.clock.advance(seconds=1)
    world.settle()
    assert refusal_of(world.services, source, table.id) is not None
    world.sweep(audit=True)
    world.settle()
    assert world.names(table) == "", "an audit alone does not try it again"
    world.administer(SetProperties("set", "letters", {"csv_separator": ","}))
    world.clock.advance(seconds=60)
    if by == "drop":
        world.drop("letters/1.csv", body)
    elif by == "audit":
        world.sources.drop("letters/1.csv", body)
        world.sweep(audit=True)
    else:
        world.administer(IngestFiles("again", "letters", ("letters/1.csv",)))
    world.settle()
    assert world.names(current(world, table)) == "a"
    (recorded,) = [r for r in jobs_of(world.services, table) if r.job_id == source.id]
    assert (recorded.state, recorded.reason) == ("finished", SINCE_INGESTED)


def test_a_file_refused_in_the_second_it_was_dropped_is_refused_and_judged_once_more(
    world: World,
) -> None:
    table = world.create()
    source = world.drop("letters/1.csv", b"letter,at\na,never\n")
    world.clock.advance(seconds=0.001)
    world.settle()
    assert refusal_of(world.services, source, table.id) is not None, (
        "a caller that waits learns of the refusal"
    )
    assert refusal_of(world.services, source, table.id, in_doubt=True) is None
    for _ in range(2):
        world.clock.advance(seconds=60)
        world.sweep(audit=True)
        world.settle()
        refusal = refusal_of(world.services, source, table.id, in_doubt=True)
        assert refusal is not None
    assert refusal.updated_ms == world.clock.now_ms() - 60_000, "judged once, not at each audit"


def test_a_refused_file_dropped_again_after_the_schema_changed_is_ingested(world: World) -> None:
    table = world.create()
    body = b'{"letter": "a", "at": 1, "note": "x", "more": "y"}\n'
    first = world.drop("letters/1.json", body)
    world.settle()
    assert refusal_of(world.services, first, table.id) is not None
    world.alter(table, add=[Field("more", Primitive.STRING, nullable=True)])
    world.clock.advance(seconds=60)
    world.drop("letters/1.json", body)
    world.settle()
    assert [row["more"] for row in world.rows(current(world, table))] == ["y"]


def test_a_refused_file_dropped_again_without_a_change_is_refused_again(world: World) -> None:
    table = world.create()
    source = world.drop("letters/1.csv", b"letter,at\na,never\n")
    world.settle()
    first = refusal_of(world.services, source, table.id)
    world.clock.advance(seconds=60)
    world.drop("letters/1.csv", b"letter,at\na,never\n")
    assert refusal_of(world.services, source, table.id) is None, "it has not been judged again"
    world.settle()
    second = refusal_of(world.services, source, table.id)
    assert first is not None and second is not None
    assert second.updated_ms > first.updated_ms
