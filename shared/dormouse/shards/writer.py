"""Divide sorted rows into shards, by leaves and by size; check their order, and upload them.

Used by ingest and compaction. The claimed order of the rows is not trusted: every row is compared
with the row before it.

A shard is sent in parts while its rows are written, and becomes an object after its last row, while
the next shards are written. The rows of a merge come from bytes that were verified, so nothing that
was not verified is in an object. If the rows end with an error, the upload of the current shard is
aborted. An upload that fails ends the run at its next batch.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.arrow.documents import kind_of, typed, typed_columns, values_at
from dormouse.arrow.order import OrderCheck, row_key, row_span
from dormouse.arrow.sealing import check_encrypted
from dormouse.arrow.types import Array
from dormouse.errors import AlreadyExistsError, InvariantError, UnavailableError, damaged_shard
from dormouse.keys import KeyRange, encode_key
from dormouse.ports import Objects, Storage, Upload
from dormouse.schema.row_tags import MOST_TEXTS_BYTES, joined_texts
from dormouse.schema.schema import MAX_LEAF_COLUMNS, TAGS, Field, Schema
from dormouse.schema.types import Primitive
from dormouse.shards import footer as footers
from dormouse.shards.crcs import seek_footer
from dormouse.shards.footer import MOST_COLUMNS
from dormouse.shards.parquet import KeySampler, ParquetFileWriter
from dormouse.shards.reading import verify_shard
from dormouse.shards.stored_index import INDEX_KEY, rename_table
from dormouse.state.partitions import NewShard, Partition, Shard
from dormouse.state.versions import Lineage, Provenance
from dormouse.storage import read_ahead
from dormouse.stored import checksums
from dormouse.stored.paths import (
    has_index_object,
    index_path,
    is_plain,
    part_shard_number,
    shard_path,
)
from dormouse.tables.indexing import MOST_PATHS, ShreddedPath, TermColumns

# The columns that a shard has of the values at some paths in its documents.

LOOKED_AT = 1_000
"""By so many documents paths are chosen."""
LEAST_ROWS = 1_000
"""Of shards that begin with fewer rows, nothing would be left out by what a path has."""
LEAST_SHARE = 2
"""A path is chosen if at least one of so many documents has it."""
MOST_PATH = 4
"""The longest path that is chosen."""
REPETITION = 4
"""A path with texts is chosen if each occurs so often on average: others are as long again."""
_CHOSEN = {"number": Primitive.LONG, "string": Primitive.STRING}


class Shredder:
    """Adds these columns to the rows of one shard."""

    def __init__(self, paths: Sequence[ShreddedPath]) -> None:
        by_id = {path.field.id: path for path in paths}  # of two with one id, one is left out
        self._paths = list(by_id.values())
        self.fields: list[Field] = [path.field for path in self._paths]
        self.partial: set[int] = set()
        """The ids of those that lack a number which is no whole number of 64 bits."""

    def added(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with these columns."""
        if not self._paths:
            return batch
        arrays: dict[int, Array] = {}
        for column in {path.column.name: path.column for path in self._paths}.values():
            of_column = [path for path in self._paths if path.column.id == column.id]
            targets = [(path.path, path.kind) for path in of_column]
            columns = typed_columns(batch.column(column.name), targets)
            for path, (values, is_whole) in zip(of_column, columns, strict=True):
                arrays[path.field.id] = values
                self.partial |= set() if is_whole else {path.field.id}
        for field in self.fields:
            batch = batch.append_column(field.name, arrays[field.id])
        return batch


def shredder_for(
    paths: Sequence[ShreddedPath] | None, schema: Schema, first: pa.RecordBatch
) -> Shredder:
    """Return what adds the columns of some paths to a shard that begins with the rows `first`; if
    the paths are None, of those that most documents have.
    """
    if paths is not None:
        names = {field.id for field in schema.fields}
        most = MAX_LEAF_COLUMNS - schema.leaf_columns
        return Shredder([path for path in paths if path.column.id in names][:most])
    documents = [field for field in schema.fields if field.type is Primitive.DYNAMIC]
    if not documents or first.num_rows < LEAST_ROWS:
        return Shredder([])
    most = min(MOST_PATHS, MOST_COLUMNS - schema.leaf_columns)
    chosen: list[ShreddedPath] = []
    for field in documents:
        texts = first.column(field.name).slice(0, LOOKED_AT).to_pylist()
        chosen += _common(field, values_at(texts, [()])[0])
    return Shredder(chosen[: max(0, most)])


