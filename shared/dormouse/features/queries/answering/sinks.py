"""Where the rows of sub-queries go: a port, and files of a format in the results bucket behind it.

An attempt at a sub-query writes files of its own, so attempts side by side do not disturb each
other. The end of the sub-query, which is put once, names the files of one attempt; the files of the
others are never named, and expire with the rest.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Protocol

from dormouse.features.queries.query import ResultFile
from dormouse.ports.uploads import Upload
from dormouse.results.files import RowFile
from dormouse.results.formats import ResultFormat
from dormouse.stored.paths import query_file, query_prefix

if TYPE_CHECKING:
    import pyarrow as pa

    from dormouse.ports.services import Storage

FILE_BYTES = 256 * 1024 * 1024
"""About the size at which a file of a result ends."""


class ResultSink(Protocol):
    """Takes the rows of one attempt at one sub-query, in their order.

    `begin` comes first; then `write`, as often as there are batches; then `end`, after which the
    rows are stored, or `abort`, which may come at any time, and does nothing after `end`.
    """

    @property
    def size_bytes(self) -> int:
        """About how many bytes were written so far."""

    def begin(self, schema: pa.Schema) -> None:
        """Say of which schema the batches will be; without rows, too."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Take the next rows."""

    def end(self) -> tuple[ResultFile, ...]:
        """Store what was written, and return the files, in the order of the rows."""

    def abort(self) -> None:
        """Forget what was written and is not stored."""


class FileSink:
    """Puts files into the results bucket; see `ResultSink`."""

    def __init__(
        self,
        results: Storage,
        scratch: Path,
        place: tuple[str, int, str],
        format: str,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        """Write for a query, a task and an attempt."""
        self._results, self._place, self._file_bytes = results, place, file_bytes
        self._format = ResultFormat(format)
        self._folder = TemporaryDirectory(prefix="query-", dir=scratch)
        self._schema: pa.Schema | None = None
        self._files: list[ResultFile] = []
        self._stored_bytes = self._rows = 0
        self._writer: RowFile | None = None
        self._upload: Upload | None = None

    @property
    def size_bytes(self) -> int:
        """About how many bytes were written so far."""
        return self._stored_bytes + (self._writer.size_bytes if self._writer else 0)

    def begin(self, schema: pa.Schema) -> None:
        """Keep the schema for the files."""
        self._schema = schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows to the present file; store it once it is large enough."""
        if not batch.num_rows:
            return
        if self._writer is None:
            assert self._schema is not None
            self._upload = self._results.start_upload(self._path, self._local)
            self._writer = RowFile(self._local, self._format, self._schema)
        self._writer.write(batch)
        self._rows += batch.num_rows
        if self._upload is not None:
            self._upload.advance(self._writer.size_bytes)
        if self._writer.size_bytes >= self._file_bytes:
            self._store()

    def end(self) -> tuple[ResultFile, ...]:
        """Store the last file; return all."""
        if self._writer is not None:
            self._store()
        self._folder.cleanup()
        return tuple(self._files)

    def abort(self) -> None:
        """Forget the present file. Those before are named nowhere, and expire."""
        writer, self._writer = self._writer, None
        upload, self._upload = self._upload, None
        if writer is not None:
            writer.end()
        if upload is not None:
            upload.abort()
        self._folder.cleanup()

    @property
    def _name(self) -> str:
        _, task, attempt = self._place
        return query_file(task, attempt, len(self._files), self._format.suffix[1:])

    @property
    def _path(self) -> str:
        return query_prefix(self._place[0]) + self._name

    @property
    def _local(self) -> Path:
        return Path(self._folder.name) / self._name

    def _store(self) -> None:
        assert self._writer is not None
        assert self._upload is not None
        self._writer.close()
        local, self._writer = self._local, None
        size_bytes = local.stat().st_size
        self._upload.complete()
        self._upload = None
        self._files.append(ResultFile(self._name, self._rows, size_bytes))
        self._stored_bytes += size_bytes
        self._rows = 0
        local.unlink(missing_ok=True)
