"""Exports of one table: request them, wait for them, download their files."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dormouse.client.listing import RequestedWork
from dormouse.client.table import TableHandle
from dormouse.client.versions import selection_message
from dormouse.errors import CorruptDataError, InvalidRequestError, NotFoundError
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
from dormouse.key_codec import KeyLike, Ranges
from dormouse.messages.requests import ExportRows
from dormouse.state.versions import AsOf
from dormouse.stored.paths import MANIFEST
from dormouse.tables.table import Table

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
        done = parts_of(services.storage, export).ended(export.tasks)
        return ExportProgress(len(done), export.tasks)

    def _result(self) -> ExportManifest:
        return self.manifest()

    def manifest(self) -> ExportManifest:
        """Return the manifest: the version, and every file with its rows.

        Raises:
            NotFoundError: the export is not complete, or failed; the message says why.
        """
        services = self.handle.services
        found = load_manifest(services.results, self.to)
        if found is not None and found.export == self.id:
            return found
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
