"""Load the rows of an ingest job: whole files or nothing, then all rows sorted.

A file may be invalid in its last row. Its rows are therefore sorted separately, and added to those
of the job only when the file was read to its end.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.sealing import ColumnKeys
from dormouse.arrow.types import arrow_schema, conform
from dormouse.encryption import KeyService
from dormouse.errors import RefusedSourceError
from dormouse.files.change_data import Emptied, FileChanges, changes_in_files
from dormouse.files.formats import read_source
from dormouse.files.rejects import RejectedRows, Rejects, RowNumbers
from dormouse.ports import Arrivals, Sources, Storage
from dormouse.rows.predicates import apply_row_rules
from dormouse.rows.sorting import SHARE_HELD, Sorter
from dormouse.schema.schema import (
    ETAG,
    FILE,
    FROM_FILES,
    ROW_ID,
    ROW_NUMBER,
    SEQUENCE,
    TAGS,
    TOMBSTONE,
    Field,
    Schema,
)
from dormouse.state.sources import Source, on_error_of, row_tags_of
from dormouse.storage import read_ahead
from dormouse.stored.paths import REJECTED
from dormouse.tables.properties import CsvDialect, csv_dialect
from dormouse.tables.row_rules import origin_fields, row_rules
from dormouse.tables.table import Table

DOWNLOADS_AT_ONCE = 16
AHEAD_BYTES = 256 * 1024 * 1024
"""How much of the scratch space holds files that are downloaded ahead of the one that is loaded."""
Begins = Callable[[Source | None], None]
"""What is called with each source before its first byte is looked at, and then with None."""


ROWS_OF_A_FILE = 2**40
"""More rows than a file has: the rows of the next file have places of their own."""


@dataclass(eq=False)
class SourceLoader:
    """Collects the rows of valid files in `sorter`, in memory and then in `scratch`. As a whole it
    uses about `memory_bytes` of memory.

    `dialect` is the dialect of CSV files, by default comma-separated with a header. `on_error` says
    by its key whether rows of a file are skipped; `store` puts such rows, in a local file, into the
    data root under a name, and returns the path there. Without it, none are skipped. With
    `changes`, rows get the columns that such a table stores; `SEQUENCE` orders those that are
    loaded here, by the `order` of their keys if it is given, else as they come. Rows get what is
    `added`, of `TAGS` and `FROM_FILES`, as columns. Unless the table `keeps_tags`, files with row
    tags are refused. Columns that are encrypted are so by `keys`.

    `rejected` names the files that had rows rejected; these rows are in the data root, written
    before any of the others, and once, under a name made of the file and of what was rejected.
    `emptied` is the last time that the source emptied its table, if it did, with the place of that
    among the rows.
    """

    schema: Schema
    scratch: Path
    _: KW_ONLY
    memory_bytes: int
    dialect: CsvDialect | None = None
    on_error: Callable[[str], str] = on_error_of
    store: Callable[[str, Path], str] | None = None
    changes: FileChanges | None = None
    order: Mapping[str, int] | None = None
    added: Sequence[Field] = ()
    keeps_tags: bool = True
    keys: ColumnKeys | None = None
    rejected: list[RejectedRows] = field(default_factory=list, init=False)
    emptied: Emptied | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._files = 0
        self.sorter = self._sorter()

    @property
    def columns(self) -> Schema:
        """The columns of the loaded rows."""
        return self.schema.with_values(*self.added)

    def add(
        self, local: Path, key: str, arrivals: Arrivals | None = None, source: Source | None = None
    ) -> None:
        """Load a whole file; `key` is the object key under which it was dropped, and `source` says
        the rest about it. On an error, none of its rows is loaded.

        With `arrivals`, rows are read while the file arrives, and loaded when all of it has.

        Raises:
            RefusedSourceError: the file is invalid.
            Exception: what the download of the file raised.
            OSError: the scratch space may be full.
        """
        origin = self._origin(source)
        missing = arrivals if arrivals is not None and arrivals.is_incomplete() else None
        staged = self._sorter()
        left_out = self.scratch / f"{local.name}.rejected"
        skips = self.store is not None and self.on_error(key) == "skip"
        if skips and self.schema.encrypted:
            raise RefusedSourceError(
                "its table has encrypted columns, and rows left out would be kept in plain",
                hint="drop it to be read whole: on_error=refuse",
            )
        rejects = Rejects(key, left_out) if skips else None
        file, emptied = (self.order or {}).get(key, self._files), list[Emptied]()
        changes = self.changes and replace(self.changes, emptied=emptied.append)
        numbers = RowNumbers(is_asked=ROW_NUMBER in self.added)
        rows = read_source(
            local, key, self.schema.opened, self.dialect, missing, rejects, changes, numbers
        )
        try:
            with closing(read_ahead(rows)) as batches:
                for batch in self._in_order(batches, file, origin, numbers):
                    staged.add(batch)
                    self._make_room(staged)
            if missing is not None:
                missing.wait_for_all()
            if rejects is not None and rejects.rows and self.store is not None:
                rejects.check(staged.rows)
                path = self.store(local.name, left_out)
                self.rejected.append(RejectedRows(key, rejects.rows, path))
        except BaseException:
            staged.discard()
            raise
        finally:
            left_out.unlink(missing_ok=True)
        self.sorter.absorb(staged)
        self._files += 1
        first = file * ROWS_OF_A_FILE
        times = (replace(each, row=first + each.row) for each in emptied)
        self.emptied = last_emptied([self.emptied, *times])

    def add_rows(self, batches: Iterable[pa.RecordBatch], source: Source | None = None) -> None:
        """Load rows in the types of the table, or of its files if it has `changes`, as if they were
        in the file `source`.
        Raises RefusedSourceError: rows of the table have no row tags.
        """
        origin = self._origin(source)
        rows = batches if self.changes is None else self.changes.stored(batches)
        for batch in self._in_order(rows, self._files, origin, RowNumbers()):
            self.sorter.add(batch)
        self._files += 1

    def _origin(self, source: Source | None) -> dict[str, str]:
        """Return what all rows of a file have in the columns that are added."""
        if source is None:
            return {}
        if (tags := row_tags_of(source)) and not self.keeps_tags:
            raise RefusedSourceError(
                "it has row tags, and rows of a table with aggregations have none: one may come of "
                "several files",
                hint="drop it without row tags",
            )
        return {TAGS.name: tags, FILE.name: source.key, ETAG.name: source.etag}

    def _in_order(
        self,
        batches: Iterable[pa.RecordBatch],
        file: int,
        origin: Mapping[str, str],
        numbers: RowNumbers,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file with the columns that are added, such as places."""
        first = file * ROWS_OF_A_FILE
        for batch in batches if self.keys is None else map(self.keys.encrypted, batches):
            if self.changes is not None:
                places = pa.arange(first, first + batch.num_rows)  # type: ignore[attr-defined]  # stubs lag
                batch = batch.append_column(SEQUENCE.name, places)  # noqa: PLW2901
                first += batch.num_rows
            for column in self.added:
                cells = (
                    numbers.take(batch.num_rows)
                    if column == ROW_NUMBER
                    else pa.repeat(pa.scalar(origin.get(column.name), pa.string()), batch.num_rows)
                )
                batch = batch.append_column(column.name, cells)  # noqa: PLW2901
            yield batch

    def _sorter(self) -> Sorter:
        return Sorter(self.columns, self.scratch, memory_bytes=self.memory_bytes)

    def _make_room(self, staged: Sorter) -> None:
        if self.sorter.held_bytes + staged.held_bytes > self.memory_bytes // SHARE_HELD:
            max(self.sorter, staged, key=lambda sorter: sorter.held_bytes).spill()


