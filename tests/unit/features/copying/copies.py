"""What the tests of copies share: a busy table to copy, and services that crash at a given call."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from dormouse.features.copying import CopyReport, copy_table
from dormouse.ports import Services
from dormouse.tables.table import Table
from tests.support.world import Crash, World, letters


def copy_to(world: World, table: Table, there: World, name: str = "copies") -> CopyReport:
    """Copy a table, and lose the messages that follow."""
    return copy_table(world.services, table, world.sources.bucket, there.services, name)[0]


def copied(world: World, table: Table, there: World, name: str = "copies") -> Table:
    """Copy a table, let the target work on it, and return the copy."""
    report, messages = copy_table(world.services, table, world.sources.bucket, there.services, name)
    there.queue += messages
    there.settle()
    return registered(there, report.table)


def registered(world: World, table: Table) -> Table:
    found = world.tables.get(table.id)
    assert found is not None
    return found


def busy_table(world: World) -> Table:
    """Return a table with partitions, merged and sealed parts, and two shards in both leaves."""
    table = world.create(
        splits=[("h",)], compaction_files=3, compaction_strategy="batch", gc_delay_seconds=60
    )
    for i in range(7):
        world.drop(f"letters/{i}.parquet", letters("abcxyz"[: i + 3], at=10 * i))
    world.settle()
    world.seal(table)
    world.drop("letters/8.parquet", letters("hijq", at=100))
    while world.queue:  # no compaction takes the last one
        world.deliver(world.queue.popleft())
    return table


@dataclass
class Fuse:
    """Ends the process before or after a certain call that changes something."""

    left: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    def step(self) -> None:
        with self.lock:
            self.left -= 1
            if self.left < 0:
                raise Crash


class Fused:
    """Calls another object; those that change something burn the fuse."""

    CHANGES = ("put", "upload", "delete", "create", "commit", "destroy")

    def __init__(self, inner: object, fuse: Fuse) -> None:
        self._inner, self._fuse = inner, fuse

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if name not in self.CHANGES:
            return inner

        def call(*args: Any, **named: Any) -> Any:
            self._fuse.step()
            result = inner(*args, **named)
            self._fuse.step()
            return result

        return call


def fused(services: Services, fuse: Fuse) -> Services:
    return replace(
        services,
        storage=Fused(services.storage, fuse),  # type: ignore[arg-type]
        tables=Fused(services.tables, fuse),  # type: ignore[arg-type]
        store=cache(lambda table: Fused(services.store(table), fuse)),  # type: ignore[arg-type]
    )
