"""What tests of restores share."""

from __future__ import annotations

from dormouse.features.administration import administer
from dormouse.features.checking import check
from dormouse.features.rebuild import rebuild
from dormouse.messages.requests import AdminRequest, CompactTable, RestoreVersion, TagVersion
from dormouse.state.state import TableState
from dormouse.state.validation import broken_invariants
from dormouse.state.versions import OwnerKind
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import World, letters

DELAY_SECONDS = 600


def drop(world: World, number: int, text: str) -> None:
    world.drop(f"letters/{number}.parquet", letters(text, at=number))
    world.settle()


def ask(world: World, *requests: AdminRequest) -> None:
    for request in requests:
        world.queue += administer(world.services, request)
        world.settle()


def restore(world: World, table: Table, as_of: int | str = "before", name: str = "r") -> Table:
    ask(world, RestoreVersion(name, table.name, as_of))
    return newest(world, table)


def newest(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


def age(world: World) -> None:
    """Let all delays go by, and audit."""
    for _ in range(3):
        world.clock.advance(seconds=3600)
        world.age_objects(seconds=3000)
        world.sweep(audit=True)
        world.settle()


def restore_pins(world: World, table: Table) -> int:
    return sum(pin.owner.kind is OwnerKind.RESTORE for pin in world.pages.pins.all(table.state_id))


def assert_sound(world: World, table: Table, names: str) -> TableState:
    state = world.state(newest(world, table))
    assert not broken_invariants(state, whole=True)
    assert world.names(newest(world, table)) == names
    assert state.rows == len(names)
    assert not check(world.services, newest(world, table)).findings
    return state


def lose_state(world: World, table: Table) -> Table:
    """Lose the state, and rebuild it from the shards."""
    world.services.store(table).destroy()
    rebuild(world.services, table)
    return newest(world, table)


@made_once
def merged_since(world: World) -> Table:
    """A table of two shards with a tag of its version, "before"; then a file, and a merge of all.

    So the newest version has none of the shards of the tagged one.
    """
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100, orphan_age_seconds=60)
    drop(world, 1, "abc")
    drop(world, 2, "xyz")
    ask(world, TagVersion("tag", made.name, world.state(made).version, "before"))
    drop(world, 3, "mno")
    ask(world, CompactTable("merge", made.name, all=True))
    assert world.names(made) == "abcmnoxyz"
    return made