def loader_of(
    table: Table,
    storage: Storage,
    scratch: Path,
    *,
    memory_bytes: int,
    order: Mapping[str, int] | None = None,
    tagged: bool = False,
    keys: KeyService,
) -> SourceLoader:
    """Return a loader of files of a table, as its properties say; `order` is that of their keys.
    Rows get their row tags as a column if they are `tagged`, and `keys` encrypt columns.
    """

    def store(source: str, left_out: Path) -> str:
        with left_out.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        path = f"{REJECTED.prefix(table.id)}{source}-{digest[:16]}.jsonl"
        storage.upload(path, left_out)
        return path

    rules = row_rules(table.schema, table.properties)
    return SourceLoader(
        rules.stored_schema(table.schema),
        scratch,
        memory_bytes=memory_bytes,
        dialect=csv_dialect(table.properties),
        on_error=lambda key: on_error_of(key) or table.properties.ingest_on_error,
        store=store,
        changes=changes_in_files(table.schema, table.properties),
        order=order,
        added=_added_fields(table, tagged=tagged),
        keeps_tags=rules.keeps_tags,
        keys=ColumnKeys(keys, table.schema, table.id) if table.schema.encrypted else None,
    )


def loaded_schema(table: Table, *, tagged: bool) -> Schema:
    """Return the columns of rows that were read from files, until they are in shards."""
    schema = row_rules(table.schema, table.properties).stored_schema(table.schema)
    return schema.with_values(*_added_fields(table, tagged=tagged))


def _added_fields(table: Table, *, tagged: bool) -> tuple[Field, ...]:
    fields = origin_fields(row_rules(table.schema, table.properties), table.properties)
    return (*(f for f in FROM_FILES if f in fields), *([TAGS] if tagged else []))


def ingested_schema(table: Table, sources: Iterable[Source]) -> tuple[Schema, str]:
    """Return the columns of the shards that are ingested into a table from `sources`, and the row
    tags of all rows if these are no column. In a table that keeps the latest rows, their commit
    says of all what `SEQUENCE` says of each.
    """
    rules = row_rules(table.schema, table.properties)
    schema = table.schema.with_values(TOMBSTONE) if rules.keeps_latest else table.schema
    schema = schema.with_values(*_added_fields(table, tagged=False))
    if ROW_ID in origin_fields(rules, table.properties):
        schema = schema.with_values(ROW_ID)
    tags = {*map(row_tags_of, sources)}
    return (schema, tags.pop()) if len(tags) == 1 else (schema.with_values(TAGS), "")


