"""Rows that were purged do not come back: their versions are neither restored nor tagged."""

from __future__ import annotations

import pytest

from dormouse.errors import NotFoundError
from dormouse.features import purge_rows as purging
from dormouse.features import versions as restoring
from dormouse.features.administration import administer
from dormouse.messages.requests import RestoreVersion, TagVersion
from dormouse.tables.table import Table
from tests.support.world import World
from tests.unit.features.versions.restoring import (
    DELAY_SECONDS,
    assert_sound,
    drop,
    lose_state,
    newest,
    restore,
    restore_pins,
)


def purged(world: World, **properties: int) -> tuple[Table, int]:
    """Return a table of "bc" whose rows "a" were purged, and the version before.

    The shard with them is garbage, whose delay is not over.
    """
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100, **properties)
    drop(world, 1, "abc")
    version = world.state(made).version
    world.purge(made, "letter = 'a'")
    world.deliver_all_but("gc-candidates")
    while world.queue:
        world.deliver_all_but("gc-candidates")
    return made, version


def test_rows_that_were_purged_are_not_restored(world: World) -> None:
    made, version = purged(world)
    assert world.names(made) == "bc"
    at_the_end = newest(world, made).purged_version
    assert version < at_the_end
    with pytest.raises(NotFoundError, match=r"rows that a purge has removed") as error:
        restore(world, made, version)
    assert f"version {at_the_end}" in str(error.value.hint)
    assert restore_pins(world, made) == 0
    assert_sound(world, made, "bc")
    drop(world, 2, "x")
    restore(world, made, at_the_end, "later")
    assert_sound(world, made, "bc")


def test_a_version_with_purged_rows_is_not_tagged(world: World) -> None:
    made, version = purged(world)
    with pytest.raises(NotFoundError, match=r"cannot be tagged: it may have rows that a purge"):
        administer(world.services, TagVersion("t", made.name, version, "kept"))
    assert not world.services.store(made).pins.all()


def test_a_purge_that_ends_while_its_version_is_tagged_leaves_no_tag(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100)
    drop(world, 1, "abc")
    version = world.state(made).version
    world.purge(made, "letter = 'a'")
    pins = type(world.services.store(made).pins)
    add = pins.add

    def meanwhile(*args: object, **named: object) -> object:
        while world.queue:
            world.deliver_all_but("gc-candidates")
        return add(*args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(pins, "add", meanwhile)
    with pytest.raises(NotFoundError, match="cannot be tagged"):
        administer(world.services, TagVersion("t", made.name, version, "kept"))
    assert not world.services.store(made).pins.all()


def test_a_purge_that_ends_as_a_restore_is_registered_fails(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last step has looked at the state before: the registry tells it of the restore."""
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100)
    drop(world, 1, "abc")
    version = world.state(made).version
    drop(world, 2, "b")
    purge_id = world.purge(made, "letter = 'a'")
    forbid = purging._forbid_earlier

    def meanwhile(*args: object) -> Table:
        administer(world.services, RestoreVersion("r", made.name, version))
        return forbid(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(purging, "_forbid_earlier", meanwhile)
    while world.queue:
        world.deliver_all_but("gc-candidates")
    record = world.tracker.get(made.id, purge_id)
    assert record is not None
    assert record.state == "failed"
    assert "purge them again" in record.reason
    assert_sound(world, made, "abc")


def test_a_restore_whose_purge_ends_before_it_is_registered_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world.create(gc_delay_seconds=DELAY_SECONDS, compaction_files=100)
    drop(world, 1, "abc")
    version = world.state(made).version
    drop(world, 2, "b")
    world.purge(made, "letter = 'a'")
    put_restored = restoring.put_restored

    def meanwhile(*args: object) -> None:
        while world.queue:
            world.deliver_all_but("gc-candidates")
        put_restored(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(restoring, "put_restored", meanwhile)
    with pytest.raises(NotFoundError, match="a purge has removed"):
        administer(world.services, RestoreVersion("r", made.name, version))
    assert restore_pins(world, made) == 0
    assert_sound(world, made, "bbc")


def test_a_table_is_rebuilt_and_restored_after_a_purge(world: World) -> None:
    made, _ = purged(world)
    rebuilt = lose_state(world, newest(world, made))
    version = world.state(rebuilt).version
    drop(world, 2, "x")
    restore(world, rebuilt, version)
    assert_sound(world, rebuilt, "bc")
