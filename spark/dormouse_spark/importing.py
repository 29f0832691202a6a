"""The tasks of a bulk import: read and sort files, and write the rows of a range of keys to shards.

They run on executors, and do not read the state.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from dormouse.engine.row_rules import apply_row_rules
from dormouse.engine.sorting import Sorter
from dormouse.errors import RefusedSourceError
from dormouse.features.compaction.slicing import KeyTask
from dormouse.keys.histogram import KeyHistogram
from dormouse.model.shards import NewShard
from dormouse.model.sources import Source
from dormouse.schema.schema import Schema
from dormouse.shards.samples import KeySampler
from dormouse.shards.writing import ShardContext, write_shards
from dormouse.sources.loader import SourceLoader, load_sources
from dormouse.stored.paths import make_shard_id
from dormouse.tables.csv_dialect import csv_dialect
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table
from dormouse_spark.access import Access
from dormouse_spark.blocks import BLOCKS_IN_MEMORY, Block, Spool, blocks

SAMPLE_BYTES = 128
"""The average size of a sampled key, at most."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The last item that a reading task yields: valid and invalid files,
    and the distribution of the rows.
    """

    accepted: tuple[Source, ...]
    refused: tuple[tuple[Source, RefusedSourceError], ...]
    rows: int
    size_bytes: int
    keys: KeyHistogram


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a writing task: the rows that it received, and its shards.

    The shards may have fewer rows, because of the table's filters and aggregations.
    """

    rows: int
    shards: tuple[NewShard, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The input of the writing tasks: `tasks` assigns ranges of keys, in key order."""

    table: Table
    run: str
    context: ShardContext
    tasks: tuple[KeyTask, ...]


def read_sources(
    access: Access, table: Table, samples: int, task: int, sources: Iterable[Source]
) -> Iterator[Block | ReadResult]:
    """Yield the rows of the valid files among `sources`, sorted, and at the end a `ReadResult`."""
    accepted: list[Source] = []
    refused: list[tuple[Source, RefusedSourceError]] = []
    sampler = KeySampler(table.schema, samples, samples * SAMPLE_BYTES)
    with tempfile.TemporaryDirectory(dir=access.scratch) as folder:
        loader = SourceLoader(
            table.schema,
            Path(folder),
            memory_bytes=access.memory_bytes,
            dialect=csv_dialect(table.properties),
        )
        with closing(load_sources(access.sources, loader, sources, Path(folder))) as loaded:
            for source, refusal in loaded:
                if refusal is None:
                    accepted.append(source)
                else:
                    refused.append((source, refusal))
        rows = _sampled(loader.sorted_rows(), sampler)
        yield from blocks(task, rows, access.memory_bytes // BLOCKS_IN_MEMORY)
    yield ReadResult(
        tuple(accepted), tuple(refused), sampler.rows, loader.size_bytes, sampler.keys()
    )


def _sampled(batches: Iterable[pa.RecordBatch], sampler: KeySampler) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sampler.see(batch)
        yield batch


def write_range(access: Access, plan: Plan, part: int, found: Iterable[Block]) -> WriteResult:
    """Write the rows of one range of keys to shards.

    The order in which blocks arrive does not matter: if Spark runs a task twice, both runs make the
    same shards, and the second adopts those of the first.
    """
    table = plan.table
    with tempfile.TemporaryDirectory(dir=access.scratch) as name:
        folder = Path(name)
        sorter = Sorter(table.schema, folder, memory_bytes=access.memory_bytes)
        rows = 0
        for batch in _spooled(found, table.schema, folder / "blocks"):
            rows += batch.num_rows
            sorter.add(batch)
            if sorter.held_bytes > access.memory_bytes // 2:
                sorter.spill()
        rules = row_rules(table.schema, table.properties)
        context = replace(plan.context, part=part)
        shards = write_shards(
            access.storage,
            apply_row_rules(sorter.sorted_rows(), table.schema, rules, context.written_ms),
            context,
            plan.tasks[part].leaves,
            lambda n: make_shard_id(plan.run, n),
            scratch=folder,
            target_bytes=table.properties.shard_target_bytes,
        )
    return WriteResult(rows, tuple(shards))


def _spooled(found: Iterable[Block], schema: Schema, path: Path) -> Iterator[pa.RecordBatch]:
    spool = Spool(path)
    try:
        for block in found:
            spool.add(block)
        for block in spool:
            yield block.batch(schema)
    finally:
        spool.close()
        path.unlink()