def ruled_rows(
    batches: Iterable[pa.RecordBatch],
    table: Table,
    now_ms: int,
    loaded: Schema,
    columns: Schema,
    emptied: Emptied | None,
    reserve: Callable[[int], int],
) -> Iterator[pa.RecordBatch]:
    """Yield what the rules of a table leave of sorted rows that were loaded, and were not there
    when their source `emptied` its table; with some columns. `reserve` returns the first of so many
    new ids of rows.
    """
    rules, target = row_rules(table.schema, table.properties), arrow_schema(columns)
    if emptied is not None and not emptied.position:
        first = pa.scalar(emptied.row, pa.int64())
        batches = (rows.filter(pc.greater_equal(rows[SEQUENCE.name], first)) for rows in batches)
    at = target.get_field_index(ROW_ID.name)
    for batch in apply_row_rules(batches, loaded, rules, now_ms):
        rows = conform(batch, target)
        if at >= 0:
            least = reserve(rows.num_rows)
            ids = pa.array(range(least, least + rows.num_rows), pa.int64())
            rows = rows.set_column(at, target.field(at), ids)
        yield rows


def last_emptied(times: Iterable[Emptied | None]) -> Emptied | None:
    """Return the last time that the source emptied its table, as far as some files tell."""
    return max((each for each in times if each is not None), default=None)


Loaded = Generator[tuple[Source, RefusedSourceError | None]]
"""Sources that were loaded, or with the reason if they were not."""


LocalRows: TypeAlias = Path | Sequence[pa.RecordBatch]
"""A local file, or rows that fit the table, in its types."""


def load_local(loader: SourceLoader, source: Source, local: LocalRows) -> Loaded:
    """Load one source that is a local file or rows, and yield it; the file stays."""
    try:
        if isinstance(local, Path):
            loader.add(local, source.key, source=source)
        else:
            loader.add_rows(local, source)
    except RefusedSourceError as error:
        yield source, error
    else:
        yield source, None


def load_sources(
    sources: Sources,
    loader: SourceLoader,
    files: Iterable[Source],
    scratch: Path,
    begins: Begins | None = None,
) -> Loaded:
    """Load sources in their order; yield each when it is loaded, or with the reason if it is not.

    While one is loaded, its rest and the next ones are downloaded: many small ones at once. No row
    of a source that is refused is loaded, and its local copy is removed as that of any other.
    `begins` is called as `Begins` says.

    Raises:
        UnavailableError: a source could not be read.
        OSError: the scratch space may be full.
    """
    queue = deque(files)
    local: deque[_LocalSource] = deque()
    with ThreadPoolExecutor(DOWNLOADS_AT_ONCE) as threads:
        try:
            while queue or local:
                while queue and _has_room(local, queue[0]):
                    local.append(_LocalSource.download(threads, sources, queue.popleft(), scratch))
                if begins is not None:
                    begins(local[0].source)
                yield local[0].source, local[0].load(loader)
                local.popleft()
            if begins is not None:
                begins(None)
        finally:
            for source in local:
                source.discard()


@dataclass(frozen=True, slots=True)
class _LocalSource:
    """A source that is being downloaded, or was."""

    source: Source
    path: Path
    arrivals: Arrivals
    downloaded: Future[None]

    @staticmethod
    def download(
        threads: Executor, sources: Sources, source: Source, scratch: Path
    ) -> "_LocalSource":
        path, arrivals = scratch / source.id, Arrivals(source.size_bytes)
        downloaded = threads.submit(sources.download, source, path, arrivals.add)
        downloaded.add_done_callback(arrivals.end)
        return _LocalSource(source, path, arrivals, downloaded)

    def load(self, loader: SourceLoader) -> RefusedSourceError | None:
        """Load its rows, and remove the file; return the reason if it is refused.

        What a file whose download failed looks like is no reason.
        """
        try:
            loader.add(self.path, self.source.key, self.arrivals, self.source)
        except RefusedSourceError as error:
            return self._refused_download() or error
        finally:
            self.discard()
        return None

    def _refused_download(self) -> RefusedSourceError | None:
        """Return why the download was refused, if it was. Raises what else it has raised so far."""
        try:
            self.arrivals.is_incomplete()
        except RefusedSourceError as error:
            return error
        return None

    def discard(self) -> None:
        """End the download, and remove the file."""
        self.downloaded.cancel()
        self.arrivals.stop()
        wait([self.downloaded])
        self.path.unlink(missing_ok=True)


def _has_room(local: Sequence[_LocalSource], following: Source) -> bool:
    """Return whether another source may be downloaded ahead of those that are not loaded yet."""
    ahead_bytes = sum(each.source.size_bytes for each in islice(local, 1, None))
    return not local or ahead_bytes + following.size_bytes <= AHEAD_BYTES
