"""An instance over a local folder, so that the real stages are what is measured.

The registry and the state are in memory and are made anew in each process; shards are in the
folder. The adapters in memory are those of the tests, so the repository must be on the path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from dormouse.errors import InvariantError
from dormouse.messages import IngestJob
from dormouse.model.schema import Schema
from dormouse.model.sources import Source, job_id_of
from dormouse.model.tables import Table
from dormouse.ports import Services, Storage
from dormouse.requests import CreateTable
from dormouse.stages.administer import administer
from dormouse.stages.ingest import ingest
from dormouse.stages.rebuild import rebuild
from dormouse.statestore.memory_pages import MemoryPages
from dormouse.statestore.s3 import S3StateStore
from dormouse.storage import FolderStorage, MemoryStorage
from tests.support.adapters import MemoryTables, MemoryTracker
from workload import Clock, Ids

TABLE = "rows"


class LocalSources:
    """Local files as dropped ones: a source's key ends with the path. Downloading is a link."""

    def download(self, source: Source, local: Path) -> None:
        """Make the file appear at `local`."""
        local.symlink_to(source.key.partition("/")[2])

    def list(self, table_name: str, *, since_ms: int) -> Iterator[Source]:
        """Give nothing: a benchmark names its files."""
        yield from ()


def services(storage: Storage, scratch: Path, memory_bytes: int, seed: int) -> Services:
    """Give services that keep shards in `storage` and spill to `scratch`."""
    scratch.mkdir(parents=True, exist_ok=True)
    clock, pages, states = Clock(), MemoryPages(), MemoryStorage()
    ids = Ids(clock, seed)
    return Services(
        tables=MemoryTables(),
        tracker=MemoryTracker(),
        storage=storage,
        sources=LocalSources(),
        store=cache(lambda table: S3StateStore(table.state_id, states, pages, clock, ids)),
        clock=clock,
        ids=ids,
        scratch=scratch,
        memory_bytes=memory_bytes,
    )


def create(given: Services, schema: Schema, splits: Sequence[str] = ()) -> Table:
    """Create the table; one ingest writes one shard for each leaf, whatever the pieces' size."""
    request = CreateTable(
        "create",  # which the table's id follows from: it is the same in every process
        TABLE,
        schema.to_json(),
        {"ingest_file_strategy": "one_file_per_leaf"},
        tuple((point,) for point in splits),
    )
    administer(given, request)
    return table_of(given)


def table_of(given: Services) -> Table:
    """Give the table as the registry has it."""
    (table,) = given.tables.all()
    return table


def ingest_files(given: Services, files: Sequence[Path]) -> None:
    """Ingest files in one job.

    Raises:
        InvariantError: one was refused.
    """
    table = table_of(given)
    sources = tuple(Source("local", f"{TABLE}/{f}", f.name, f.stat().st_size) for f in files)
    ingest(given, IngestJob(table.id, job_id_of(sources), sources))
    for record in given.tracker.records(table.id):
        if record.state in ("failed", "refused"):
            raise InvariantError(f"{record.subject} was {record.state}: {record.reason}")


def reopened(given: Services, schema: Schema) -> Table:
    """Give the table of shards that another process wrote, its state made anew from them."""
    rebuild(given, create(given, schema))
    return table_of(given)


def linked(shards: Sequence[Path], root: Path) -> FolderStorage:
    """Give a storage in a new folder that holds links to shards elsewhere."""
    for shard in shards:
        at = root / shard.relative_to(shard.parents[2])
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(shard)
    return FolderStorage(root)