def _common(column: Field, documents: Sequence[object]) -> list[ShreddedPath]:
    """Return the paths that most documents have, with values of one kind, the commonest first."""
    counts: Counter[tuple[tuple[str, ...], str]] = Counter()
    texts: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for document in documents:
        for path, value in _leaves(document, ()):
            kind = kind_of(value)
            is_long = kind != "number" or typed([value], Primitive.LONG)[0].is_valid
            counts[path, kind if is_long else "fraction"] += 1
            if isinstance(value, str):
                texts[path].add(value)
    of_path: Counter[tuple[str, ...]] = Counter()
    for (path, kind), count in counts.items():
        of_path[path] += count if kind != "null" else 0
    paths = [
        ShreddedPath(column, path, _CHOSEN[kind])
        for (path, kind), count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        if kind in _CHOSEN and count == of_path[path] and count * LEAST_SHARE >= len(documents)
    ]
    return [
        each
        for each in paths
        if len(texts[tuple(map(str, each.path))]) * REPETITION <= len(documents)
    ]


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], object]]:
    if isinstance(value, dict):
        if len(path) < MOST_PATH:
            for name, part in value.items():
                yield from _leaves(part, (*path, name))
    elif path and not isinstance(value, list):
        yield path, value


# Write one shard to a local file, and publish it as an object: upload
# it, or adopt an identical one.
#
# The upload begins while the file is being written, so that it is hardly behind at its end. The
# local file is kept until then: S3 may want all of it again. `writing` decides which rows go into
# which shard.


@dataclass(frozen=True, slots=True)
class ShardContext:
    """What the footers of a job's shards say beside their rows.

    `written_ms` is when the run began, `generation` the table's. If several writers write one run
    in parallel, `part` is the number of this one; the shards of such a run do not say which is the
    last (see `run_markers`). `bloom_columns` get Bloom filters, `term_columns` a term index; the
    values at `paths` get columns, at those that the data shows if these are None. `tags` is the
    text of the row tags of all rows, unless they have a column of these.
    """

    table_id: str
    schema: Schema
    job: str
    written_ms: int = 0
    generation: int = 0
    lineage: Lineage = Lineage()
    part: int | None = None
    bloom_columns: tuple[str, ...] = ()
    term_columns: TermColumns = ()
    paths: tuple[ShreddedPath, ...] | None = ()
    tags: str = ""

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
    footer: footers.ShardFooter
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
            objects: Objects = LocalObject(self.local)
            if self.upload.complete():
                shard = footer.shard(self.local.stat().st_size)
            else:
                shard, objects = footer.shard(_adopt(storage, path, footer)), storage
            put_index_object(storage, footer.table_id, shard, objects)
        finally:
            self.local.unlink(missing_ok=True)
        return NewShard(shard, self.rows_by_partition)

    def discard(self) -> None:
        """Abort the upload, and remove the local file."""
        self.upload.abort()
        self.local.unlink(missing_ok=True)


