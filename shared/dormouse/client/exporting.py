"""Exports of one table: request them, wait for them, download their files."""

import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dormouse.client.listing import RequestedWork
from dormouse.client.waiting import TaskProgress
from dormouse.errors import CorruptDataError, InvalidRequestError, NotFoundError
from dormouse.features import export
from dormouse.features.answer_query import FileSink
from dormouse.features.kinds import ManifestKind, ResultFile
from dormouse.features.queries import QueryEnd
from dormouse.files.results import ResultFormat
from dormouse.stored.paths import MANIFEST

if TYPE_CHECKING:
    from dormouse.ports import Services
    from dormouse.query.result import QueryResult

_COPY_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, repr=False)
class Export(RequestedWork[TaskProgress, export.ExportManifest]):
    """A requested export. Its tasks run in the instance, whether the caller waits or not.

    `to` is the prefix in the results bucket. Once it has ended, `wait` returns its manifest.
    """

    queue = "exports"
    to: str

    @property
    def uri(self) -> str:
        """Where the files are, with the bucket."""
        return f"{self.handle.services.results.uri}/{self.to}"

    def progress(self) -> TaskProgress | None:
        """Return the progress; None once the export is complete or has failed."""
        services, table_id = self.handle.services, self.table.id
        request = export.load_export(services, table_id, self.id)
        if request is None:
            return None
        ends = export.parts_of(services.storage, request).ended(request.tasks)
        return TaskProgress(len(ends), request.tasks)

    def _result(self) -> export.ExportManifest:
        return self.manifest()

    def manifest(self) -> export.ExportManifest:
        """Return the manifest: the version, and every file with its rows.

        Raises:
            NotFoundError: the export is not complete, or failed; the message says why.
        """
        services = self.handle.services
        manifest = export.load_manifest(services.results, self.to)
        if manifest is not None and manifest.export == self.id:
            return manifest
        record = services.tracker.get(self.table.id, self.id)
        if record is not None and record.state == "failed":
            raise NotFoundError(f"the export to {self.uri} failed: {record.reason}")
        raise NotFoundError(f"the export to {self.uri} is not complete", hint="wait for it")

    def download(
        self, folder: str | Path, *, watch: Callable[[str], None] | None = None
    ) -> export.ExportManifest:
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
        (target / MANIFEST).write_bytes(export.MANIFESTS.encode(manifest, MANIFEST))
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


# The rows of a statement in SQL, exported: files below a prefix of the results bucket, and a
# manifest that is written last.
#
# The statement runs in a process of this machine, as `Instance.sql` does, and its rows are uploaded
# from here. It reads one version of each table from the first file to the last.


class StatementManifest(msgspec.Struct, frozen=True):
    """The files with the rows of a statement, in their order, and the versions it has read."""

    statement: str
    versions: Mapping[str, tuple[int, ...]]
    time_ms: int
    format: str
    files: tuple[ResultFile, ...]
    rows: int
    size_bytes: int


_MANIFEST = ManifestKind("the manifest of a statement", StatementManifest)


@dataclass(frozen=True, slots=True)
class ExportedStatement:
    """A finished export of a statement: where its files are, and their manifest."""

    uri: str
    manifest: StatementManifest


def free_prefix(services: "Services", to: str, form: str) -> tuple[str, ResultFormat]:
    """Return the prefix to export to, by default a new one, and the format.

    Raises:
        InvalidRequestError: there is no such format, or it is no prefix.
        AlreadyExistsError: there are objects below it.
    """
    if form not in list(ResultFormat):
        raise InvalidRequestError(
            f"there is no format {form!r}", hint=f"formats: {', '.join(ResultFormat)}"
        )
    prefix = export.prefix_of(to, f"statements/{services.ids.new()}")
    if next(services.results.list(f"{prefix}/"), None) is not None:
        raise export.prefix_taken(prefix)
    return prefix, ResultFormat(form)


def export_result(
    services: "Services", statement: str, result: "QueryResult", to: str, form: ResultFormat
) -> ExportedStatement:
    """Write the rows of a result below a prefix, then the manifest; close the result.

    A crash leaves files without a manifest, which the lifecycle of the results bucket deletes.

    Raises:
        AlreadyExistsError: somebody else writes below the prefix.
    """
    sink = FileSink(services.results, services.scratch, f"{to}/", "rows-{:05d}".format, form)
    with closing(result), sink:
        sink.begin(result.schema)
        for batch in result:
            sink.write(batch)
            if sink.is_disturbed:
                break
        files = sink.end(at_least_one=True)
    manifest = StatementManifest(
        statement,
        dict(result.versions),
        services.clock.now_ms(),
        form.value,
        files,
        sum(file.rows for file in files),
        sum(file.size_bytes for file in files),
    )
    if sink.is_disturbed or not _MANIFEST.put(services.results, f"{to}/{MANIFEST}", manifest):
        raise export.prefix_taken(to)
    return ExportedStatement(f"{services.results.uri}/{to}", manifest)


def exported(uri: str, statement: str, end: QueryEnd) -> ExportedStatement:
    """Return the result of a query over messages as an export of its statement."""
    manifest = StatementManifest(
        statement, end.versions, end.ended_ms, end.format, end.files, end.rows, end.size_bytes
    )
    return ExportedStatement(uri, manifest)
