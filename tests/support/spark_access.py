"""How Spark's executors reach a world: they are processes of their own and are sent copies."""

from __future__ import annotations

from dormouse_spark.access import Access
from tests.support.world import World


class WorldAccess:
    """The storages of a world, and its sources as they are when a task is sent."""

    def __init__(self, world: World, memory_bytes: int = 64 * 1024 * 1024) -> None:
        services = world.services
        self.access = Access(
            world.storage, world.results, services.sources, services.scratch, memory_bytes
        )

    def __call__(self) -> Access:
        return self.access