class ShardWriter:
    """Writes one shard, whose rows are in `file`; end it with `finish` or `discard`. `rows_by_leaf`
    has the rows so far, and `keys` samples their keys.
    """

    def __init__(
        self,
        storage: Storage,
        context: ShardContext,
        shard_id: str,
        number: int,
        scratch: Path,
        shredder: Shredder | None = None,
    ) -> None:
        """Start the `number`-th shard of a run, in a file in `scratch` and as an upload."""
        self._context = context
        self._shard_id = shard_id
        self._number = number
        self._local = scratch / f"{shard_id}.parquet"
        self._shredder = shredder or Shredder([])
        schema = context.schema.with_values(*self._shredder.fields)
        self.file = ParquetFileWriter(
            self._local,
            schema,
            context.bloom_columns,
            term_columns=context.term_columns,
            plain=is_plain(shard_id),
        )
        self._upload = storage.start_upload(shard_path(context.table_id, shard_id), self._local)
        self.keys = KeySampler(context.schema)
        self.rows_by_leaf: dict[str, int] = {}
        self._has_tags = TAGS in context.schema.values
        self._tags = set[str]() if self._has_tags else {context.tags}
        self._range = KeyRange()

    def write(self, leaf: Partition, batch: pa.RecordBatch) -> None:
        """Write rows, which are all in `leaf` and follow the rows before."""
        rows = self.rows_by_leaf.get(leaf.id, 0)
        first = self._range if self.rows_by_leaf else leaf.range
        self._range = KeyRange(first.min, leaf.range.max)
        self.rows_by_leaf[leaf.id] = rows + batch.num_rows
        if self._has_tags and len(self._tags) <= MOST_TEXTS_BYTES:  # more are not listed
            self._tags.update(text or "" for text in pc.unique(batch.column(TAGS.name)).to_pylist())
        check_encrypted(self._context.schema, batch)
        self.keys.see(batch)
        self.file.write(self._shredder.added(batch))
        self._upload.advance(self.file.size_bytes)

    def finish(self, *, last: bool) -> WrittenShard:
        """Complete the file; `last` says whether it is its run's last. Requires: it has rows."""
        context = self._context
        footer = footers.ShardFooter(
            table_id=context.table_id,
            shard_id=self._shard_id,
            schema=context.schema,
            provenance=context.provenance(self._range, number=self._number, last=last),
            rows=self.keys.rows,
            min_key=self.keys.min_key,
            max_key=self.keys.max_key,
            samples=self.keys.samples(),
            tags=joined_texts(self._tags),
        )
        self.file.close(
            {footers.METADATA_KEY: footers.encode_footer(footer).decode()},
            context.table_id,
            self._shard_id,
            self._shredder.partial,
        )
        return WrittenShard(self._local, self._upload, footer, tuple(self.rows_by_leaf.items()))

    def discard(self) -> None:
        """Abort the upload, and remove the local file."""
        self._upload.abort()
        self.file.discard()


def _adopt(storage: Storage, path: str, expected: footers.ShardFooter) -> int:
    """Check that the shard at `path` has the content just written; return its size in bytes."""
    stored = next((each for each in storage.list(path) if each.path == path), None)
    if stored is None:  # the job was released just now, and the shards of its runs deleted
        raise UnavailableError(f"{path} was there and is not any more; run the job again")
    footer = footers.read_footer(storage, path, stored.size_bytes)
    # Some fields may differ between two runs and are not compared: the samples, the schema, which
    # may have new columns, the time, and which of the shards before the inputs still existed.
    inputs = expected.provenance.lineage.inputs
    same = replace(
        expected,
        samples=footer.samples,
        schema=footer.schema,
        provenance=replace(
            expected.provenance,
            written_ms=footer.provenance.written_ms,
            lineage=replace(footer.provenance.lineage, inputs=inputs),
        ),
    )
    if footer != same:
        raise AlreadyExistsError(
            f"{path} exists, but differs from what job {expected.provenance.job} made of the same "
            f"inputs: it has {footer.rows:,} rows instead of {expected.rows:,}"
        )
    return stored.size_bytes


# Finish and publish the shards of a run side by side, and the last one when all others are there.
#
# To finish a shard takes a sixth of the time that its rows take in an ingest into many leaves: its
# last row group is encoded, the CRCs of all are computed, the footer is written.
#
# A shard whose footer says that it is the last shows that its run is complete (`model.provenance`).
# So it becomes an object after all others: no crash leaves a last shard without the others. The
# shards of a part of a run do not say it, and become objects in any order.

UPLOADS_AT_ONCE = 8
"""How many shards are published while the next is written."""
WAITING_BYTES = 256 * 1024 * 1024
"""How much of the scratch space their files take; a larger one is published alone."""

