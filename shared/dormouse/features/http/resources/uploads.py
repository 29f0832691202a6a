"""Routes of files and rows on their way into a table.

A file is dropped into the ingest bucket under the table's folder, as by every other way; it becomes
rows some seconds later. Rows of a request are one such file: it is there before the answer.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import md5
from pathlib import Path
from shutil import copyfileobj
from typing import Literal
from urllib.parse import quote

import msgspec

from dormouse.client.computing import RowsRead
from dormouse.client.ingesting.dropping import ingest_key
from dormouse.client.table import TableHandle
from dormouse.errors import DiskFullError, ForbiddenError, InvalidRequestError
from dormouse.features.http.calls import JSON, JSON_LINES, Call, Form, OpenTable, Shown, check_body
from dormouse.features.http.problems import ProblemError
from dormouse.features.http.resources.changes import idempotency_key
from dormouse.features.ingest.known_sources import look_up_sources, refusal_of
from dormouse.http.bodies import Readable
from dormouse.model.sources import Source, keyed_name
from dormouse.ports.services import NO_TABLE
from dormouse.storage import FREE_SPACE, FULL
from dormouse.stored.decoding import decode_json
from dormouse.tables.csv_dialect import csv_dialect
from dormouse.tables.table import Table

ROWS_TYPES = (JSON, JSON_LINES)
PIECE_BYTES = 1024 * 1024
"""How much of a file is in memory while it arrives."""
_UNFIT = "the rows do not fit the table"
_ASK_FOR_NAMES = "some columns are hidden from you: who administers the table can say what is wrong"
UPLOAD_SECONDS = 3600
"""How long a link for an upload can be used."""


class NewFile(Form, frozen=True, kw_only=True):
    """A file to upload: its name, which says the format, such as may.csv or 1.jsonl.gz."""

    name: str


class Upload(Shown, frozen=True, kw_only=True):
    """Where to PUT the content of a file, within `expires_seconds`; `location` is the path that
    shows what became of it. A `url` that begins with a slash is a path of this API.
    """

    url: str
    method: str
    expires_seconds: int
    location: str


class FileShown(Shown, frozen=True, kw_only=True):
    """A file of a table: it waits until it is ingested, or refused for a reason."""

    name: str
    state: Literal["waiting", "ingested", "refused"]
    size_bytes: int
    dropped_ms: int
    reason: str = ""


class RowsTaken(Shown, frozen=True, kw_only=True):
    """Rows that are durable, and will be rows of the table; `location` shows when they are.

    If the table has rows of that Idempotency-Key already, `known` says so: then none are added. If
    the table skips rows that cannot be read, `rejected` counts these, and `reasons` has the first.
    """

    rows: int
    location: str
    known: bool = False
    rejected: int = 0
    reasons: tuple[str, ...] = ()


def begin_upload(call: Call, table: str, body: NewFile) -> Upload:
    """Return where to PUT the content of a file, which then becomes rows of the table."""
    handle = call.table(table, "write").handle
    key = _key(handle, body.name)
    location = _location(handle, body.name)
    url = call.instance.bucket.upload_url(key, UPLOAD_SECONDS) or location
    return Upload(url=url, method="PUT", expires_seconds=UPLOAD_SECONDS, location=location)


def put_file(call: Call, table: str, file: str) -> FileShown:
    """Drop a file, which becomes rows of the table: on AWS a small one; POST /tables/{table}/files
    names where a large one goes.
    """
    opened = call.table(table, "write")
    handle, key = opened.handle, _key(opened.handle, file)
    check_body(call.request, (call.header("content-type").partition(";")[0].strip().lower(),))
    body = io.BytesIO(call.request.body) if call.request.stream is None else call.request.stream
    return _shown(opened, _drop(handle, key, body, once=False))


def show_file(call: Call, table: str, file: str) -> FileShown:
    """Show whether a file that was dropped for a table is rows of it, or was refused, and why."""
    opened = _opened(call, table)
    handle, key = opened.handle, _key(opened.handle, file)
    found = next((s for s in handle.services.sources.list(key, since_ms=0) if s.key == key), None)
    if found is None:
        raise ProblemError(
            404, "there is no such file", hint="it was not uploaded yet, or was deleted since"
        )
    return _shown(opened, found)


def add_rows(call: Call, table: str) -> RowsTaken:
    """Add rows, as a JSON array of objects or as JSON lines. They are durable before the answer.

    Sent again with one Idempotency-Key, the same body adds nothing; another body is refused, or,
    once the table was renamed, copied or restored, adds nothing and is answered with `known`.
    """
    opened = call.table(table, "write")
    handle = opened.handle
    is_array = check_body(call.request, ROWS_TYPES) == JSON
    body = _lines_of(call.request.body) if is_array else call.request.body
    key = idempotency_key(call)
    name = f"rows-{handle.services.ids.new()}.jsonl"
    if key:
        name = keyed_name(key, "", handle.table, "jsonl")
    with _without_hidden_names(opened):
        if call.instance.computing is None:
            read = count_rows(handle.table, body)
        else:
            read = call.instance.computing.count_rows(handle.table.id, body)
    dropped = _drop(handle, ingest_key(handle.name, name), io.BytesIO(body), once=bool(key))
    if dropped.etag != md5(body, usedforsecurity=False).hexdigest():
        raise ProblemError(
            422,
            "this Idempotency-Key was sent with other rows before",
            hint="send other rows under another key",
        )
    is_known = (
        bool(key) and dropped.id in look_up_sources(handle.services, handle.table, [dropped]).ids
    )
    return RowsTaken(
        rows=read.rows,
        location=_location(handle, name),
        known=is_known,
        rejected=read.rejected,
        reasons=read.reasons if opened.seen.is_whole else (),
    )


def _opened(call: Call, table: str) -> OpenTable:
    """Return a table for whoever sends files to it, or reads it whole: reasons may name columns."""
    try:
        return call.table(table, "write")
    except ForbiddenError:
        opened = call.table(table)
        if not opened.seen.is_whole:
            raise
        return opened


def _lines_of(body: bytes) -> bytes:
    """Return the items of a JSON array as lines, which keep the digits of numbers."""
    try:
        items: list[msgspec.Raw] = decode_json(body, list[msgspec.Raw])
        return b"".join(msgspec.json.format(item, indent=-1) + b"\n" for item in items)
    except ValueError as error:
        raise ProblemError(
            400, f"the body is not a JSON array: {error}", hint=f"for JSON lines, send {JSON_LINES}"
        ) from error


def count_rows(table: Table, body: bytes) -> RowsRead:
    """Read rows as they will be ingested; return how many they are, and how many are left out.

    Raises:
        RefusedSourceError: they do not fit the table, and why.
    """
    from dormouse.sources.counted_reading import counted_reading
    from dormouse.sources.formats import read_source
    from dormouse.sources.rejects import Rejects

    rejects = Rejects("the rows")
    skips = table.properties.ingest_on_error == "skip"
    dialect = csv_dialect(table.properties)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_bytes(body)
        with counted_reading(path):
            batches = read_source(
                path, path.name, table.schema, dialect, rejects=rejects if skips else None
            )
            rows = sum(batch.num_rows for batch in batches)
    rejects.check(rows)
    return RowsRead(rows, rejects.rows, tuple(rejects.reasons))


@contextmanager
def _without_hidden_names(opened: OpenTable) -> Iterator[None]:
    """Say of rows that do not fit only that, to a caller from whom columns are hidden."""
    try:
        yield
    except InvalidRequestError as error:
        if opened.seen.is_whole:
            raise
        raise ProblemError(422, _UNFIT, hint=_ASK_FOR_NAMES) from error


def _drop(handle: TableHandle, key: str, body: Readable, *, once: bool) -> Source:
    """Drop what a stream holds, once all of it has arrived."""
    with tempfile.TemporaryDirectory(dir=handle.services.scratch) as folder:
        path = Path(folder) / "file"
        try:
            with path.open("wb") as file:
                copyfileobj(body, file, PIECE_BYTES)
        except OSError as error:
            if error.errno in FULL:
                raise DiskFullError("there is no room for the file", hint=FREE_SPACE) from error
            raise
        return handle.bucket.drop(key, path, once=once)


def _shown(opened: OpenTable, source: Source) -> FileShown:
    handle, services = opened.handle, opened.handle.services
    table = handle.current()
    is_known = source.id in look_up_sources(services, table, [source]).ids
    refusal = None if is_known else refusal_of(services, source, table.id, NO_TABLE)
    return FileShown(
        name=source.key.partition("/")[2],
        state="ingested" if is_known else "refused" if refusal else "waiting",
        size_bytes=source.size_bytes,
        dropped_ms=source.dropped_ms,
        reason=_reason(opened, refusal.reason) if refusal else "",
    )


def _reason(opened: OpenTable, reason: str) -> str:
    return reason if opened.seen.is_whole else f"{_UNFIT}; {_ASK_FOR_NAMES}"


def _key(handle: TableHandle, name: str) -> str:
    if "/" in name:
        raise InvalidRequestError("a file has a name without slashes")
    return ingest_key(handle.name, name)


def _location(handle: TableHandle, name: str) -> str:
    return f"/tables/{handle.name}/files/{quote(name, safe='')}"
