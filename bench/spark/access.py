"""How the executors of a measurement reach its shards and sources: as folders of this machine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.rows import instance as rows_instance
from dormouse.storage import FolderStorage
from dormouse_spark.access import Access

MEMORY_BYTES = 512 * 1024**2


@dataclass(frozen=True, slots=True)
class LocalAccess:
    """Opens the folder of an instance's shards; sources are local files."""

    root: Path
    scratch: Path

    def __call__(self) -> Access:
        """Return the access; all tasks of a process share it, as those of an instance do."""
        return _open(self)


@cache
def _open(reach: LocalAccess) -> Access:
    storage = FolderStorage(reach.root)
    return Access(storage, storage, rows_instance.LocalSources(), reach.scratch, MEMORY_BYTES)
