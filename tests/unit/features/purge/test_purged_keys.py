"""Where the keys of purged rows are still named, and when no longer: what docs/purge.md says."""

from __future__ import annotations

import zlib

import pyarrow.parquet as pq
import pytest

from dormouse.features.rebuild import rebuild
from dormouse.stored.paths import REQUESTS, data_prefix, state_prefix, table_prefix
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import World, letters

KEY = "zebra-7"
PACKED_AT = 16
"""Where the packed rows of a delta begin."""


@pytest.fixture
@made_once
def table(world: World) -> Table:
    """A table where the key was the greatest of a shard, and was purged and collected."""
    table = world.create(gc_delay_seconds=60)
    world.set_online(table, False)
    for number in range(2):
        row = {"letter": KEY, "at": number, "note": "n"}
        world.drop(f"letters/{number}.parquet", [*letters("abc", at=10 * number), row])
    world.settle()
    assert named_by_state(world, table)
    assert all(named_by_object(world, o.path) for o in world.storage.list(data_prefix(table.id)))
    world.purge(table, "", KEY)
    world.settle()
    return table


def named_by_object(world: World, path: str) -> bool:
    """Return whether an object holds the key: in rows, statistics, or, in hexadecimal, the
    footer."""
    body = world.storage.get(path)
    if path.endswith(".delta"):
        packed = zlib.decompress(body[PACKED_AT:])
        return KEY.encode() in packed or KEY.encode().hex().encode() in packed
    rows = str(pq.read_table(world.folder / "data" / path).to_pylist())
    return KEY.encode() in body or KEY.encode().hex().encode() in body or KEY in rows


def named_by_state(world: World, table: Table) -> list[str]:
    """Return the objects of the table's state, its past included, which hold the key."""
    state = [o.path for o in world.storage.list(table_prefix(table.id)) if "/state/" in o.path]
    return [path for path in state if named_by_object(world, path)]


def test_no_shard_and_no_shard_of_the_newest_state_names_a_purged_key(
    world: World, table: Table
) -> None:
    paths = [o.path for o in world.storage.list(data_prefix(table.id))]
    assert len(paths) == 1
    assert not any(named_by_object(world, path) for path in paths)
    state = world.state(table)
    assert {shard.max_key for shard in state.shards.values()} == {("c",)}


def test_earlier_versions_of_the_state_hold_purged_keys_until_a_rebuild(
    world: World, table: Table
) -> None:
    assert named_by_state(world, table)
    rebuild(world.services, table)
    changed = world.tables.get(table.id)
    assert changed is not None
    assert named_by_state(world, changed) == []
    assert state_prefix(changed.state_id).startswith(state_prefix(table.id)), "readers may read it"
    state = {o.path for o in world.storage.list(state_prefix(table.id))}
    assert state == {o.path for o in world.storage.list(state_prefix(changed.state_id))}
    assert [row["letter"] for row in world.rows(changed)] == list("aabbcc")


def test_nothing_that_is_kept_of_a_purge_outlives_it(world: World, table: Table) -> None:
    others = [
        o.path
        for o in world.storage.list(table_prefix(table.id))
        if "/state/" not in o.path and "/data/" not in o.path
    ]
    assert not [path for path in others if not path.startswith(REQUESTS.prefix(table.id))]
    assert not any(KEY.encode() in world.storage.get(path) for path in others)
    assert KEY not in str(list(world.tracker.kept.values()))
