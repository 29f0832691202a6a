"""What the tasks of a job use of an instance, and how executors open it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TypeAlias

from dormouse.aws.wiring import wire
from dormouse.cache import Cache
from dormouse.ports import Sources, Storage
from dormouse.settings import Settings


@dataclass(frozen=True, slots=True)
class Access:
    """The buckets, and the resources of a task's machine. Only the driver reads the state."""

    storage: Storage
    results: Storage
    sources: Sources
    scratch: Path
    memory_bytes: int

    @property
    def cache(self) -> Cache:
        """A new cache for each query: a task reads each shard once, so none is kept longer."""
        return Cache()


AccessFactory: TypeAlias = Callable[[], Access]
"""Opens the access in a process. It is sent to executors, so it must be small and picklable."""


@dataclass(frozen=True, slots=True)
class InstanceAccess:
    """Opens the instance that `settings` name, including its account."""

    settings: Settings

    def __call__(self) -> Access:
        """Return the access; all tasks of a process share it."""
        return _open(self.settings)


@cache
def _open(settings: Settings) -> Access:
    services = wire(replace(settings, scratch=Path(tempfile.gettempdir()))).services
    return Access(
        services.storage,
        services.results,
        services.sources,
        services.scratch,
        services.memory_bytes,
    )