_Publication: TypeAlias = Future[NewShard]


class ShardPublisher:
    """Publishes the shards of one run, while the next one is written; end it with `close`."""

    def __init__(self, storage: Storage, at_the_end: Callable[[], object] | None = None) -> None:
        """Publish to `storage`; this sends nothing.

        `at_the_end` is called while the last shard is published, after all others are.
        """
        self._storage, self._at_the_end = storage, at_the_end
        self._threads = ThreadPoolExecutor(UPLOADS_AT_ONCE)
        self._all: list[_Publication] = []
        self._waiting: dict[_Publication, int] = {}

    @property
    def count(self) -> int:
        """The number of shards so far."""
        return len(self._all)

    def publish(self, shard: ShardWriter) -> None:
        """Finish and publish a shard, which is not the last, in the background, as soon as there is
        room beside those in progress.
        Raises what `check` raises.
        """
        size_bytes = shard.file.finished_bytes
        try:
            while not self._has_room(size_bytes):
                wait(self._waiting, return_when=FIRST_COMPLETED)
                self.check()
        except BaseException:
            shard.discard()
            raise
        publication = self._threads.submit(self._published, shard)
        self._all.append(publication)
        self._waiting[publication] = size_bytes

    def check(self) -> None:
        """Raise the error of a shard that could not be finished or published; the errors of the
        latter are those of `WrittenShard.publish`.
        """
        for publication in [each for each in self._waiting if each.done()]:
            del self._waiting[publication]
            publication.result()

    def finish(self, last: WrittenShard | None) -> list[NewShard]:
        """Return all shards in their order, when they are published; `last` after all others.
        Raises what `check` and what is called at the end raise.
        """
        try:
            shards = [publication.result() for publication in self._all]
        except BaseException:
            if last is not None:
                last.discard()
            raise
        if last is None:
            return shards
        beside = self._at_the_end and self._threads.submit(self._at_the_end)
        shards.append(last.publish(self._storage))
        if beside is not None:
            beside.result()
        return shards

    def close(self) -> None:
        """Wait until no shard is being published any more."""
        self._threads.shutdown()

    def _published(self, shard: ShardWriter) -> NewShard:
        try:
            result = shard.finish(last=False)
        except BaseException:
            shard.discard()
            raise
        return result.publish(self._storage)

    def _has_room(self, size_bytes: int) -> bool:
        if not self._waiting:
            return True
        waiting_bytes = sum(self._waiting.values())
        return len(self._waiting) < UPLOADS_AT_ONCE and waiting_bytes + size_bytes <= WAITING_BYTES


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


@dataclass(slots=True)
class _RunWriter:
    """Writes the shards of one run; those that are complete are published meanwhile."""

    storage: Storage
    context: ShardContext
    shard_id: Callable[[int], str]
    scratch: Path
    target_bytes: int
    spanning: bool
    publisher: ShardPublisher
    _writer: ShardWriter | None = None

    def write(self, leaf: Partition, batch: pa.RecordBatch) -> None:
        """Write rows of one leaf. Raises the error of an upload that failed meanwhile."""
        self.publisher.check()
        while batch.num_rows:
            writer = self._writer
            rows = 0 if writer is None else self._room(writer, leaf, batch)
            if writer is None or not rows:
                if writer is not None:
                    self._publish(writer)
                writer = self._writer = self._begin_shard(batch)
                rows = writer.file.room(batch, self.target_bytes)
            writer.write(leaf, batch.slice(0, rows))
            batch = batch.slice(rows)

    def finish(self) -> list[NewShard]:
        """Return all shards, after their upload."""
        if self._writer is None:
            return self.publisher.finish(None)
        if self.context.part is not None:
            self._publish(self._writer)
            return self.publisher.finish(None)
        last = self._writer.finish(last=True)
        self._writer = None
        return self.publisher.finish(last)

    def discard(self) -> None:
        """Abort a shard that was not finished."""
        if self._writer is not None:
            self._writer.discard()

    def _room(self, writer: ShardWriter, leaf: Partition, batch: pa.RecordBatch) -> int:
        """Return how many of the first rows of `batch` go into the current shard.

        Once the shard is full, only the rows that continue its last key are added: a
        row key is never divided between two shards of a leaf.
        """
        if not self.spanning and leaf.id not in writer.rows_by_leaf:
            return 0
        if not writer.file.is_full(self.target_bytes):
            return writer.file.room(batch, self.target_bytes)
        return row_span(batch, writer.keys.max_key, self.context.schema)[1]

    def _begin_shard(self, first: pa.RecordBatch) -> ShardWriter:
        number = part_shard_number(self.context.part or 0, self.publisher.count)
        shard_id = self.shard_id(number)
        context = self.context
        shredder = shredder_for(context.paths, context.schema, first)
        return ShardWriter(self.storage, context, shard_id, number, self.scratch, shredder)

    def _publish(self, writer: ShardWriter) -> None:
        self._writer = None
        self.publisher.publish(writer)


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
                leaf = next((each for each in remaining if each.range.contains(first)), None)
            if leaf is None:
                raise InvariantError(f"a row of job {context.job} is in none of the leaves it got")
            end = _end_of_leaf(batch, leaf, context.schema)
            yield leaf, batch.slice(start, end - start)
            start = end


