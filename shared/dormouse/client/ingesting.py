"""Drop files into the ingest bucket: their keys, the upload, and the wait for their rows."""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import file_digest, md5
from itertools import chain, takewhile
from math import inf
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from dormouse.arrow.types import arrow_schema
from dormouse.client.table import TableHandle
from dormouse.client.waiting import FILE_QUEUES, WAIT_SECONDS, Watch, source_names
from dormouse.errors import (
    ContendedError,
    InvalidRequestError,
    NotFoundError,
    OutcomeUnknownError,
    OutOfSpaceError,
    RefusedSourceError,
    UnavailableError,
)
from dormouse.features import batch_files
from dormouse.files.casting import check_columns
from dormouse.files.cells import Row, rows_to_batch, with_fitting_keys
from dormouse.files.change_data import changes_in_files
from dormouse.files.frames import Frame, how_to_frame, is_frame, read_frame
from dormouse.files.inferred import folder_prefix
from dormouse.files.loader import LocalRows
from dormouse.log.sources import ingested_of
from dormouse.messages.stages import IngestJob, OutboundMessage, TableChanged
from dormouse.ports import NO_TABLE, Services
from dormouse.schema.row_tags import NO_TAGS, row_tags, tags_of_key, with_tags
from dormouse.schema.schema import Schema
from dormouse.state import sources
from dormouse.state.jobs import JobRecord
from dormouse.state.state import TableState
from dormouse.system import OwnFolder
from dormouse.tables.table import Table

