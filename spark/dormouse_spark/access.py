"""What the tasks of a job use of an instance, and how executors open it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TypeAlias

from dormouse.encryption import FILES, KeyService, NoKeys
from dormouse.ports import Cache, Services, Sources, Storage
from dormouse.settings import Settings
from dormouse.tables.table import Table


@dataclass(frozen=True, slots=True)
class Access:
    """The buckets, and the resources of a task's machine. Only the driver reads the state.

    `indexes` are those that the tasks of a process have read of the inputs of a compaction: each
    task merges a range of keys of all inputs. Files stay in `local_folders` until the executor
    ends: in those that Spark tells each of its workers, if none are given.
    """

    storage: Storage
    results: Storage
    sources: Sources
    scratch: Path
    memory_bytes: int
    indexes: Cache = field(default_factory=Cache)
    local_folders: tuple[Path, ...] = ()
    keys: KeyService = NoKeys()

    @property
    def cache(self) -> Cache:
        """A new cache for each query: a task reads each shard once, so none is kept longer."""
        return Cache()

    def newest_version(self, table: Table) -> int | None:
        """Return that it is not known: only the driver reads the state."""
        return None


AccessFactory: TypeAlias = Callable[[], Access]
"""Opens the access in a process. It is sent to executors, so it must be small and picklable."""


@dataclass(frozen=True, slots=True)
class FilesAccess:
    """Opens the access of what answers by files: it has no keys of encrypted columns."""

    open_access: AccessFactory

    def __call__(self) -> Access:
        """Return the access."""
        return replace(self.open_access(), keys=FILES)


@dataclass(frozen=True, slots=True)
class InstanceAccess:
    """Opens the instance that `settings` name, including its account."""

    settings: Settings

    def __call__(self) -> Access:
        """Return the access; all tasks of a process share it."""
        return _open(self.settings)


@contextmanager
def opened(settings: Settings) -> Iterator[tuple[Services, InstanceAccess]]:
    """Open the instance that `settings` name for a driver, on AWS or in a folder.
    Raises NotFoundError: there is no instance in the folder.
    """
    if settings.folder is None:
        from dormouse.aws.wiring import wire

        wiring = wire(settings)
        yield wiring.services, InstanceAccess(wiring.settings)
        return
    from dormouse.folder.wiring import open_folder

    settings = replace(settings, folder=settings.folder.absolute())  # executors may be elsewhere
    assert settings.folder is not None
    instance = open_folder(
        settings.folder,
        memory_bytes=settings.memory_bytes,
        scratch=settings.scratch,
        background=False,
        create=False,
    )
    try:
        yield instance.services, InstanceAccess(settings)
    finally:
        instance.close()


def new_file(access: Access, task: int) -> Path:
    """Return a new file for a task in a folder that Spark deletes when its executor ends.

    No other executor has a file with the same path, also not on another machine.
    """
    folders = access.local_folders or os.environ["SPARK_LOCAL_DIRS"].split(",")
    folder = folders[task % len(folders)]
    with tempfile.NamedTemporaryFile(dir=folder, prefix="dormouse-", delete=False) as file:
        return Path(file.name)


@cache
def _open(settings: Settings) -> Access:
    scratch = Path(tempfile.gettempdir())
    if settings.folder is not None:
        from dormouse.folder.wiring import files_of, keys_of

        files, keys = files_of(settings.folder), keys_of(settings.folder)
        return Access(*files, scratch, settings.memory_bytes, keys=keys)
    from dormouse.aws.wiring import wire

    services = wire(replace(settings, scratch=scratch)).services
    return Access(
        services.storage,
        services.results,
        services.sources,
        services.scratch,
        services.memory_bytes,
        keys=services.keys,
    )
