"""Jobs that Spark does, as a client waits for them."""

from __future__ import annotations

from pathlib import Path

from tests.support.instances import InMemory
from tests.support.world import World
from tests.unit.features.heavy import heavy_compaction


def test_a_job_is_pending_until_what_follows_from_it_is_sent(tmp_path: Path) -> None:
    memory = InMemory.over(World(tmp_path))
    heavy = heavy_compaction(memory.world)
    table = memory.instance.table(heavy.table.name)
    heavy.dispatch()
    assert table.pending() == 1
    assert [*table.pending_names()] == [("heavy",)], "named once, though state and request have it"
    heavy.work()
    assert not memory.world.state(heavy.table).jobs
    assert table.pending() == 1, "nothing is sent yet of what it changed"
    heavy.end("succeeded")
    assert table.pending() == 0
