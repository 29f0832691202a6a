"""An instance over a local folder, so that the real stages are what is measured.

The instance is the one of the tests, made in each process, but for its shards, which are in
the folder. So the repository must be on the path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from dormouse.errors import InvariantError
from dormouse.features.administration import administer
from dormouse.features.ingest import ingest
from dormouse.features.rebuild import rebuild
from dormouse.messages.requests import CreateTable
from dormouse.messages.stages import CompactionJob, IngestJob
from dormouse.ports import Arrived, Services, Sources, Storage
from dormouse.schema.schema import Schema
from dormouse.state.sources import Source, job_id_of
from dormouse.state.state import AssignJob
from dormouse.storage import FolderStorage
from dormouse.tables.table import Table
from tests.support.world import World

TABLE = "rows"


class LocalSources:
    """Local files as dropped ones: a source's key ends with the path. Downloading is a link."""

    def download(self, source: Source, local: Path, arrived: Arrived | None = None) -> None:
        local.symlink_to(source.key.partition("/")[2])

    def list(self, prefix: str, *, since_ms: int) -> Iterator[Source]:
        """Return nothing: a benchmark names its files."""
        yield from ()

    def remove(self, source: Source) -> None:
        """Leave the file."""


def services(
    storage: Storage, scratch: Path, memory_bytes: int, seed: int, sources: Sources | None = None
) -> Services:
    """Return services that keep shards in `storage` and spill to `scratch`.

    Another seed makes other ids: a process must not use those of the one that made its input.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    world = World(Path(mkdtemp(dir=scratch)))
    world.ids.count = seed * 10**6
    return replace(
        world.services,
        storage=storage,
        sources=sources or LocalSources(),
        scratch=scratch,
        memory_bytes=memory_bytes,
    )


def fresh(maker: Services, storage: Storage, scratch: Path, memory_bytes: int) -> Services:
    """Return services that know the same tables, but have read nothing of them yet.

    Those that made the state have read every footer.
    """
    made = services(storage, scratch, memory_bytes, seed=9)
    return replace(made, tables=maker.tables, store=maker.store)


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
    (table,) = given.tables.all()
    return table


def ingest_files(given: Services, files: Sequence[Path]) -> None:
    ingest_sources(
        given, [Source("local", f"{TABLE}/{f}", f.name, f.stat().st_size) for f in files]
    )


def ingest_sources(given: Services, sources: Sequence[Source]) -> None:
    """Ingest dropped files in one job.

    Raises:
        InvariantError: one was refused.
    """
    table = table_of(given)
    generation = given.store(table).current().generation
    job = IngestJob(table.id, generation, job_id_of(tuple(sources)), tuple(sources))
    ingest(given, job)
    for record in given.tracker.records(table.id):
        if record.state in ("failed", "refused"):
            raise InvariantError(f"{record.subject} was {record.state}: {record.reason}")


def reopened(given: Services, schema: Schema) -> Table:
    """Return the table of shards that another process wrote, with a state rebuilt from them."""
    rebuild(given, create(given, schema))
    return table_of(given)


def linked(shards: Sequence[Path], root: Path) -> FolderStorage:
    """Return a storage in a new folder that holds links to shards elsewhere."""
    for shard in shards:
        at = root / shard.relative_to(shard.parents[2])
        at.parent.mkdir(parents=True, exist_ok=True)
        at.symlink_to(shard)
    return FolderStorage(root)


def unlink(shards: Sequence[Path], root: Path) -> None:
    """Delete the links that `linked` made: what a job leaves is not its output."""
    for shard in shards:
        (root / shard.relative_to(shard.parents[2])).unlink()


def assigned(
    shards: Sequence[Path], schema: Schema, root: Path, scratch: Path, memory_bytes: int
) -> tuple[Services, CompactionJob]:
    """Return services of a table of linked shards, and the job that makes one of them all."""
    given = services(linked(shards, root), scratch, memory_bytes, seed=2)
    table = reopened(given, schema)
    state = given.store(table).current()
    job = AssignJob(given.ids.new(), "root", tuple(state.shards))
    given.store(table).commit(job, generation=state.generation)
    return given, CompactionJob(table.id, state.generation, job.job)