MAX_NAMED = 10
"""How many files an error names."""
_PATTERN = re.compile(r"[*?\[]")
Ingestible = Frame | str | Path | Iterable[str | Path]
"""A frame; or a file, a folder or a pattern of files; or several of these."""
_Batches = Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Drop:
    """How files or a frame are dropped for a table, of which `handle` is the latest: as the
    arguments of `TableHandle.ingest` say. With `at_once`, this process ingests a frame without a
    file in the inbox, if that goes well.
    """

    handle: TableHandle
    again: bool = False
    idempotency_key: str | None = None
    on_error: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    at_once: bool = False
    watch: Callable[[sources.Source], None] | None = None

    def ingest(self, what: Ingestible, name: str | None) -> "Ingested":
        """Drop a frame or files; see `TableHandle.ingest`."""
        if is_frame(what):
            check_on_error(self.on_error, [])
            return self._frame(what, name)
        places = paths_of(what)
        if self.idempotency_key is not None:
            raise InvalidRequestError(
                "files need no idempotency key: a file of one name and content is ingested once"
            )
        with local_copies(places, self.handle.services.scratch) as paths:
            files = files_to_drop(self.handle.name, paths)
            if name is not None:
                if len(files) != 1:
                    raise InvalidRequestError("a name can be given to a single file only")
                files = [(ingest_key(self.handle.name, name), files[0][1])]
            check_on_error(self.on_error, [key for key, _ in files])
            return self.files(files)

    def files(self, files: Sequence[tuple[str, Path]]) -> "Ingested":
        """Upload files under their keys; `again`, in a folder of their own below that of the table.

        With an idempotency key, an object that has such a key already is kept, and taken for the
        file.
        Raises RefusedSourceError: a folder of a file says other tags.
        """
        handle, once = self.handle, self.idempotency_key is not None
        files = [(tagged_key(key, self.tags), local) for key, local in files]
        before = handle.state()  # before the upload: a file may be ingested at once
        own = f"{handle.name}/"
        beside = f"{own}again-{handle.services.ids.new()}/" if self.again else own
        uploads = []
        for key, local in files:
            target = beside + key.removeprefix(own)
            target = sources.with_on_error(target, self.on_error) if self.on_error else target
            uploads.append(handle.bucket.drop(target, local, once=once))
            if self.watch is not None:
                self.watch(uploads[-1])
        known = _ingested_before(handle.services, handle.current(), before, uploads)
        return Ingested(handle, tuple(uploads), known)

    def _frame(self, frame: Frame, name: str | None) -> "Ingested":
        """Drop the rows of a frame as one file.

        Raises:
            RefusedSourceError: the frame does not fit the table; nothing was uploaded.
            InvalidRequestError: a name and an idempotency key, or a key together with `again`.
        """
        handle = self.handle
        if self.idempotency_key is not None and (name is not None or self.again):
            raise InvalidRequestError(
                "an idempotency key decides what the file is called, and that it is ingested once",
                hint="leave out name and again",
            )
        if self.idempotency_key is None:
            key = ingest_key(handle.name, name or f"{handle.services.ids.new()}.parquet")
        else:
            key = idempotent_key(handle.table, self.idempotency_key)
        if not key.endswith(".parquet"):
            raise InvalidRequestError(
                f"a frame is dropped as a Parquet file, which cannot be called {name!r}",
                hint="end the name in .parquet",
            )
        tagged_key(key, self.tags)  # before rows are read: these tags can be
        schema, checked = _file_rows(handle.table)
        batches = checked(read_frame(frame, schema))
        at_once = self.at_once and not self.again
        is_named = name is not None or self.idempotency_key is not None
        few, is_all = _few(batches) if at_once and not is_named else ([], False)
        if is_all and any(batch.num_rows for batch in few):
            # Rows have another ETag than a file of them: for both to be one source, the key says so
            unique = handle.services.ids.new()
            if files := self._at_once(idempotent_key(handle.table, unique), few):
                return files
            key = idempotent_key(handle.current(), unique)
        with OwnFolder(dir=handle.services.scratch) as folder:
            local = Path(folder) / "rows.parquet"
            if not _write_batches(chain(few, batches), schema, local):
                return Ingested(handle, ())
            if at_once and not is_all and (files := self._at_once(key, local)):
                return files
            return self.files([(key, local)])

    def _at_once(self, key: str, local: LocalRows) -> "Ingested | None":
        """Ingest a file, or rows, here, as if a file had been dropped under `key`; None if one
        is to be: it waits for others as the table says, for Spark, or for another try.
        """
        from dormouse.features.ingest import ingest_at_once

        table, services = self.handle.table, self.handle.services
        dropped_ms, etag = services.clock.now_ms(), ""
        if isinstance(local, Path):
            size_bytes = local.stat().st_size
            with local.open("rb") as file:
                etag = file_digest(file, partial(md5, usedforsecurity=False)).hexdigest()
        else:
            size_bytes = sum(batch.nbytes for batch in local)
        key, bucket = tagged_key(key, self.tags), self.handle.bucket.name
        source = sources.Source(bucket, key, etag, size_bytes, dropped_ms=dropped_ms)
        _, waits = batch_files.due_batches([source], table.properties)
        job = batch_files.ingest_message(table, table.generation, (source,))
        if waits or job.queue != "ingest-jobs" or not isinstance(job.message, IngestJob):
            return None
        try:
            result = ingest_at_once(services, table, job.message, local)
        except (ContendedError, UnavailableError, OutcomeUnknownError, OutOfSpaceError):
            return None  # as a file, it is the same source: it adds nothing if it landed
        if result is None:
            return None
        with suppress(UnavailableError):  # the rows have landed; the sweep looks for such tables
            self.handle.queues.send([OutboundMessage("table-changes", TableChanged(table.id))])
        known = frozenset([source.id]) if result.known else frozenset[str]()
        if self.watch is not None:
            self.watch(source)
        return Ingested(self.handle, (source,), known, done=bool(known or result.accepted))


def paths_of(what: object) -> list[str | Path]:
    """Return the paths that were given: one, or several.
    Raises InvalidRequestError: something else was given.
    """
    if isinstance(what, str | Path):
        return [what]
    if hint := how_to_frame(what):
        raise InvalidRequestError(f"{type(what).__name__} is no frame", hint=hint)
    items = what if isinstance(what, Iterable) and not isinstance(what, Mapping) else [what]
    paths: list[str | Path] = []
    for path in items:
        if not isinstance(path, str | Path):
            raise InvalidRequestError(
                f"values of type {type(path).__name__} cannot be ingested",
                hint="give a frame that speaks Arrow, or paths of files; rows become one by "
                "pyarrow.Table.from_pylist(rows), columns by pyarrow.table(columns), batches by "
                "pyarrow.RecordBatchReader.from_batches(schema, batches); single rows go to `with "
                "table.writer() as w: w.write(row)`",
            )
        paths.append(path)
    if not paths and isinstance(what, Iterator):
        raise InvalidRequestError(
            f"the {type(what).__name__} has no paths: it was read before, or is empty",
            hint="an iterator is read once: make it again, or give a list",
        )
    return paths


