"""Divide sorted rows into shards, by leaves and by size; check their order, and upload them.

Used by ingest and compaction. The claimed order of the rows is not trusted: every row is compared
with the row before it.

A shard is sent in parts while its rows are written, and becomes an object after its last row, while
the next shards are written. The rows of a merge come from bytes that were verified, so nothing that
was not verified is in an object. If the rows end with an error, the upload of the current shard is
aborted. An upload that fails ends the run at its next batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from dormouse.arrow.order import OrderCheck, row_span, rows_below
from dormouse.errors import InvariantError
from dormouse.key_forms.arrow import row_key
from dormouse.keys.ranges import encode_key
from dormouse.model.partitions import Partition
from dormouse.model.shards import NewShard
from dormouse.ports.services import Storage
from dormouse.readahead import read_ahead
from dormouse.schema.schema import Schema
from dormouse.shards.writing.publishing import ShardPublisher
from dormouse.shards.writing.shard_writer import ShardContext, ShardWriter
from dormouse.stored.paths import part_shard_number

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
    at_the_end: Callable[[], object] | None = None,
) -> list[NewShard]:
    """Write rows sorted by the keys to shards, in one pass: a run.

    `leaves` are in key order, and contain all rows. A shard ends at the end of its leaf; if it may
    be `spanning` leaves, it continues and counts its rows in each. A shard also ends before the
    next row key once `target_bytes` of it are written, or as many column chunks as it may have. The
    shards are named ``shard_id(0)``, ``shard_id(1)`` and so on, within the numbers of the `part` of
    the run that `context` names. A shard that exists was written by another run of the job, and is
    adopted. `at_the_end` is called while the shard that ends the run is published, and what it
    raises is raised.

    Raises:
        UnsortedRowsError: the rows are not sorted.
        AlreadyExistsError: a shard of the same name exists with other content.
        CorruptDataError: an object of the same name exists and is not a shard.
    """
    with closing(ShardPublisher(storage, at_the_end)) as publisher:
        run = _RunWriter(storage, context, shard_id, scratch, target_bytes, spanning, publisher)
        try:
            with closing(read_ahead(_by_leaf(sorted_batches, context, leaves))) as pieces:
                for leaf, batch in pieces:
                    run.write(leaf, batch)
            return run.finish()
        finally:
            run.discard()


class _RunWriter:
    """Writes the shards of one run; those that are complete are published meanwhile."""

    def __init__(
        self,
        storage: Storage,
        context: ShardContext,
        shard_id: Callable[[int], str],
        scratch: Path,
        target_bytes: int,
        spanning: bool,
        publisher: ShardPublisher,
    ) -> None:
        self._storage = storage
        self._context = context
        self._shard_id = shard_id
        self._scratch = scratch
        self._target_bytes = target_bytes
        self._spanning = spanning
        self._publisher = publisher
        self._writer: ShardWriter | None = None

    def write(self, leaf: Partition, batch: pa.RecordBatch) -> None:
        """Write rows of one leaf. Raises the error of an upload that failed meanwhile."""
        self._publisher.check()
        while batch.num_rows:
            writer = self._writer
            taken = 0 if writer is None else self._room(writer, leaf, batch)
            if writer is None or not taken:
                if writer is not None:
                    self._publish(writer)
                writer = self._writer = self._begin_shard()
                taken = writer.room(batch, self._target_bytes)
            writer.write(leaf, batch.slice(0, taken))
            batch = batch.slice(taken)

    def finish(self) -> list[NewShard]:
        """Return all shards, after their upload."""
        if self._writer is None:
            return self._publisher.finish(None)
        if self._context.part is not None:
            self._publish(self._writer)
            return self._publisher.finish(None)
        last = self._writer.finish(last=True)
        self._writer = None
        return self._publisher.finish(last)

    def discard(self) -> None:
        """Abort a shard that was not finished."""
        if self._writer is not None:
            self._writer.discard()

    def _room(self, writer: ShardWriter, leaf: Partition, batch: pa.RecordBatch) -> int:
        """Return how many of the first rows of `batch` go into the current shard.

        Once the shard is full, only the rows that continue its last key are added: a
        row key is never divided between two shards of a leaf.
        """
        if not self._spanning and not writer.holds_rows_of(leaf):
            return 0
        if not writer.is_full(self._target_bytes):
            return writer.room(batch, self._target_bytes)
        return row_span(batch, writer.last_key, self._context.schema)[1]

    def _begin_shard(self) -> ShardWriter:
        number = part_shard_number(self._context.part or 0, self._publisher.count)
        shard_id = self._shard_id(number)
        return ShardWriter(self._storage, self._context, shard_id, number, self._scratch)

    def _publish(self, writer: ShardWriter) -> None:
        self._writer = None
        self._publisher.publish(writer)


def _by_leaf(
    sorted_batches: Iterable[pa.RecordBatch], context: ShardContext, leaves: Sequence[Partition]
) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Check the order of rows, and yield them leaf by leaf."""
    check = OrderCheck(context.schema)
    remaining = iter(leaves)
    leaf: Partition | None = None
    for batch in sorted_batches:
        check.see(batch)
        start = 0
        while start < batch.num_rows:
            first = encode_key(row_key(batch, start, context.schema))
            if leaf is None or not leaf.range.contains(first):
                leaf = _next_leaf(first, remaining, context)
            end = _end_of_leaf(batch, leaf, context.schema)
            yield leaf, batch.slice(start, end - start)
            start = end


def _next_leaf(first: bytes, leaves: Iterator[Partition], context: ShardContext) -> Partition:
    for leaf in leaves:
        if leaf.range.contains(first):
            return leaf
    raise InvariantError(f"a row of job {context.job} is in none of the leaves that it was given")


def _end_of_leaf(batch: pa.RecordBatch, leaf: Partition, schema: Schema) -> int:
    """Return the position of the first row after `leaf`; the length
    of the batch if there is none.
    """
    end = leaf.range.max
    if end is None or row_key(batch, batch.num_rows - 1, schema) < end:
        return batch.num_rows
    return rows_below(batch, end, schema)
