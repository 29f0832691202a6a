"""What the tasks of a job need of an instance, and how they come by it on another machine."""

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
    """The buckets, and what a task may use of its machine. Only the driver knows the state."""

    storage: Storage
    results: Storage
    sources: Sources
    scratch: Path
    memory_bytes: int

    @property
    def cache(self) -> Cache:
        """What is kept of what a process read: nothing, since a task reads each shard once."""
        return Cache(0)


AccessFactory: TypeAlias = Callable[[], Access]
"""Gives a process its access. It is sent to the executors, so it must be small and picklable."""


@dataclass(frozen=True, slots=True)
class InstanceAccess:
    """Reaches the instance that `settings` name, the account included."""

    settings: Settings

    def __call__(self) -> Access:
        """Return the access, the same for all tasks of a process."""
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