def _end_of_leaf(batch: pa.RecordBatch, leaf: Partition, schema: Schema) -> int:
    """Return the position of the first row after `leaf`; the batch's length if there is none."""
    end = leaf.range.max
    if end is None or row_key(batch, batch.num_rows - 1, schema) < end:
        return batch.num_rows
    return row_span(batch, end, schema)[0]


# Verify a whole shard in a local file, and make it a shard of another table.
#
# Only the table's id in the footer and in its index, and their checksums, change; all keep their
# length. So no row is decoded, and every CRC of rows stays what it was.


class LocalObject:
    """`ports.Objects` with a local file in place of the one object that is asked for."""

    is_remote = False

    def __init__(self, local: Path) -> None:
        self._local = local

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open the file, whatever the path."""
        return self._local.open("rb")


def verify_local_shard(local: Path, path: str, table_id: str, shard: Shard) -> pq.FileMetaData:
    """Check every byte of a shard that was copied from `path` to a local file.
    Raises DamagedShardError: a byte differs from what was written, or it is another shard.
    """
    size_bytes = local.stat().st_size
    if size_bytes != shard.size_bytes:
        raise damaged_shard(path, f"it has {size_bytes:,} of {shard.size_bytes:,} bytes")
    return verify_shard(LocalObject(local), path, table_id, shard)


def put_index_object(storage: Storage, table_id: str, shard: Shard, objects: Objects) -> None:
    """Put the index object of a shard, if it is to have one, of the shard as it is in `objects`.

    Of two processes that put it, both put the same: the shard was put before, and only once.
    Raises NotFoundError: the shard is gone; CorruptDataError: it is damaged.
    """
    if has_index_object(shard.id):
        body = footers.read_behind_rows(objects, table_id, shard)
        storage.put(index_path(table_id, shard.id), body)


def readdress_shard(local: Path, metadata: pq.FileMetaData, table_id: str, other_id: str) -> None:
    """Make a local shard of table `table_id` one of table `other_id`.
    Raises InvariantError: the footer does not name the table where it is expected to.
    """
    entries = metadata.metadata or {}
    stored, index = (entries.get(key.encode(), b"") for key in (footers.METADATA_KEY, INDEX_KEY))
    name, new_name = (f'"table_id":"{each}"'.encode() for each in (table_id, other_id))
    changes = [(stored, stored.replace(name, new_name, 1)), (index, rename_table(index, other_id))]
    with local.open("r+b") as file:
        start = seek_footer(file)
        footer = file.read()
        for before, after in changes:
            place = footer.rfind(before)
            if place < 0 or before == after or len(before) != len(after):
                raise InvariantError(f"the footer of {local} does not name table {table_id}")
            footer = footer[:place] + after + footer[place + len(before) :]
        file.seek(start)
        file.write(checksums.renew(footer))