@contextmanager
def local_copies(
    paths: Sequence[str | Path], scratch: str | Path | None = None
) -> Iterator[list[str | Path]]:
    """Yield paths of files here, with copies of what is named by a URL such as ``s3://other/a.csv``
    or ``s3://other/folder``; the copies are removed in the end.

    Raises:
        NotFoundError: there is nothing at a URL.
        InvalidRequestError: it cannot be read.
    """
    # a name that begins with a dot is in no key, so the same URL has the same key again
    with OwnFolder(prefix=".copies-", dir=scratch) as folder:
        yield [_copy(path, Path(folder)) if "://" in str(path) else path for path in paths]


def _copy(url: str | Path, folder: Path) -> Path:
    try:
        remote, at = fs.FileSystem.from_uri(str(url))
        is_there = remote.get_file_info(at).type is not fs.FileType.NotFound
        local = folder / at.lstrip("/")
        local.parent.mkdir(parents=True, exist_ok=True)
        if is_there:
            fs.copy_files(at, str(local), source_filesystem=remote)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InvalidRequestError(
            f"{str(url)!r} cannot be read: {error}",
            hint="s3://, gs:// and file:// are read, with the credentials and network of this "
            "process; download a file from elsewhere first",
        ) from error
    if not is_there:
        raise NotFoundError(f"there is nothing at {str(url)!r}")
    return local


def files_to_drop(table_name: str, paths: Iterable[str | Path]) -> list[tuple[str, Path]]:
    """Return the key of each file in the ingest bucket, in the table's folder there.

    A file has its own name, or if others have that too, the path that was given. A folder means all
    files below it, each named by its path in the folder; a pattern, such as ``data/*/*.parquet``,
    the files that fit it, each named by its path below the folder before the first star. What is
    no file by its name (`is_file`), such as ``_SUCCESS``, is left out, also if a shell named it.
    Folders above a file that are called ``column=value`` stay in its name, which gives its rows
    that value.

    Raises:
        NotFoundError: a file does not exist, a folder has none, none fits a pattern, or all that
            was given is left out.
        InvalidRequestError: two files have the same name, and were given by the same path.
        RefusedSourceError: a name is refused as a key, or its ending is no known format.
    """
    folders = [Path(path) for path in paths]
    files = [(name, file) for path in folders for name, file in _files(path)]
    if folders and not files:
        names = ", ".join(repr(str(path)) for path in folders[:MAX_NAMED])
        raise NotFoundError(f"there is no file to ingest among {names}", hint=sources.NO_FILES)
    shared = _repeated(name for name, _ in files)
    files = [(_given(file) if name in shared else name, file) for name, file in files]
    if twice := _repeated(name for name, _ in files):
        raise InvalidRequestError(
            f"several files are called {', '.join(sorted(twice))}",
            hint="ingest them one after the other, or under different names",
        )
    return [(ingest_key(table_name, name), path) for name, path in files]


