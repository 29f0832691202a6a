"""Exports of one table: request them, wait for them, download their files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dormouse.client.listing import RequestedWork
from dormouse.client.table import TableHandle
from dormouse.client.versions import selection_message
from dormouse.errors import AlreadyExistsError, CorruptDataError, InvalidRequestError, NotFoundError
from dormouse.features.administration import administer
from dormouse.features.export import (
    MANIFESTS,
    ExportManifest,
    destination,
    export_id_of,
    load_export,
    load_manifest,
    parts_of,
)
from dormouse.features.kinds import ManifestKind
from dormouse.files.results import ResultFormat, RowFile
from dormouse.key_codec import KeyLike, Ranges
from dormouse.messages.requests import ExportRows
from dormouse.state.versions import AsOf
from dormouse.storage import check_path
from dormouse.stored.paths import MANIFEST
from dormouse.tables.table import Table

if TYPE_CHECKING:
    import pyarrow as pa

    from dormouse.features.queries import QueryEnd
    from dormouse.ports import Services
    from dormouse.query.result import QueryResult

_COPY_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ExportProgress:
    """The progress of an export: tasks done, and all tasks."""

    done: int
    tasks: int

    @property
    def left(self) -> int:
        """The number of tasks that are not done."""
        return self.tasks - self.done


@dataclass(frozen=True, repr=False)
class Export(RequestedWork[ExportProgress, ExportManifest]):
    """A requested export. Its tasks run in the instance, whether the caller waits or not.

    `to` is the prefix in the results bucket. Once it has ended, `wait` returns its manifest.
    """

    queue = "exports"
    to: str

    @property
    def uri(self) -> str:
        """Where the files are, with the bucket."""
        return f"{self.handle.services.results.uri}/{self.to}"

    def progress(self) -> ExportProgress | None:
        """Return the progress; None once the export is complete or has failed."""
        services, table_id = self.handle.services, self.table.id
        export = load_export(services, table_id, self.id)
        if export is None:
            return None
        ends = parts_of(services.storage, export).ended(export.tasks)
        return ExportProgress(len(ends), export.tasks)

    def _result(self) -> ExportManifest:
        return self.manifest()

    def manifest(self) -> ExportManifest:
        """Return the manifest: the version, and every file with its rows.

        Raises:
            NotFoundError: the export is not complete, or failed; the message says why.
        """
        services = self.handle.services
        manifest = load_manifest(services.results, self.to)
        if manifest is not None and manifest.export == self.id:
            return manifest
        record = services.tracker.get(self.table.id, self.id)
        if record is not None and record.state == "failed":
            raise NotFoundError(f"the export to {self.uri} failed: {record.reason}")
        raise NotFoundError(f"the export to {self.uri} is not complete", hint="wait for it")

    def download(
        self, folder: str | Path, *, watch: Callable[[str], None] | None = None
    ) -> ExportManifest:
        """Copy the files of a complete export into a folder that is new or empty.

        The manifest is copied last. `watch` is called with the name of each file after its copy.

        Raises:
            NotFoundError: the export is not complete, or a file was deleted since.
            InvalidRequestError: the folder is not empty.
        """
        manifest = self.manifest()
        target = empty_folder(Path(folder))
        for file in manifest.files:
            self._copy(file.name, file.size_bytes, target / file.name)
            if watch is not None:
                watch(file.name)
        (target / MANIFEST).write_bytes(MANIFESTS.encode(manifest, MANIFEST))
        return manifest

    def _copy(self, name: str, size_bytes: int, local: Path) -> None:
        if not name or "/" in name:
            raise CorruptDataError(
                f"{self.to}/{MANIFEST} names {name!r}, which is not a file of this export"
            )
        partial = local.with_name(f".{name}.partial")
        path = f"{self.to}/{name}"
        try:
            with (
                self.handle.services.results.open(path, size_bytes) as source,
                partial.open("wb") as sink,
            ):
                shutil.copyfileobj(source, sink, _COPY_BYTES)
            if partial.stat().st_size != size_bytes:
                raise CorruptDataError(
                    f"{path} has {partial.stat().st_size} bytes, not {size_bytes}"
                )
            partial.replace(local)
        finally:
            partial.unlink(missing_ok=True)


def empty_folder(folder: Path) -> Path:
    """Return an empty folder; create it if it does not exist.

    Raises:
        InvalidRequestError: it is a file, it is not empty, or it cannot be created.
    """
    hint = "name one that is new or empty"
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InvalidRequestError(f"{str(folder)!r} is not an empty folder", hint=hint)
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in its name
        raise InvalidRequestError(
            f"{str(folder)!r} cannot be used: {getattr(error, 'strerror', None) or error}",
            hint=hint,
        ) from error
    return folder


def start_export(handle: TableHandle, table: Table, request: ExportRows) -> Export:
    """Send the request of an export.

    Raises:
        InvalidRequestError: a key, column, condition, time or prefix does not fit the table.
        NotFoundError: the table was deleted, or that version is not kept any more.
        AlreadyExistsError: there are objects below the prefix.
    """
    handle.queues.send(administer(handle.services, request))
    return Export(handle, table, export_id_of(request.request_id), destination(request))


def export_request(
    handle: TableHandle,
    table: Table,
    ranges: Ranges | None = None,
    exact: KeyLike | list[KeyLike] | None = None,
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    as_of: AsOf | None = None,
) -> ExportRows:
    """Return the request to export the rows that `TableHandle.query` would return.

    Raises:
        InvalidRequestError: a key or version is invalid, or no rows or columns are selected.
    """
    return ExportRows(
        handle.services.ids.new(),
        table.name,
        selection=selection_message(
            table.schema, ranges, exact, where=where, columns=columns, as_of=as_of
        ),
    )


# The rows of a statement in SQL, exported: files below a prefix of the results bucket, and a
# manifest that is written last.
#
# The statement runs in a process of this machine, as `Instance.sql` does, and its rows are uploaded
# from here. It reads one version of each table from the first file to the last.


FILE_BYTES = 256 * 1024 * 1024
"""About the size at which a file ends."""


class StatementFile(msgspec.Struct, frozen=True):
    """A file of the rows of a statement; `name` is relative to the manifest."""

    name: str
    rows: int
    size_bytes: int


class StatementManifest(msgspec.Struct, frozen=True):
    """The files with the rows of a statement, in their order, and the versions it has read."""

    statement: str
    versions: Mapping[str, tuple[int, ...]]
    time_ms: int
    format: str
    files: tuple[StatementFile, ...]
    rows: int
    size_bytes: int


_MANIFEST = ManifestKind("the manifest of a statement", StatementManifest)


@dataclass(frozen=True, slots=True)
class ExportedStatement:
    """A finished export of a statement: where its files are, and their manifest."""

    uri: str
    manifest: StatementManifest


def free_prefix(services: Services, to: str, form: str) -> tuple[str, ResultFormat]:
    """Return the prefix to export to, by default a new one, and the format.

    Raises:
        InvalidRequestError: there is no such format, or it is no prefix.
        AlreadyExistsError: there are objects below it.
    """
    if form not in list(ResultFormat):
        raise InvalidRequestError(
            f"there is no format {form!r}", hint=f"formats: {', '.join(ResultFormat)}"
        )
    prefix = to.rstrip("/") or f"statements/{services.ids.new()}"
    try:
        check_path(prefix)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"{to!r} is no prefix of the results bucket: {error}",
            hint="give the prefix alone, as reports/2026-01; the bucket is the instance's",
        ) from error
    if next(services.results.list(f"{prefix}/"), None) is not None:
        raise AlreadyExistsError(
            f"there are files below {prefix!r} in the results bucket already",
            hint="export to a prefix of its own",
        )
    return prefix, ResultFormat(form)


def export_result(
    services: Services,
    statement: str,
    result: QueryResult,
    to: str,
    form: ResultFormat,
    *,
    file_bytes: int = FILE_BYTES,
) -> ExportedStatement:
    """Write the rows of a result below a prefix, then the manifest; close the result.

    A crash leaves files without a manifest, which the lifecycle of the results bucket deletes.

    Raises:
        AlreadyExistsError: somebody else writes below the prefix.
    """
    with closing(result):
        files = tuple(_files(services, result, to, form, file_bytes))
    manifest = StatementManifest(
        statement,
        dict(result.versions),
        services.clock.now_ms(),
        form.value,
        files,
        sum(file.rows for file in files),
        sum(file.size_bytes for file in files),
    )
    if not _MANIFEST.put(services.results, f"{to}/{MANIFEST}", manifest):
        raise _is_taken(to)
    return ExportedStatement(f"{services.results.uri}/{to}", manifest)


def exported(uri: str, statement: str, end: QueryEnd) -> ExportedStatement:
    """Return the result of a query over messages as an export of its statement."""
    files = tuple(StatementFile(f.name, f.rows, f.size_bytes) for f in end.files)
    manifest = StatementManifest(
        statement, end.versions, end.ended_ms, end.format, files, end.rows, end.size_bytes
    )
    return ExportedStatement(uri, manifest)


def _files(
    services: Services, result: QueryResult, to: str, form: ResultFormat, file_bytes: int
) -> Iterator[StatementFile]:
    """Write the files, and yield what is in each; without rows there is one that has none."""
    batches = iter(result)
    batch = next(batches, None)
    number = 0
    while batch is not None or number == 0:
        name = f"rows-{number:05d}{form.suffix}"
        with tempfile.TemporaryDirectory(dir=services.scratch) as folder:
            local = Path(folder) / name
            file = RowFile(local, form, result.schema)
            try:
                batch = _fill(file, batch, batches, file_bytes)
                file.close()
            finally:
                file.end()
            if not services.results.upload(f"{to}/{name}", local):
                raise _is_taken(to)
            yield StatementFile(name, file.rows, local.stat().st_size)
        number += 1


def _fill(
    file: RowFile,
    batch: pa.RecordBatch | None,
    batches: Iterator[pa.RecordBatch],
    file_bytes: int,
) -> pa.RecordBatch | None:
    """Write at least one batch, until a file is large enough; return the first that it does not
    have.
    """
    while batch is not None:
        file.write(batch)
        batch = next(batches, None)
        if file.size_bytes >= file_bytes:
            break
    return batch


def _is_taken(to: str) -> AlreadyExistsError:
    return AlreadyExistsError(
        f"another export writes below {to!r}", hint="export to a prefix of its own"
    )
