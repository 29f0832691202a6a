"""Write one shard to a local file, and publish it as an object: upload
it, or adopt an identical one.

The upload begins while the file is being written, so that it is hardly behind at its end. The local
file is kept until then: S3 may want all of it again. `writing` decides which rows go into which
shard.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from dormouse.errors import AlreadyExistsError, UnavailableError
from dormouse.keys.ranges import Key, KeyRange
from dormouse.model.partitions import Partition
from dormouse.model.shards import NewShard, Shard
from dormouse.model.versions.provenance import Lineage, Provenance
from dormouse.ports.services import Storage
from dormouse.ports.uploads import Upload
from dormouse.schema.schema import Schema
from dormouse.shards.format.footer import METADATA_KEY, ShardFooter, encode_footer, read_footer
from dormouse.shards.writing.parquet import ParquetFileWriter
from dormouse.shards.writing.samples import KeySampler
from dormouse.stored.paths import is_plain, shard_path


@dataclass(frozen=True, slots=True)
class ShardContext:
    """What the footers of a job's shards say beside their rows.

    `written_ms` is when the run began, `generation` the table's. If several writers write one run
    in parallel, `part` is the number of this one; the shards of such a run do not say which is the
    last (see `run_markers`). `bloom_columns` get Bloom filters.
    """

    table_id: str
    schema: Schema
    job: str
    written_ms: int = 0
    generation: int = 0
    lineage: Lineage = Lineage()
    part: int | None = None
    bloom_columns: tuple[str, ...] = ()

    def provenance(self, span: KeyRange, *, number: int = 0, last: bool = True) -> Provenance:
        """Return the provenance of the job's shard with this number and range."""
        return Provenance(
            range=span,
            job=self.job,
            written_ms=self.written_ms,
            generation=self.generation,
            number=number,
            last=last,
            lineage=self.lineage,
        )


@dataclass(frozen=True, slots=True)
class WrittenShard:
    """A complete shard in a local file, whose upload `publish` completes."""

    local: Path
    upload: Upload
    footer: ShardFooter
    rows_by_partition: tuple[tuple[str, int], ...]

    def publish(self, storage: Storage) -> NewShard:
        """Complete the upload, or adopt the object that another run of the job
        uploaded; remove the local file.

        Raises:
            AlreadyExistsError: an object of the same name has other content.
            CorruptDataError: an object of the same name is not a shard.
            UnavailableError: an object of the same name was deleted meanwhile.
        """
        footer = self.footer
        path = shard_path(footer.table_id, footer.shard_id)
        try:
            if self.upload.complete():
                size_bytes = self.local.stat().st_size
            else:
                size_bytes = _adopt(storage, path, footer)
        finally:
            self.local.unlink(missing_ok=True)
        shard = Shard.of(footer.shard_id, footer.rows, size_bytes, footer.min_key, footer.max_key)
        return NewShard(shard, self.rows_by_partition)

    def discard(self) -> None:
        """Abort the upload, and remove the local file."""
        self.upload.abort()
        self.local.unlink(missing_ok=True)


class ShardWriter:
    """Writes one shard; end it with `finish` or `discard`."""

    def __init__(
        self, storage: Storage, context: ShardContext, shard_id: str, number: int, scratch: Path
    ) -> None:
        """Start the `number`-th shard of a run, in a file in `scratch` and as an upload."""
        self._context = context
        self._shard_id = shard_id
        self._number = number
        self._local = scratch / f"{shard_id}.parquet"
        self._file = ParquetFileWriter(
            self._local, context.schema, context.bloom_columns, plain=is_plain(shard_id)
        )
        self._upload = storage.start_upload(shard_path(context.table_id, shard_id), self._local)
        self._sampler = KeySampler(context.schema)
        self._rows_by_leaf: dict[str, int] = {}
        self._range = KeyRange()

    @property
    def size_bytes(self) -> int:
        """The size written so far, in bytes."""
        return self._file.size_bytes

    @property
    def finished_bytes(self) -> int:
        """About the size of the shard if what was written is all, in bytes."""
        return self._file.finished_bytes

    def is_full(self, target_bytes: int) -> bool:
        """Return whether the shard has its target size, or as many column chunks as it may have."""
        return self._file.is_full(target_bytes)

    def room(self, batch: pa.RecordBatch, target_bytes: int) -> int:
        """Return how many of the first rows of `batch`, at least one, may be written before
        it must be asked again whether it `is_full`.
        """
        return self._file.room(batch, target_bytes)

    @property
    def last_key(self) -> Key:
        """The row key of the last row. Requires: a row was written."""
        return self._sampler.max_key

    def holds_rows_of(self, leaf: Partition) -> bool:
        """Return whether any row so far is in `leaf`."""
        return leaf.id in self._rows_by_leaf

    def write(self, leaf: Partition, batch: pa.RecordBatch) -> None:
        """Write rows, which are all in `leaf` and follow the rows before."""
        rows = self._rows_by_leaf.get(leaf.id, 0)
        first = self._range if self._rows_by_leaf else leaf.range
        self._range = KeyRange(first.min, leaf.range.max)
        self._rows_by_leaf[leaf.id] = rows + batch.num_rows
        self._sampler.see(batch)
        self._file.write(batch)
        self._upload.advance(self._file.size_bytes)

    def finish(self, *, last: bool) -> WrittenShard:
        """Complete the file; `last` says whether this is the last shard of
        its run. Requires: it has rows.
        """
        context = self._context
        footer = ShardFooter(
            table_id=context.table_id,
            shard_id=self._shard_id,
            schema=context.schema,
            provenance=context.provenance(self._range, number=self._number, last=last),
            rows=self._sampler.rows,
            min_key=self._sampler.min_key,
            max_key=self._sampler.max_key,
            samples=self._sampler.samples(),
        )
        self._file.close(
            {METADATA_KEY: encode_footer(footer).decode()}, context.table_id, self._shard_id
        )
        return WrittenShard(self._local, self._upload, footer, tuple(self._rows_by_leaf.items()))

    def discard(self) -> None:
        """Abort the upload, and remove the local file."""
        self._upload.abort()
        self._file.discard()


def _adopt(storage: Storage, path: str, expected: ShardFooter) -> int:
    """Check that the shard at `path` has the content that was just
    written; return its size in bytes.
    """
    stored = next((found for found in storage.list(path) if found.path == path), None)
    if stored is None:  # the job was released just now, and the shards of its runs deleted
        raise UnavailableError(f"{path} was there and is not any more; run the job again")
    found = read_footer(storage, path, stored.size_bytes)
    # Some fields may differ between two runs and are not compared: the samples, the schema, which
    # may have new columns, the time, and which of the shards before the inputs still existed.
    inputs = expected.provenance.lineage.inputs
    same = replace(
        expected,
        samples=found.samples,
        schema=found.schema,
        provenance=replace(
            expected.provenance,
            written_ms=found.provenance.written_ms,
            lineage=replace(found.provenance.lineage, inputs=inputs),
        ),
    )
    if found != same:
        raise AlreadyExistsError(
            f"{path} exists, but differs from what job {expected.provenance.job} made of the same "
            f"inputs: it has {found.rows:,} rows instead of {expected.rows:,}"
        )
    return stored.size_bytes