def _repeated(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _given(path: Path) -> str:
    """Return a path as it was given, as the name of an object: from no root, and without folders
    such as ``..`` and ``.cache`` that would make it no file.
    """
    return "/".join(part for part in path.parts if part != path.anchor and sources.is_file(part))


def _files(path: Path) -> list[tuple[str, Path]]:
    """Return the files that a path means, in order, each with its name below the table's folder."""
    try:
        is_file = path.is_file()
    except OSError as error:  # such as a name that is too long
        raise InvalidRequestError(f"{str(path)[:99]!r} is no file: {error.strerror}") from error
    if is_file:
        name = folder_prefix(path.parent) + path.name
        return [(name, path)] if sources.is_file(name) else []
    if path.is_dir():
        parts = os.walk(path, onerror=_fail)  # rglob leaves out folders that cannot be read
        files = _below(path, (Path(folder, name) for folder, _, names in parts for name in names))
        if not files:
            raise NotFoundError(
                f"there are no files in the folder {str(path)!r}", hint=sources.NO_FILES
            )
        return files
    plain = takewhile(lambda part: not _PATTERN.search(part), path.parts)
    folder = Path(*plain)
    if folder == path:
        hint = "it is a pipe or a device: write what it has to a file" if path.exists() else ""
        raise NotFoundError(f"there is no file {str(path)!r}", hint=hint)
    files = _below(folder, folder.glob(str(path.relative_to(folder))))
    if not files:
        raise NotFoundError(f"no file fits {str(path)!r}", hint=sources.NO_FILES)
    return files


def _fail(error: OSError) -> None:
    raise error


def _below(folder: Path, paths: Iterable[Path]) -> list[tuple[str, Path]]:
    own = folder_prefix(folder)
    pairs = sorted((path.relative_to(folder), path) for path in paths if path.is_file())
    files = [(own + name.as_posix(), path) for name, path in pairs]
    return [(name, path) for name, path in files if sources.is_file(name)]


def ingest_key(table_name: str, name: str) -> str:
    """Return the key to drop a file of this name under.
    Raises RefusedSourceError: the key would be refused, as one with ``..`` or control characters,
    or ignored, or the ending of the name is no known format.
    """
    key = f"{table_name}/{name}"
    sources.table_name_of(key)
    if not sources.is_file(key):
        raise RefusedSourceError(f"{name!r} would be ignored", hint=sources.NO_FILES)
    sources.format_of(key)
    return key


def tagged_key(key: str, tags: Mapping[str, str]) -> str:
    """Return the key of a file in a table's folder whose rows are to have tags.

    Raises:
        InvalidRequestError: they cannot be tags of rows.
        RefusedSourceError: a folder of the file says others.
    """
    tagged = with_tags(key, tags)
    tags_of_key(tagged)
    return tagged


def check_on_error(on_error: str | None, keys: Sequence[str]) -> None:
    """Check that rows of these files, or of a frame if there are none, can be skipped if asked.
    Raises InvalidRequestError: they cannot, or another word was given.
    """
    if on_error not in (None, "refuse", "skip"):
        raise InvalidRequestError(f"on_error is refuse or skip, not {on_error!r}")
    others = [key for key in keys if sources.format_of(key)[0] not in sources.TEXT_ENDINGS]
    if on_error == "skip" and (others or not keys):
        what = repr(others[0].partition("/")[2]) if others else "a frame"
        raise InvalidRequestError(
            f"rows of {what} cannot be skipped",
            hint="rows of CSV and JSON files can; in other files, values have types",
        )


def _ingested_before(
    services: Services, table: Table, before: TableState, uploads: Sequence[sources.Source]
) -> frozenset[str]:
    """Return the ids of dropped sources which the table had ingested at an earlier state of it."""
    if not len(before.sources) and not before.all_source_segments:
        return frozenset()
    owners = batch_files.remembered_ids(table, uploads)
    try:
        ids = ingested_of(services.storage, table.id, before, owners)
    except NotFoundError:  # segments were merged since; few files are ingested that quickly
        return batch_files.look_up_sources(services, table, uploads).ids
    return batch_files.ids_of(owners, ids)


@dataclass(frozen=True, slots=True, repr=False)
class Ingested:
    """Files on their way into a table; they are rows of it already if `done`."""

    handle: TableHandle
    sources: tuple[sources.Source, ...]
    known: frozenset[str] = frozenset()
    """The ids of those sources that were rows of the table before: they add nothing."""
    done: bool = False

    def __repr__(self) -> str:
        files = f"{len(self.sources)} file{'s'[: len(self.sources) != 1]} for {self.handle.name}"
        return f"Ingested({files}{f', {len(self.known)} known' if self.known else ''})"

    def wait(self, timeout_seconds: float = WAIT_SECONDS, *, watch: Watch | None = None) -> None:
        """Wait until each file is ingested or refused.

        Raises:
            RefusedSourceError: some were refused, and why; the others are ingested.
            NotFoundError: the table was deleted.
            TimedOutError: some were neither after `timeout_seconds`.
            DeadLetterError: only a dead letter is left of some.
        """
        if self.done:
            return
        refused: dict[str, JobRecord] = {}
        remaining = list(self.sources)
        services = self.handle.services

        def _deciding(table: Table, source: sources.Source) -> list[str]:
            """Return the tables that may have refused a file: if its folder is not called after
            the table any more, nobody's, or the one that is called so now.
            """
            name = sources.table_name_of(source.key)
            other = None if name == table.name else services.tables.named(name)
            beside = [] if name == table.name else [NO_TABLE, *([other.id] if other else [])]
            return [table.id, *beside]

        def look() -> int:
            table = self.handle.current()
            remaining[:] = batch_files.look_up_sources(services, table, remaining).fresh(remaining)
            refusals = (
                (s.id, batch_files.refusal_of(services, s, *_deciding(table, s))) for s in remaining
            )
            records = {source: record for source, record in refusals if record is not None}
            remaining[:] = [s for s in remaining if s.id not in records]
            refused.update(records)
            return len(remaining)

        polling = self.handle.polling
        awaited = polling.awaited(self.handle, lambda: source_names(remaining), FILE_QUEUES)
        polling.until_nothing(look, timeout_seconds=timeout_seconds, watch=watch, awaited=awaited)
        if refused:
            raise RefusedSourceError(
                "\n".join(f"{r.subject} was refused: {r.reason}" for r in refused.values())
            )


# Rows of a program on their way into a table: checked and converted here, dropped as one file.
#
# A frame is one file and so one commit: all of its rows or none. It is validated before anything is
# uploaded, so what does not fit is refused at once, with the column and the row.
#
# With an idempotency key, the file's name is derived from the key, and the file is only created,
# never replaced. The table remembers the key with the rows, as a part of its version. So however
# often a call is repeated, with whatever the frame then holds, and whatever the table is called by
# then, the rows that were uploaded first are those of the table; only a restore or a reset that
# takes them away forgets the key too. A frame without rows uploads no file, and so takes no key.

MAX_KEY_CHARACTERS = 1024
FEW_BYTES = 256 * 1024
"""Rows of so many bytes are ingested from memory: to write them to a file and to read it would take
most of the time."""


def _file_rows(table: Table) -> tuple[Schema, Callable[[_Batches], _Batches]]:
    """Return the columns of files of a table, and what yields their rows once they are checked."""
    changes = changes_in_files(table.schema, table.properties)
    return (changes.file_schema, changes.checked) if changes else (table.schema.opened, iter)


def _few(batches: _Batches) -> tuple[list[pa.RecordBatch], bool]:
    """Return the first batches of a frame, and whether they are all of it, and few."""
    first: list[pa.RecordBatch] = []
    for batch in batches:
        first.append(batch)
        if sum(each.nbytes for each in first) > FEW_BYTES:
            return first, False
    return first, True


def idempotent_key(table: Table, idempotency_key: str, part: str = "") -> str:
    """Return the key in the ingest bucket of the rows that have this idempotency key.
    Raises InvalidRequestError: the key is empty or too long.
    """
    if not 1 <= len(idempotency_key) <= MAX_KEY_CHARACTERS:
        raise InvalidRequestError(
            f"an idempotency key has 1 to {MAX_KEY_CHARACTERS:,} characters",
            hint="a key that names what is ingested, such as 'orders-2026-01-31'",
        )
    return ingest_key(
        table.name,
        sources.keyed_name(sources.digest_of_key(idempotency_key), part, table, "parquet"),
    )


def _write_batches(batches: Iterable[pa.RecordBatch], schema: Schema, local: Path) -> int:
    """Write batches to a Parquet file with the types of the table; return how many rows it has."""
    rows = 0
    with pq.ParquetWriter(local, arrow_schema(schema), compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)
            rows += batch.num_rows
    return rows


# Write rows one by one: `TableHandle.writer` cuts them into files, and drops each when it is full.
#
# Each file is ingested exactly once, as a whole. Files that were dropped stay if a later row fails,
# so a writer that is repeated after an error needs an idempotency key, and the same rows in the
# same order: then its files have the same names, and those that were dropped are not dropped again.

BATCH_ROWS = 1024
"""How many rows are converted at once."""


class TableWriter:
    """Collects rows, and drops a file of them whenever there are enough; use it with `with`.

    If the block ends with an exception, the rows since the last file are dropped.
    """

    def __init__(
        self,
        handle: TableHandle,
        *,
        file_bytes: int,
        idempotency_key: str | None = None,
        tags: Mapping[str, str] = NO_TAGS,
    ) -> None:
        """Begin with no rows; each file has about `file_bytes` of them, and all have `tags`."""
        row_tags(tags)
        self._tags = tags
        if idempotency_key is not None:
            idempotent_key(handle.table, idempotency_key)
        table = handle.current()
        self._handle = handle
        self._schema, self._checked = _file_rows(table)
        self._file_bytes, self._idempotency_key = file_bytes, idempotency_key
        self._rows: list[Row] = []
        self._written_rows = self._pending_bytes = 0
        self._folder = OwnFolder(dir=handle.services.scratch)
        self._local = Path(self._folder.name) / "rows.parquet"
        self._parquet: pq.ParquetWriter | None = None
        self._sources: list[sources.Source] = []
        self._known: set[str] = set()
        self._is_open = True

    @property
    def ingested(self) -> Ingested:
        """The files that were dropped so far; its `wait` returns when they are rows."""
        return Ingested(self._handle, tuple(self._sources), frozenset(self._known))

    def write(self, rows: Row | Frame) -> None:
        """Write one row, a mapping of columns to values, or all rows of a frame.

        Raises:
            RefusedSourceError: a column is unknown or missing, or a value does not fit it. Of a
                refused frame no row is written. A row's values are checked with those of the next
                rows; the message has its number, and the writer is closed without them.
            InvalidRequestError: the writer is closed, these are no rows, or a stream that was read
                before.
        """
        if not self._is_open:
            raise InvalidRequestError("the writer is closed", hint="open another one")
        if isinstance(rows, Mapping):
            check_columns([*rows], self._schema, of="the row", quotes_all=True)
            self._rows.append(rows)
            if len(self._rows) >= BATCH_ROWS:
                self._convert()
        elif is_frame(rows):
            self._convert()
            self._add_whole(self._checked(read_frame(rows, self._schema)))
        else:
            raise InvalidRequestError(
                f"a {type(rows).__name__} is no row",
                hint=how_to_frame(rows) or "write a dict of column names and values, or a frame",
            )

    def close(self) -> Ingested:
        """Drop the last file, and return all of them; in a folder, once they are rows.
        Raises RefusedSourceError: a value does not fit its column.
        """
        try:
            if self._is_open:
                self._convert()
                self._drop()
        finally:
            self.discard()
        if self._handle.polling.works_here:
            self.ingested.wait(timeout_seconds=inf)
        return self.ingested

    def discard(self) -> None:
        """Close the writer, and forget the rows since the last file."""
        self._is_open = False
        self._rows.clear()
        if self._parquet is not None:
            self._parquet.close()
            self._parquet = None
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Drop the last file; after an exception, forget its rows instead."""
        if error is None:
            self.close()
        else:
            self.discard()

    def _convert(self) -> None:
        if not self._rows:
            return
        rows, self._rows = self._rows, []
        try:
            batch = rows_to_batch(rows, self._schema, self._written_rows)
            self._add(*self._checked(with_fitting_keys([batch], self._schema)))
        except RefusedSourceError:
            self.discard()  # the rows around the refused one are in no file, nor could be later
            raise

    def _add_whole(self, batches: _Batches) -> None:
        """Add batches once all are known to fit: a single one at once, others by way of a file."""
        first, second = next(batches, None), next(batches, None)
        if first is None:
            return
        if second is None:
            self._add(first)
            return
        local = str(Path(self._folder.name) / "frame.arrow")
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(local, first.schema, options=options) as spool:
            for batch in chain((first, second), batches):
                spool.write_batch(batch)
        with pa.ipc.open_file(local) as spooled:
            for at in range(spooled.num_record_batches):
                self._add(spooled.get_batch(at))
        Path(local).unlink()

    def _add(self, batch: pa.RecordBatch) -> None:
        if self._parquet is None:
            self._parquet = pq.ParquetWriter(
                self._local, arrow_schema(self._schema), compression="zstd"
            )
        self._parquet.write_batch(batch)
        self._written_rows += batch.num_rows
        self._pending_bytes += batch.nbytes
        if self._pending_bytes >= self._file_bytes:
            self._drop()

    def _drop(self) -> None:
        if self._parquet is None:
            return
        self._parquet.close()
        self._parquet, self._pending_bytes = None, 0
        self._handle = self._handle.latest()  # it may be renamed while rows are written
        drop = Drop(self._handle, idempotency_key=self._idempotency_key, tags=self._tags)
        files = drop.files([(self._key(), self._local)])
        self._sources += files.sources
        self._known |= files.known

    def _key(self) -> str:
        if self._idempotency_key is None:
            return ingest_key(self._handle.name, f"{self._handle.services.ids.new()}.parquet")
        part = f"-{len(self._sources):05}"
        return idempotent_key(self._handle.table, self._idempotency_key, part)
