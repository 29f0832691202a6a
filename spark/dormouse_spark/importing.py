"""The tasks of a bulk import: files are read and sorted, rows go to ranges of keys, and to shards.

They run on executors, and know nothing of the state.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
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
from dormouse.sources.loader import SourceLoader, load_source
from dormouse.stored.paths import make_shard_id
from dormouse.tables.csv_dialect import csv_dialect
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table
from dormouse_spark.access import Access
from dormouse_spark.blocks import BLOCKS_IN_MEMORY, Block, Spool, blocks

SAMPLE_BYTES = 128
"""What the key of a sample may take, on average."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a task that reads tells at its end: good and bad files, and what their rows are like."""

    accepted: tuple[Source, ...]
    refused: tuple[tuple[Source, RefusedSourceError], ...]
    rows: int
    size_bytes: int
    keys: KeyHistogram


@dataclass(frozen=True, slots=True)
class WriteResult:
    """What a task that writes tells: the rows that came to it, and its shards, which may have fewer
    rows for the table's rules.
    """

    rows: int
    shards: tuple[NewShard, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the tasks that write need: `tasks` says who writes which keys, in key order."""

    table: Table
    run: str
    context: ShardContext
    tasks: tuple[KeyTask, ...]


def read_sources(
    access: Access, table: Table, samples: int, task: int, sources: Iterable[Source]
) -> Iterator[Block | ReadResult]:
    """Return the rows of the good ones of some files, sorted, and what is told of them at the
    end."""
    accepted: list[Source] = []
    refused: list[tuple[Source, RefusedSourceError]] = []
    sampler = KeySampler(table.schema, samples, samples * SAMPLE_BYTES)
    with tempfile.TemporaryDirectory(dir=access.scratch) as folder:
        intake = SourceLoader(
            table.schema,
            Path(folder),
            memory_bytes=access.memory_bytes,
            dialect=csv_dialect(table.properties),
        )
        for source in sources:
            try:
                load_source(access.sources, intake, source, Path(folder))
            except RefusedSourceError as error:
                refused.append((source, error))
            else:
                accepted.append(source)
        rows = _sampled(intake.sorted_rows(), sampler)
        yield from blocks(task, rows, access.memory_bytes // BLOCKS_IN_MEMORY)
    yield ReadResult(
        tuple(accepted), tuple(refused), sampler.rows, intake.size_bytes, sampler.keys()
    )


def _sampled(batches: Iterable[pa.RecordBatch], sampler: KeySampler) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        sampler.see(batch)
        yield batch


def write_range(access: Access, plan: Plan, part: int, found: Iterable[Block]) -> WriteResult:
    """Write the rows of one range of keys to shards.

    A task that Spark runs twice writes the same shards twice, for the order in which blocks come
    does not matter; so the second adopts what the first has written.
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
