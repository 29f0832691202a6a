"""Sorted rows → shards: one for each leaf that has rows, checked, uploaded, or adopted.

`ingest` and `compact` call this. Nothing they are told about the order of rows is believed: every
row is compared with the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from dormouse.errors import CorruptDataError, InvariantError
from dormouse.model.keys import Key, show_key
from dormouse.model.names import shard_path
from dormouse.model.partitions import Partition
from dormouse.model.schema import Schema
from dormouse.model.shards import NewShard, Shard
from dormouse.ports import Storage
from dormouse.shards.ahead import ahead
from dormouse.shards.arrow import row_key
from dormouse.shards.footer import METADATA_KEY, ShardFooter, encode_footer, read_footer
from dormouse.shards.order import OrderCheck, rows_below
from dormouse.shards.parquet import ParquetFile
from dormouse.shards.samples import KeySampler


@dataclass(frozen=True, slots=True)
class ShardContext:
    """What the footers of a job's shards say beside their rows.

    `sources` are the ids of the sources of an ingest job, `inputs` the shards of a compaction.
    """

    table_id: str
    schema: Schema
    job: str
    sources: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


def write_shards(
    storage: Storage,
    sorted_batches: Iterable[pa.RecordBatch],
    context: ShardContext,
    leaves: Sequence[Partition],
    shard_id: Callable[[int], str],
    *,
    scratch: Path,
) -> list[NewShard]:
    """Write rows sorted by the keys to a shard per leaf that has any, in one pass.

    `leaves` are in key order and hold all the rows. Shards are called ``shard_id(0)``,
    ``shard_id(1)`` and so on. One that exists was written by another run of the job and is adopted.

    Raises:
        UnsortedRowsError: the rows are not sorted.
        CorruptDataError: a shard of the same name exists and holds something else.
    """
    with closing(ahead(_cut(sorted_batches, context, leaves))) as pieces:
        return [
            _write_shard(storage, context, leaf, (b for _, b in run), shard_id(number), scratch)
            for number, (leaf, run) in enumerate(groupby(pieces, key=lambda piece: piece[0]))
        ]


def _cut(
    sorted_batches: Iterable[pa.RecordBatch], context: ShardContext, leaves: Sequence[Partition]
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Check the order of rows and give them leaf by leaf."""
    check = OrderCheck(context.schema)
    remaining = iter(leaves)
    leaf: Partition | None = None
    for batch in sorted_batches:
        check.see(batch)
        start = 0
        while start < batch.num_rows:
            first = row_key(batch, start, context.schema)
            if leaf is None or not leaf.range.contains(first):
                leaf = _next_leaf(first, remaining, context)
            end = _end_of_leaf(batch, leaf, context.schema)
            yield leaf, batch.slice(start, end - start)
            start = end


def _next_leaf(first: Key, leaves: Iterator[Partition], context: ShardContext) -> Partition:
    for leaf in leaves:
        if leaf.range.contains(first):
            return leaf
    raise InvariantError(f"no leaf given to job {context.job} holds the key ({show_key(first)})")


def _end_of_leaf(batch: pa.RecordBatch, leaf: Partition, schema: Schema) -> int:
    """Give the number of the first row beyond `leaf`, which may be one past the last."""
    end = leaf.range.max
    if end is None or row_key(batch, batch.num_rows - 1, schema) < end:
        return batch.num_rows
    return rows_below(batch, end, schema)


def _write_shard(
    storage: Storage,
    context: ShardContext,
    leaf: Partition,
    batches: Iterable[pa.RecordBatch],
    shard_id: str,
    scratch: Path,
) -> NewShard:
    local = scratch / f"{shard_id}.parquet"
    try:
        footer = _write_local(local, context, leaf, batches, shard_id)
        path = shard_path(context.table_id, shard_id)
        if storage.upload(path, local):
            size_bytes = local.stat().st_size
        else:
            size_bytes = _adopt(storage, path, footer)
    finally:
        local.unlink(missing_ok=True)
    shard = Shard(shard_id, footer.rows, size_bytes, footer.min_key, footer.max_key)
    return NewShard(shard, ((leaf.id, footer.rows),))


def _write_local(
    local: Path,
    context: ShardContext,
    leaf: Partition,
    batches: Iterable[pa.RecordBatch],
    shard_id: str,
) -> ShardFooter:
    sampler = KeySampler(context.schema)
    with ParquetFile(local, context.schema) as file:
        for batch in batches:
            sampler.see(batch)
            file.write(batch)
        footer = ShardFooter(
            table_id=context.table_id,
            shard_id=shard_id,
            schema=context.schema,
            partition=leaf.id,
            job=context.job,
            sources=context.sources,
            inputs=context.inputs,
            rows=sampler.rows,
            min_key=sampler.min_key,
            max_key=sampler.max_key,
            samples=sampler.samples(),
        )
        file.close({METADATA_KEY: encode_footer(footer).decode()})
    return footer


def _adopt(storage: Storage, path: str, expected: ShardFooter) -> int:
    """Check that the shard at `path` is what was just written once more; give its size in bytes."""
    (stored,) = [found for found in storage.list(path) if found.path == path]
    found = read_footer(storage, path, stored.size_bytes)
    # not compared: the samples, nor the schema, which may have gained columns between two runs
    same = replace(expected, samples=found.samples, schema=found.schema)
    if found != same:
        raise CorruptDataError(
            f"{path} exists and does not hold what job {expected.job} made of the same inputs: "
            f"{found.rows} rows from ({show_key(found.min_key)}) to ({show_key(found.max_key)}), "
            f"not {expected.rows} from ({show_key(expected.min_key)}) "
            f"to ({show_key(expected.max_key)})"
        )
    return stored.size_bytes
