"""Work on a table that a caller has requested, and may wait for."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import msgspec

from dormouse.client.table import TableHandle
from dormouse.client.waiting import WAIT_SECONDS, Awaited, Progress, TaskProgress
from dormouse.errors import CorruptDataError, DormouseError, InvalidRequestError, NotFoundError
from dormouse.features import export, purge
from dormouse.features.answer_query import FileSink
from dormouse.features.purge_rows import prove_purge
from dormouse.features.queries import QueryEnd
from dormouse.features.requests import ManifestKind, ResultFile
from dormouse.files.results import ResultFormat
from dormouse.jobs import Progress as Watch
from dormouse.ports import Services
from dormouse.query.result import QueryResult
from dormouse.stored.paths import MANIFEST
from dormouse.tables.table import Table

_Progress = TypeVar("_Progress", bound=Progress)
_Result = TypeVar("_Result")


@dataclass(frozen=True, repr=False)
class RequestedWork(ABC, Generic[_Progress, _Result]):
    """Requested work, which the instance does whether the caller waits or not.

    `id` is its id among the table's jobs. `queue` is that of its messages.
    """

    queue: ClassVar[str]
    handle: TableHandle
    table: Table
    id: str

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id} of table {self.table.name!r})"

    @abstractmethod
    def progress(self) -> _Progress | None:
        """Return the progress; None once it has ended."""

    @abstractmethod
    def _result(self) -> _Result:
        """Return what has come of it; raise why it failed."""

    def wait(
        self,
        timeout_seconds: float = WAIT_SECONDS,
        *,
        watch: Callable[[_Progress], None] | None = None,
    ) -> _Result:
        """Wait until it has ended, and return what has come of it.

        Raises:
            DormouseError: it failed; the message says why.
            TimedOutError: it had not ended after `timeout_seconds`.
            DeadLetterError: only a dead letter is left of it.
        """
        self.handle.polling.until_ended(
            self.progress,
            timeout_seconds=timeout_seconds,
            watch=watch,
            awaited=Awaited(self.handle.services, (self.queue, "spark-jobs"), lambda: [(self.id,)]),
        )
        return self._result()


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
            NotFoundError: the export is not complete.
            DormouseError: it failed; the message says why.
        """
        services = self.handle.services
        manifest = export.load_manifest(services.results, self.to)
        if manifest is not None and manifest.export == self.id:
            return manifest
        record = services.tracker.get(self.table.id, self.id)
        if record is not None and record.state == "failed":
            raise DormouseError(f"the export to {self.uri} failed: {record.reason}")
        raise NotFoundError(f"the export to {self.uri} is not complete", hint="wait for it")

    def download(
        self, folder: str | Path, *, watch: Callable[[str], None] | None = None
    ) -> export.ExportManifest:
        """Copy the files of a complete export into a folder that is new or empty.

        The manifest is copied last. `watch` is called with the name of each file after its copy.

        Raises:
            NotFoundError: the export is not complete, or a file was deleted since.
            DormouseError: it failed.
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
    Raises InvalidRequestError: it is a file, it is not empty, or it cannot be created.
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
    Raises AlreadyExistsError: somebody else writes below the prefix.
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


@dataclass(frozen=True, slots=True)
class PurgeProgress:
    """The progress of a purge: shards examined, to be examined, and to be rewritten."""

    examined: int
    to_examine: int
    to_rewrite: int

    @property
    def left(self) -> int:
        """The number of shards to be examined or rewritten."""
        return self.to_examine + self.to_rewrite


@dataclass(frozen=True, repr=False)
class Purge(RequestedWork[PurgeProgress, None]):
    """A requested purge. Its steps run in the instance, whether the caller waits or not.

    Once it has ended, the table has no matching row of before it; objects with such rows may be
    deleted later.
    """

    queue = "purges"
    rows: purge.PurgeRequest

    def progress(self) -> PurgeProgress | None:
        """Return the progress; None once the purge is finished or has failed."""
        services, table_id = self.handle.services, self.table.id
        request = purge.load_purge(services, table_id, self.id)
        if request is None:
            return None
        matches = purge.load_matches(services, table_id, self.id)
        state = self.handle.state()
        rewritten = purge.referenced_of(state, matches.matching)
        return PurgeProgress(
            len(matches), len(purge.unchecked_shards(state, request, matches)), len(rewritten)
        )

    def _result(self) -> None:
        record = self.handle.services.tracker.get(self.table.id, self.id)
        if record is not None and record.state == "failed":
            raise DormouseError(f"the purge failed: {record.reason}")

    def proof(self, watch: Watch | None = None) -> purge.Proof:
        """Look for rows that match, in the table and in every object."""
        table = self.handle.current()  # its state may be in another log since
        if table.schema_generation == self.table.schema_generation:  # a name may be another column
            table = replace(table, schema=self.table.schema)
        return prove_purge(self.handle.services, table, self.rows, watch)
