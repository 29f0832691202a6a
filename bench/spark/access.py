"""How the executors of a measurement reach its shards and sources: as folders of this machine."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from bench.rows import instance as rows_instance
from dormouse.storage import FolderStorage
from dormouse_spark.access import Access

MEMORY_BYTES = 512 * 1024**2


@cache
def local(root: Path, scratch: Path) -> Access:
    """Return the access; all tasks of a process share it, as those of an instance do."""
    storage = FolderStorage(root)
    return Access(storage, storage, rows_instance.LocalSources(), scratch, MEMORY_BYTES)
