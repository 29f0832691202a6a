"""A job for a function that may die of it: what the tests of compactions in steps share."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from dormouse.features import compaction as compact_apart
from dormouse.features import compaction as compact_stage
from dormouse.jobs import MAX_RECEIVES
from dormouse.messages.stages import CompactionJob, OutboundMessage
from dormouse.state.state import AssignJob
from dormouse.tables.table import Table
from tests.support.made_once import made_once
from tests.support.world import Crash, World, letters

WORDS = "abcdefghijklmnop"
MERGES = ("dormouse.features.compaction.merge_inputs",)


@made_once
def job_of(world: World, *texts: str, **properties: object) -> tuple[Table, OutboundMessage]:
    """Return a table with a shard for each text, and the message of a job that has them all."""
    table = world.create(**{"compaction_files": 100, "split_threshold_rows": 10**6, **properties})
    for number, text in enumerate(texts):
        world.drop(f"letters/{number}.parquet", letters(text, at=100 * number))
        world.deliver(world.queue.popleft())
    world.queue.clear()
    inputs = tuple(sorted(world.state(table).shards))
    world.new_store(table).commit(AssignJob("heavy", "root", inputs), generation=0)
    return table, OutboundMessage("compaction-jobs", CompactionJob(table.id, 0, "heavy"))


def kills(patch: pytest.MonkeyPatch, when: Callable[..., bool]) -> list[tuple[object, object]]:
    """Let merges end without a word when that is said of their range and part; return all tried."""
    tried: list[tuple[object, object]] = []
    for name in MERGES:
        module, _, attribute = name.rpartition(".")
        merge = getattr(compact_stage if module.endswith("compact") else compact_apart, attribute)

        def deadly(*args: Any, merge: Any = merge, **named: Any) -> Any:
            tried.append((named.get("span"), named.get("part")))
            if when(named.get("span"), named.get("part")):
                raise Crash
            return merge(*args, **named)

        patch.setattr(name, deadly)
    return tried


def drive(world: World, message: OutboundMessage, limit: int = 300) -> list[str]:
    """Deliver a message, and what follows, as often as SQS would; return the queues of all sent."""
    sent = []
    waiting = deque([(message, 0)])
    for _ in range(limit):
        waiting += ((each, 0) for each in world.queue)
        world.queue.clear()
        if not waiting:
            return sent
        outgoing, receives = waiting.popleft()
        sent.append(outgoing.queue)
        world.clock.advance(seconds=outgoing.delay_seconds)
        try:
            world.queue += world.deliver(outgoing)
        except Crash:
            assert receives + 1 < MAX_RECEIVES, f"{outgoing} would be a dead letter"
            waiting.append((outgoing, receives + 1))
    raise AssertionError("there is no end to it")
