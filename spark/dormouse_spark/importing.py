"""The tasks of a bulk import: read and sort files, and write the rows of a range of keys to shards.

They run on executors, and do not read the state.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from dormouse.arrow.types import halved
from dormouse.errors import RefusedSourceError
from dormouse.features.compaction_steps import KeyTask
from dormouse.files.change_data import Emptied
from dormouse.files.loader import load_sources, loaded_schema, loader_of, ruled_rows
from dormouse.files.rejects import RejectedRows
from dormouse.keys import Key, KeyHistogram
from dormouse.rows.sorting import Sorter
from dormouse.shards.parquet import KeySampler
from dormouse.shards.writer import ShardContext, write_shards
from dormouse.state.partitions import NewShard
from dormouse.state.sources import Source
from dormouse.stored.paths import make_shard_id
from dormouse.tables.table import Table
from dormouse_spark.access import Access, new_file
from dormouse_spark.blocks import (
    BLOCKS_IN_MEMORY,
    RowBlock,
    Spool,
    route_rows,
    store_rows,
    stored_rows,
)

SAMPLE_BYTES = 128
"""The average size of a sampled key, at most."""


@dataclass(frozen=True, slots=True)
class FileOrder:
    """All files of an import: the places of their keys in it, and whether their rows are read with
    row tags.
    """

    places: Mapping[str, int]
    tagged: bool


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of a reading task: valid and invalid files, which rows were left out, whether the
    source emptied its table, the distribution of the rows, and the file of its executor with them.
    """

    accepted: tuple[Source, ...]
    refused: tuple[tuple[Source, RefusedSourceError], ...]
    rejected: tuple[RejectedRows, ...]
    emptied: Emptied | None
    rows: int
    size_bytes: int
    keys: KeyHistogram
    path: Path


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a writing task: the rows that it received, and its shards.

    The shards may have fewer rows, because of the table's filters and aggregations.
    """

    rows: int
    shards: tuple[NewShard, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The input of the writing tasks: `tasks` assigns ranges of keys, in key order. `tagged` rows
    were read with their row tags. Each task has as many ids of rows as there are `rows`.
    """

    table: Table
    run: str
    context: ShardContext
    tasks: tuple[KeyTask, ...]
    emptied: Emptied | None = None
    tagged: bool = False
    first_row_id: int = 0
    rows: int = 0

    def row_ids(self, part: int) -> Callable[[int], int]:
        """Return what gives the rows of a task their ids, the same ones each time it runs."""
        following = self.first_row_id + part * self.rows

        def reserve(rows: int) -> int:
            nonlocal following
            following += rows
            return following - rows

        return reserve


def read_sources(
    access: Access,
    table: Table,
    samples: int,
    task: int,
    sources: Iterable[Source],
    order: FileOrder,
) -> ReadResult:
    """Write the rows of the valid files among `sources`, sorted, to a file of this executor."""
    accepted: list[Source] = []
    refused: list[tuple[Source, RefusedSourceError]] = []
    sampler = KeySampler(table.schema, samples, samples * SAMPLE_BYTES)
    with tempfile.TemporaryDirectory(dir=access.scratch) as folder:
        memory_bytes = access.memory_bytes
        loader = loader_of(
            table,
            access.storage,
            Path(folder),
            memory_bytes=memory_bytes,
            order=order.places,
            tagged=order.tagged,
            keys=access.keys,
        )
        with closing(load_sources(access.sources, loader, sources, Path(folder))) as loaded:
            for source, refusal in loaded:
                if refusal is None:
                    accepted.append(source)
                else:
                    refused.append((source, refusal))
        rows = _sampled(loader.sorter.sorted_rows(), sampler, memory_bytes // BLOCKS_IN_MEMORY)
        path = new_file(access, task)
        store_rows(path, rows, loaded_schema(table, tagged=order.tagged))
    return ReadResult(
        tuple(accepted),
        tuple(refused),
        tuple(loader.rejected),
        loader.emptied,
        sampler.rows,
        loader.sorter.size_bytes,
        sampler.keys(),
        path,
    )


def _sampled(
    batches: Iterable[pa.RecordBatch], sampler: KeySampler, block_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield batches in blocks of about `block_bytes`, after `sampler` has seen them."""
    for batch in batches:
        sampler.see(batch)
        yield from halved(batch, block_bytes)


def route_reads(
    access: Access,
    table: Table,
    task: int,
    reads: Iterable[ReadResult],
    cuts: Sequence[Key],
    order: FileOrder,
) -> Iterator[tuple[int, RowBlock]]:
    """Yield the rows that a reading task stored, with the numbers of their key ranges.

    Spark prefers the executor that has them. Elsewhere, or a second time, the files are read again.
    """
    for read in reads:
        path = read.path
        if not path.exists():
            path = read_sources(access, table, 1, task, read.accepted, order).path
        columns = loaded_schema(table, tagged=order.tagged)
        yield from route_rows(task, stored_rows(path), cuts, columns)


def write_range(access: Access, plan: Plan, part: int, blocks: Iterable[RowBlock]) -> WriteResult:
    """Write the rows of one range of keys to shards.

    The order in which blocks arrive does not matter: if Spark runs a task twice, both runs make the
    same shards, and the second adopts those of the first.
    """
    table = plan.table
    with (
        tempfile.TemporaryDirectory(dir=access.scratch) as name,
        closing(Spool(Path(name) / "blocks", access.memory_bytes // 2)) as spool,
    ):
        folder = Path(name)
        for block in blocks:
            spool.add(block)
        schema = loaded_schema(table, tagged=plan.tagged)
        sorter = Sorter(schema, folder, memory_bytes=access.memory_bytes)
        for stream in spool.streams(schema):
            sorter.add_sorted(stream)
        context = replace(plan.context, part=part)
        shards = write_shards(
            access.storage,
            ruled_rows(
                sorter.sorted_rows(),
                table,
                context.written_ms,
                schema,
                context.schema,
                plan.emptied,
                plan.row_ids(part),
            ),
            context,
            plan.tasks[part].leaves,
            lambda n: make_shard_id(plan.run, n),
            scratch=folder,
            target_bytes=table.properties.shard_target_bytes,
        )
    return WriteResult(sorter.rows, tuple(shards))
