"""Routes of the work of an instance: jobs, refused files, queues, dead letters, requests."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import md5
from operator import attrgetter
from pathlib import Path
from shutil import copyfileobj
from typing import Literal
from urllib.parse import parse_qsl, quote, urlencode

import msgspec

from dormouse.access import permission
from dormouse.client.computing import RowsRead
from dormouse.client.contents import jobs_of
from dormouse.client.instance import Instance
from dormouse.client.operations import Queue
from dormouse.client.table import TableHandle
from dormouse.errors import DiskFullError, ForbiddenError, InvalidRequestError
from dormouse.features.access import check_instance, instance_permission
from dormouse.features.administration import request_by_now
from dormouse.features.batch_files import look_up_sources, refusal_of
from dormouse.features.http import calls
from dormouse.features.http.tables import ListPage, idempotency_key, page_of, picked
from dormouse.features.tables import new_table_id
from dormouse.http.messages import Readable
from dormouse.ports import NO_TABLE
from dormouse.schema.row_tags import parse_tags, without_tags
from dormouse.state.jobs import JobRecord
from dormouse.state.sources import Source, keyed_name
from dormouse.storage import FREE_SPACE, FULL
from dormouse.stored.decoding import decode_json
from dormouse.system import OwnFolder
from dormouse.tables.table import Table

_REQUEST = re.compile("[0-9a-f]{32}")
_UNKNOWN = "nothing is recorded of it: it waits to be carried out, or was never sent"
RequestState = Literal["waiting", "accepted", "finished", "failed", "refused"]


class JobShown(calls.Answer, frozen=True, kw_only=True):
    """A job of a table, a request, or a file that waits or was refused. Times are milliseconds
    since 1970; 0 is unknown or not yet. `state` is waiting, accepted, assigned, running, finished,
    failed, refused or damaged.
    """

    id: str
    kind: str
    state: str
    subject: str
    reason: str
    rows: int
    rows_read: int
    files: int
    size_bytes: int
    attempts: int
    updated_ms: int
    started_ms: int
    finished_ms: int


class JobsPage(calls.PageQuery, frozen=True, kw_only=True):
    """Which jobs are wanted: of a kind, such as ingest, or in a state, such as running; or all."""

    kind: str = ""
    state: str = ""


class QueueList(calls.Answer, frozen=True, kw_only=True):
    """All queues, in the order of the flow. `note` says why ages are unknown, if they are."""

    queues: list[Queue]
    note: str


class Letter(calls.Answer, frozen=True, kw_only=True):
    """A message that failed for good, and why. `sent_ms` is milliseconds since 1970."""

    id: str
    reason: str
    sent_ms: int
    receives: int
    body: str


class RequestShown(calls.Answer, frozen=True, kw_only=True):
    """What became of a request. It waits until it is carried out, which takes a second or so; it
    also waits if there is none of that id. An accepted one has begun jobs, which go on.
    """

    state: RequestState
    request: str = ""
    reason: str = ""
    rows: int = 0
    files: int = 0
    updated_ms: int = 0


def list_jobs(call: calls.HttpCall, table: str, query: JobsPage) -> ListPage[JobShown]:
    """List the jobs of a table, its requests, and the files that wait or were refused; those that
    changed last come first.
    """
    source = call.table(table)
    reads_requests = call.instance.folder is not None
    records = jobs_of(call.services, source.handle.current(), reads_requests=reads_requests)
    return _page_of_jobs(records, query, is_whole=source.seen.is_whole)


def list_refused_files(
    call: calls.HttpCall, table: str, query: calls.PageQuery
) -> ListPage[JobShown]:
    """List the files that were refused for a table, each with the reason."""
    page = JobsPage(limit=query.limit, after=query.after, kind="ingest", state="refused")
    return list_jobs(call, table, page)


def list_other_jobs(call: calls.HttpCall, query: JobsPage) -> ListPage[JobShown]:
    """List the requests about no table, and the files that were dropped for none."""
    check_instance(call.services, call.principal, "read")
    rights = instance_permission(call.services.tables.access_rules(), call.principal)
    return _page_of_jobs(call.instance.jobs(), query, is_whole=rights.hides_nothing)


def list_queues(call: calls.HttpCall) -> QueueList:
    """List the queues of the instance, with their messages and dead letters."""
    check_instance(call.services, call.principal, "read")
    states, note = call.instance.queue_states()
    return QueueList(queues=states, note=note)


def list_dead_letters(call: calls.HttpCall, queue: str, query: calls.PageQuery) -> ListPage[Letter]:
    """List the dead letters of a queue, the oldest first; they stay where they are."""
    check_instance(call.services, call.principal, "administer")
    letters = call.instance.dead_letters().show(queue)
    return page_of(letters, query, lambda each: each.id, partial(picked, Letter))


def show_request(call: calls.HttpCall, request: str) -> RequestShown:
    """Show what became of a request, by the path that was the answer to it."""
    table_id, dot, request_id = request.partition(".")
    record = _recorded(call.instance, table_id, request_id) if dot and request_id else None
    if record is None or record.state not in ("accepted", "finished", "failed", "refused"):
        if not _may_wait(call, table_id, request_id):
            raise calls.ProblemError(
                404, "there is no such request", hint="ask by the location that answered it"
            )
        return RequestShown(state="waiting", reason=_UNKNOWN)
    rules = call.services.tables.access_rules()
    if "administer" not in permission(rules, call.principal, record.subject).verbs:
        raise ForbiddenError("you may not see what became of this request")
    return picked(RequestShown, record, request=record.kind)


def _may_wait(call: calls.HttpCall, table_id: str, request_id: str) -> bool:
    """Return whether a request of which nothing is recorded may have been sent by this caller: ids
    have a form, and name a table that the request makes, or that the caller may administer.
    """
    if not _REQUEST.fullmatch(request_id):
        return False
    if table_id in (NO_TABLE, new_table_id(request_id)):
        return True
    table = call.services.table(table_id)
    rules = call.services.tables.access_rules()
    return table is not None and (
        "administer" in permission(rules, call.principal, table.name).verbs
    )


def _recorded(instance: Instance, table_id: str, request_id: str) -> JobRecord | None:
    """Return the record of a request: under its table, or if that is gone, under none."""
    get = instance.services.tracker.get
    record, table = get(table_id, request_id), instance.services.table(table_id)
    if record is not None and table is not None and instance.folder is not None:  # else no right
        return request_by_now(instance.services, table, record)
    return record or get(NO_TABLE, request_id)


def _page_of_jobs(
    records: Iterable[JobRecord], query: JobsPage, *, is_whole: bool
) -> ListPage[JobShown]:
    if not is_whole:  # reasons may name columns, and names of partitions have keys
        records = (replace(record, reason="", subject="") for record in records)
    matches = [
        record
        for record in records
        if query.kind in ("", record.kind) and query.state in ("", record.state)
    ]
    matches.sort(key=lambda record: (-record.updated_ms, record.job_id))
    return page_of(
        matches, query, attrgetter("job_id"), lambda each: picked(JobShown, each, id=each.job_id)
    )


# A file is dropped into the ingest bucket under the table's folder, as by every other way; it
# becomes rows some seconds later. Rows of a request are one such file: it is there before the
# answer.

ROWS_TYPES = (calls.JSON, calls.JSON_LINES)
PIECE_BYTES = 1024 * 1024
"""How much of a file is in memory while it arrives."""
_UNFIT = "the rows do not fit the table"
_ASK_FOR_NAMES = "some columns are hidden from you: who administers the table can say what is wrong"
UPLOAD_SECONDS = 3600
"""How long a link for an upload can be used."""


class NewFile(calls.Form, frozen=True, kw_only=True):
    """A file to upload: its name, which says the format, such as may.csv or 1.jsonl.gz. All its
    rows get the row `tags`.
    """

    name: str
    tags: dict[str, str] = {}


class Tagged(calls.Form, frozen=True, kw_only=True):
    """A row tag of all rows of the file, as ``day=2026-01-31``; repeated for several."""

    tag: str = ""


class UploadTarget(calls.Answer, frozen=True, kw_only=True):
    """Where to PUT the content of a file, within `expires_seconds`; `location` is the path that
    shows what became of it. A `url` that begins with a slash is a path of this API.
    """

    url: str
    method: str
    expires_seconds: int
    location: str


class FileShown(calls.Answer, frozen=True, kw_only=True):
    """A file of a table: it waits until it is ingested, or refused for a reason."""

    name: str
    state: Literal["waiting", "ingested", "refused"]
    size_bytes: int
    dropped_ms: int
    reason: str = ""


class RowsReceipt(calls.Answer, frozen=True, kw_only=True):
    """Rows that are durable, and will be rows of the table; `location` shows when they are.

    If the table has rows of that Idempotency-Key already, `known` says so: then none are added. If
    the table skips rows that cannot be read, `rejected` counts these, and `reasons` has the first.
    """

    rows: int
    location: str
    known: bool = False
    rejected: int = 0
    reasons: tuple[str, ...] = ()


def begin_upload(call: calls.HttpCall, table: str, body: NewFile) -> UploadTarget:
    """Return where to PUT the content of a file, which then becomes rows of the table."""
    handle = call.table(table, "write").handle
    key = _key(handle, body.name, body.tags)
    location = _location(handle, body.name, body.tags)
    url = call.instance.bucket.upload_url(key, UPLOAD_SECONDS) or location
    return UploadTarget(url=url, method="PUT", expires_seconds=UPLOAD_SECONDS, location=location)


def put_file(call: calls.HttpCall, table: str, file: str, query: Tagged) -> FileShown:
    """Drop a file, which becomes rows of the table: on AWS a small one; POST /tables/{table}/files
    names where a large one goes.
    """
    source = call.table(table, "write")
    handle, key = source.handle, _key(source.handle, file, _tags(call))
    calls.check_body(call.request, (call.header("content-type").partition(";")[0].strip().lower(),))
    body = io.BytesIO(call.request.body) if call.request.stream is None else call.request.stream
    return _shown(source, _drop(handle, key, body, once=False))


def show_file(call: calls.HttpCall, table: str, file: str, query: Tagged) -> FileShown:
    """Show whether a file that was dropped for a table is rows of it, or was refused, and why."""
    target = _opened(call, table)
    handle, key = target.handle, _key(target.handle, file, _tags(call))
    source = next((s for s in handle.services.sources.list(key, since_ms=0) if s.key == key), None)
    if source is None:
        raise calls.ProblemError(
            404, "there is no such file", hint="it was not uploaded yet, or was deleted since"
        )
    return _shown(target, source)


def add_rows(call: calls.HttpCall, table: str, query: Tagged) -> RowsReceipt:
    """Add rows, as a JSON array of objects or as JSON lines. They are durable before the answer.

    Sent again with one Idempotency-Key, the same body adds nothing; another body is refused, or,
    once the table was renamed, copied or restored, adds nothing and is answered with `known`.
    """
    target = call.table(table, "write")
    handle = target.handle
    is_array = calls.check_body(call.request, ROWS_TYPES) == calls.JSON
    body = _lines_of(call.request.body) if is_array else call.request.body
    key, tags = idempotency_key(call), _tags(call)
    name = f"rows-{handle.services.ids.new()}.jsonl"
    if key:
        name = keyed_name(key, "", handle.table, "jsonl")
    with _without_hidden_names(target):
        if call.instance.computing is None:
            count = count_rows(handle.table, body)
        else:
            count = call.instance.computing.count_rows(handle.table.id, body)
    source = _drop(handle, _key(handle, name, tags), io.BytesIO(body), once=bool(key))
    if source.etag != md5(body, usedforsecurity=False).hexdigest():
        raise calls.ProblemError(
            422,
            "this Idempotency-Key was sent with other rows before",
            hint="send other rows under another key",
        )
    is_known = (
        bool(key) and source.id in look_up_sources(handle.services, handle.table, [source]).ids
    )
    return RowsReceipt(
        rows=count.rows,
        location=_location(handle, name, tags),
        known=is_known,
        rejected=count.rejected,
        reasons=count.reasons if target.seen.is_whole else (),
    )


def _opened(call: calls.HttpCall, table: str) -> calls.OpenTable:
    """Return a table for a sender of files, or a reader of all of it: reasons may name columns."""
    try:
        return call.table(table, "write")
    except ForbiddenError:
        target = call.table(table)
        if not target.seen.is_whole:
            raise
        return target


def _lines_of(body: bytes) -> bytes:
    """Return the items of a JSON array as lines, which keep the digits of numbers."""
    try:
        items: list[msgspec.Raw] = decode_json(body, list[msgspec.Raw])
        return b"".join(msgspec.json.format(item, indent=-1) + b"\n" for item in items)
    except ValueError as error:
        raise calls.ProblemError(
            400,
            f"the body is not a JSON array: {error}",
            hint=f"for JSON lines, send {calls.JSON_LINES}",
        ) from error


def count_rows(table: Table, body: bytes) -> RowsRead:
    """Read rows as they will be ingested; return how many they are, and how many are left out.
    Raises RefusedSourceError: they do not fit the table, and why.
    """
    from dormouse.client.inferring import check_file

    with OwnFolder() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_bytes(body)
        rows, rejects = check_file(path, table.schema.opened, table.properties, path.name)
    return RowsRead(rows, rejects.rows, tuple(rejects.reasons))


@contextmanager
def _without_hidden_names(target: calls.OpenTable) -> Iterator[None]:
    """Say of rows that do not fit only that, to a caller from whom columns are hidden."""
    try:
        yield
    except InvalidRequestError as error:
        if target.seen.is_whole:
            raise
        raise calls.ProblemError(422, _UNFIT, hint=_ASK_FOR_NAMES) from error


def _drop(handle: TableHandle, key: str, body: Readable, *, once: bool) -> Source:
    """Drop what a stream holds, once all of it has arrived."""
    with OwnFolder(dir=handle.services.scratch) as folder:
        path = Path(folder) / "file"
        try:
            with path.open("wb") as file:
                copyfileobj(body, file, PIECE_BYTES)
        except OSError as error:
            if error.errno in FULL:
                raise DiskFullError("there is no room for the file", hint=FREE_SPACE) from error
            raise
        return handle.bucket.drop(key, path, once=once)


def _shown(target: calls.OpenTable, source: Source) -> FileShown:
    handle, services = target.handle, target.handle.services
    table = handle.current()
    is_known = source.id in look_up_sources(services, table, [source]).ids
    refusal = None if is_known else refusal_of(services, source, table.id, NO_TABLE)
    hidden = "" if target.seen.is_whole else f"{_UNFIT}; {_ASK_FOR_NAMES}"
    return FileShown(
        name=without_tags(source.key).partition("/")[2],
        state="ingested" if is_known else "refused" if refusal else "waiting",
        size_bytes=source.size_bytes,
        dropped_ms=source.dropped_ms,
        reason=(hidden or refusal.reason) if refusal else "",
    )


def _tags(call: calls.HttpCall) -> dict[str, str]:
    """Return the row tags of a query: what is repeated in it counts each time."""
    parameters = parse_qsl(call.request.query_string, keep_blank_values=True)
    return parse_tags(value for name, value in parameters if name == "tag")


def _key(handle: TableHandle, name: str, tags: Mapping[str, str]) -> str:
    if "/" in name:
        raise InvalidRequestError("a file has a name without slashes")
    from dormouse.client.ingesting import ingest_key, tagged_key  # loads what reads files

    return tagged_key(ingest_key(handle.name, name), tags)


def _location(handle: TableHandle, name: str, tags: Mapping[str, str]) -> str:
    query = urlencode([("tag", f"{key}={value}") for key, value in tags.items()])
    return f"/tables/{handle.name}/files/{quote(name, safe='')}" + (f"?{query}" if query else "")
