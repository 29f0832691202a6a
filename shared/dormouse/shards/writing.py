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
from dormouse.model.origins import Lineage, Origin
from dormouse.model.partitions import ROOT, Partition, PartitionTree
from dormouse.model.schema import Schema
from dormouse.model.shards import NewShard, Shard
from dormouse.ports import Storage
from dormouse.shards.ahead import ahead
from dormouse.shards.arrow import row_key
from dormouse.shards.footer import METADATA_KEY, ShardFooter, encode_footer, read_footer
from dormouse.shards.order import OrderCheck, rows_below
from dormouse.shards.parquet import ParquetFile
from dormouse.shards.samples import KeySampler

UNSPLIT = PartitionTree.of([Partition(ROOT)])


@dataclass(frozen=True, slots=True)
class ShardContext:
    """What the footers of a job's shards say beside their rows.

    `tree` has the leaves the shards are written for, `written_ms` is when the run began.
    """

    table_id: str
    schema: Schema
    job: str
    tree: PartitionTree = UNSPLIT
    written_ms: int = 0
    lineage: Lineage = Lineage()


class _Pieces:
    """Rows leaf by leaf, and whether that was all of them."""

    def __init__(self, pieces: Iterable[tuple[Partition, pa.RecordBatch]]) -> None:
        self._pieces = pieces
        self.ended = False

    def __iter__(self) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        yield from self._pieces
        self.ended = True


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
    shards = []
    with closing(ahead(_cut(sorted_batches, context, leaves))) as cut:
        pieces = _Pieces(cut)
        for number, (leaf, run) in enumerate(groupby(pieces, key=lambda piece: piece[0])):
            splits = context.tree.split_keys_above(leaf.id)
            origin = Origin(
                leaf.id, splits, context.job, context.written_ms, number, False, context.lineage
            )
            draft = _Draft(context, shard_id(number), origin)
            shards.append(_write_shard(storage, draft, (b for _, b in run), pieces, scratch))
    return shards


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


@dataclass(frozen=True, slots=True)
class _Draft:
    """A shard about to be written; whether it is the last of its run is not known yet."""

    context: ShardContext
    shard_id: str
    origin: Origin


def _write_shard(
    storage: Storage,
    draft: _Draft,
    batches: Iterable[pa.RecordBatch],
    pieces: _Pieces,
    scratch: Path,
) -> NewShard:
    local = scratch / f"{draft.shard_id}.parquet"
    try:
        footer = _write_local(local, draft, batches, pieces)
        path = shard_path(footer.table_id, footer.shard_id)
        if storage.upload(path, local):
            size_bytes = local.stat().st_size
        else:
            size_bytes = _adopt(storage, path, footer)
    finally:
        local.unlink(missing_ok=True)
    shard = Shard(draft.shard_id, footer.rows, size_bytes, footer.min_key, footer.max_key)
    return NewShard(shard, ((footer.origin.partition, footer.rows),))


def _write_local(
    local: Path, draft: _Draft, batches: Iterable[pa.RecordBatch], pieces: _Pieces
) -> ShardFooter:
    schema = draft.context.schema
    sampler = KeySampler(schema)
    with ParquetFile(local, schema) as file:
        for batch in batches:
            sampler.see(batch)
            file.write(batch)
        # After the last row of a leaf, the first one of the next was asked for.
        footer = ShardFooter(
            table_id=draft.context.table_id,
            shard_id=draft.shard_id,
            schema=schema,
            origin=replace(draft.origin, last=pieces.ended),
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
    # Not compared is what may differ between two runs: the samples, the schema, which may have
    # gained columns, the time, and what was still there of the shards before the inputs.
    inputs = expected.origin.lineage.inputs
    same = replace(
        expected,
        samples=found.samples,
        schema=found.schema,
        origin=replace(
            expected.origin,
            written_ms=found.origin.written_ms,
            lineage=replace(found.origin.lineage, inputs=inputs),
        ),
    )
    if found != same:
        raise CorruptDataError(
            f"{path} exists and does not hold what job {expected.origin.job} made of the same "
            f"inputs: {found.rows} rows from ({show_key(found.min_key)}) "
            f"to ({show_key(found.max_key)}), not {expected.rows} "
            f"from ({show_key(expected.min_key)}) to ({show_key(expected.max_key)})"
        )
    return stored.size_bytes
