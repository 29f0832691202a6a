"""The rows of a statement in SQL, exported: files below a prefix of the results bucket, and a
manifest that is written last.

The statement runs in a process of this machine, as `Instance.sql` does, and its rows are uploaded
from here. It reads one version of each table from the first file to the last.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dormouse.errors import AlreadyExistsError, InvalidRequestError
from dormouse.features.kinds import ManifestKind
from dormouse.files.results import ResultFormat, RowFile
from dormouse.storage import check_path
from dormouse.stored.paths import MANIFEST

if TYPE_CHECKING:
    import pyarrow as pa

    from dormouse.features.queries import QueryEnd
    from dormouse.ports import Services
    from dormouse.query.result import QueryResult


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
    found: QueryResult,
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
    with closing(found):
        files = tuple(_files(services, found, to, form, file_bytes))
    manifest = StatementManifest(
        statement,
        dict(found.versions),
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
    services: Services, found: QueryResult, to: str, form: ResultFormat, file_bytes: int
) -> Iterator[StatementFile]:
    """Write the files, and yield what is in each; without rows there is one that has none."""
    batches = iter(found)
    batch = next(batches, None)
    number = 0
    while batch is not None or number == 0:
        name = f"rows-{number:05d}{form.suffix}"
        with tempfile.TemporaryDirectory(dir=services.scratch) as folder:
            local = Path(folder) / name
            file = RowFile(local, form, found.schema)
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
