from __future__ import annotations

import json

import pytest

from dormouse.stored.paths import shard_path
from tests.cli.conftest import Dormouse
from tests.support.instances import InMemory


@pytest.fixture
def lost(flights: Dormouse, memory: InMemory) -> Dormouse:
    """The same, where the state of the table is lost."""
    table = memory.instance.table("flights").table
    memory.world.pages.lose()
    state = [o.path for o in memory.world.storage.list(f"{table.id}/state/")]
    memory.world.storage.delete(state)
    memory.world.services.store.cache_clear()  # type: ignore[attr-defined]  # as in a new process
    return flights


def test_a_dry_run_shows_what_would_be_and_changes_nothing(lost: Dormouse) -> None:
    assert "state_lost" in lost("check", "flights").stdout
    shown = lost("rebuild", "flights", "--dry-run", "--format", "json")
    assert shown.exit_code == 0, shown.output
    plan = json.loads(shown.stdout)
    assert (plan["shards"], plan["rows"], plan["partitions"], plan["sources"]) == (1, 5, 1, 1)
    assert plan["leaves"] == [{"partition": "root", "range": "..", "shards": 1, "rows": 5}]
    assert plan["left_out"] == []
    assert lost("check", "flights").exit_code == 1


def test_a_lost_table_is_rebuilt_and_found_sound(lost: Dormouse) -> None:
    result = lost("rebuild", "flights", "--force")
    assert result.exit_code == 0, result.output
    assert "rebuilt with 1 reference" in result.stderr
    assert lost("check", "flights").exit_code == 0
    assert lost("query", "flights", "--count").stdout == "5\n"


def test_rebuilding_asks_first_and_no_is_the_answer_unless_said_otherwise(lost: Dormouse) -> None:
    refused = lost("rebuild", "flights", input="\n")
    assert refused.exit_code == 1
    assert "built from its shards, with about 5 rows? [y/N]" in refused.stderr
    assert lost("check", "flights").exit_code == 1
    assert lost("rebuild", "flights", input="y\n").exit_code == 0
    assert lost("check", "flights").exit_code == 0


def test_a_damaged_shard_is_named_and_nothing_is_changed(lost: Dormouse, memory: InMemory) -> None:
    table = memory.instance.table("flights").table
    (shard,) = memory.world.shard_objects(table)
    path = shard_path(table.id, str(shard))
    memory.world.storage.delete([path])
    memory.world.storage.put(path, b"not a shard at all")
    result = lost("rebuild", "flights", "--force")
    assert result.exit_code == 1
    assert path in result.stderr
    assert "nothing was changed" in result.stderr
