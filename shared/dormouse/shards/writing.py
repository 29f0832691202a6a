"""Sorted rows → shards: cut at leaves and at a size, checked, uploaded, or adopted.

`ingest` and `compact` call this. Nothing they are told about the order of rows is believed: every
row is compared with the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from dormouse.arrow.order import OrderCheck, row_span, rows_below
from dormouse.arrow.types import row_key
from dormouse.errors import InvariantError
from dormouse.keys.ranges import Key
from dormouse.model.partitions import Partition
from dormouse.model.shards import NewShard
from dormouse.ports import Storage
from dormouse.readahead import read_ahead
from dormouse.schema.schema import Schema
from dormouse.shards.shard_writer import ShardContext, ShardWriter
from dormouse.stored.names import part_shard_number

__all__ = ["ShardContext", "write_shards"]

TARGET_BYTES = 512 * 1024 * 1024


def write_shards(
    storage: Storage,
    sorted_batches: Iterable[pa.RecordBatch],
    context: ShardContext,
    leaves: Sequence[Partition],
    shard_id: Callable[[int], str],
    *,
    scratch: Path,
    target_bytes: int = TARGET_BYTES,
    spanning: bool = False,
) -> list[NewShard]:
    """Write rows sorted by the keys to shards, in one pass: a run.

    `leaves` are in key order and hold all the rows. A shard ends before the next leaf, unless it
    may be `spanning` leaves: then it counts its rows in each. A shard also ends before the next row
    key once `target_bytes` of it are written. Shards are called ``shard_id(0)``, ``shard_id(1)``
    and so on, by the numbers of the part of a run that `context` says. One that exists was written
    by another run of the job and is adopted.

    Raises:
        UnsortedRowsError: the rows are not sorted.
        AlreadyExistsError: a shard of the same name exists and holds something else.
        CorruptDataError: an object of the same name exists and is no shard.
    """
    with ThreadPoolExecutor(1) as uploads:
        run = _RunWriter(storage, context, shard_id, scratch, target_bytes, spanning, uploads)
        try:
            with closing(read_ahead(_cut(sorted_batches, context, leaves))) as pieces:
                for leaf, batch in pieces:
                    run.write(leaf, batch)
            return run.finish()
        finally:
            run.discard()


class _RunWriter:
    """The shards of one run; the one before is uploaded while the next gets its rows."""

    def __init__(
        self,
        storage: Storage,
        context: ShardContext,
        shard_id: Callable[[int], str],
        scratch: Path,
        target_bytes: int,
        spanning: bool,
        uploads: ThreadPoolExecutor,
    ) -> None:
        self._storage = storage
        self._context = context
        self._shard_id = shard_id
        self._scratch = scratch
        self._target_bytes = target_bytes
        self._spanning = spanning
        self._uploads = uploads
        self._uploaded: list[Future[NewShard]] = []
        self._draft: ShardWriter | None = None

    def write(self, leaf: Partition, batch: pa.RecordBatch) -> None:
        """Add rows of one leaf."""
        while batch.num_rows:
            draft = self._draft
            taken = 0 if draft is None else self._room(draft, leaf, batch)
            if draft is None or not taken:
                self._end_shard(last=False)
                draft = self._draft = self._begin_shard()
                taken = min(draft.room, batch.num_rows)
            draft.write(leaf, batch.slice(0, taken))
            batch = batch.slice(taken)

    def finish(self) -> list[NewShard]:
        """Return all shards, when all are uploaded."""
        self._end_shard(last=True)
        return [shard.result() for shard in self._uploaded]

    def discard(self) -> None:
        """Leave nothing in scratch of a shard that was not finished."""
        if self._draft is not None:
            self._draft.discard()

    def _room(self, draft: ShardWriter, leaf: Partition, batch: pa.RecordBatch) -> int:
        """Return how many of the first rows of `batch` go into the shard that is being written."""
        if not self._spanning and not draft.holds_rows_of(leaf):
            return 0
        if draft.size_bytes < self._target_bytes:
            return min(draft.room, batch.num_rows)
        return row_span(batch, draft.last_key, self._context.schema)[1]

    def _begin_shard(self) -> ShardWriter:
        number = part_shard_number(self._context.part or 0, len(self._uploaded))
        return ShardWriter(self._context, self._shard_id(number), number, self._scratch)

    def _end_shard(self, *, last: bool) -> None:
        if self._draft is None:
            return
        if self._uploaded:
            self._uploaded[-1].result()  # in order, and no more than two of them in scratch
        written = self._draft.finish(last=last and self._context.part is None)
        self._draft = None
        self._uploaded.append(self._uploads.submit(written.publish, self._storage))


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
    raise InvariantError(f"no leaf given to job {context.job} holds the key of one of its rows")


def _end_of_leaf(batch: pa.RecordBatch, leaf: Partition, schema: Schema) -> int:
    """Return the number of the first row beyond `leaf`, which may be one past the last."""
    end = leaf.range.max
    if end is None or row_key(batch, batch.num_rows - 1, schema) < end:
        return batch.num_rows
    return rows_below(batch, end, schema)
