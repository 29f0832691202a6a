"""Routes of queries that are answered later: by `answer_query`, with files of their rows.

The message of a query names the caller, whom the stage believes because this API sent it. The id of
a query has a mark of the caller in it, which shows whose query it is before anything is recorded of
it; nothing is written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET

from dormouse.access.doors import administers_instance
from dormouse.access.principals import NOBODY
from dormouse.access.results import check_readable
from dormouse.client.reading.queries import QUEUE, failure_of
from dormouse.errors import ForbiddenError
from dormouse.features.http.calls import Call, Page, Shown, json_answer
from dormouse.features.http.problems import ProblemError, shown_reason
from dormouse.features.http.resources.changes import idempotency_key
from dormouse.features.http.resources.forms import MOST_ANSWER_BYTES
from dormouse.features.http.resources.tables import page_of
from dormouse.features.queries.query import QUERIES, QueryEnd, ResultFile
from dormouse.features.queries.stored import load_end
from dormouse.http.accept import preferred_type
from dormouse.http.messages import HttpResponse
from dormouse.messages.queries import AnswerQuery, CancelQuery
from dormouse.messages.stages import OutboundMessage, encode
from dormouse.ports.services import JobRecord
from dormouse.results.formats import ResultFormat
from dormouse.stored.paths import query_prefix

RESPOND_LATER = "respond-async"
"""What a client prefers (RFC 7240) that wants a large answer as files."""
MOST_MESSAGE_BYTES = 240 * 1024
"""A message of SQS has 256 KiB."""
LINK_SECONDS = 3600
"""How long a link to a file of a result can be used."""
_FORMATS = {
    ResultFormat.json.media_type: ResultFormat.json,
    **{form.media_type: form for form in ResultFormat},
    "application/jsonl": ResultFormat.json,
    "application/jsonlines": ResultFormat.json,
}
"""The formats of files by their media types, the default first."""
_UNKNOWN = "nothing is recorded of it: it waits, or was never asked, or ended a week ago"


class QueryAccepted(Shown, frozen=True, kw_only=True):
    """A query that is answered later; `location` is the path that shows its state and result."""

    query_id: str
    location: str


class QuerySummary(Shown, frozen=True, kw_only=True):
    """A query that `who` asked. `state` is waiting, running, finished, failed or cancelled;
    `subject` is the table, or SQL. Of its sub-queries, `parts`, `parts_done` are done. Times are
    milliseconds since 1970; 0 is not yet.
    """

    id: str
    state: str
    subject: str = ""
    who: str = ""
    rows: int = 0
    parts: int = 0
    parts_done: int = 0
    started_ms: int = 0
    finished_ms: int = 0


class QueriesPage(Page, frozen=True, kw_only=True):
    """Which part of a list is wanted; with `all`, of the queries of all callers."""

    all: bool = False


class QueryPage(Shown, frozen=True, kw_only=True):
    """Queries, the newest first. With `next`, there are more: ask for those after it."""

    queries: list[QuerySummary]
    next: str = ""


class QueryFile(Shown, frozen=True, kw_only=True):
    """A file of a result. A `url` that begins with a slash is a path of this API; others can be
    used by anybody, for `expires_seconds`.
    """

    url: str
    rows: int
    size_bytes: int


class QueryShown(QuerySummary, frozen=True, kw_only=True):
    """A query with its result, once it is finished: `files` of `media_type`, in the order of the
    rows, and the `versions` that were read, by the names of tables. `reason` says why it failed.
    """

    reason: str = ""
    media_type: str = ""
    versions: dict[str, list[int]] = {}
    files: list[QueryFile] = []
    expires_seconds: int = 0


def prefers_later(headers: Mapping[str, str]) -> bool:
    """Return whether a client wants to be answered later, by its header Prefer."""
    given = headers.get("prefer", "").lower().split(",")
    return RESPOND_LATER in [part.partition(";")[0].strip() for part in given]


def ask_later(call: Call, asked: AnswerQuery) -> HttpResponse:
    """Send a query, and return where it is followed; `asked` lacks its id, format and asker.

    Raises:
        ForbiddenError: nothing identifies the caller, who could not be given the result.
        ProblemError: the client accepts no format of files, or the question is too long.
    """
    form = _accepted_format(call.request.headers)
    asked = msgspec.structs.replace(asked, format=form.value)
    query_id = send_query(call, asked, idempotency_key(call))
    answer = QueryAccepted(query_id=query_id, location=f"/queries/{query_id}")
    return json_answer(202, answer, preference_applied=RESPOND_LATER)


def send_query(call: Call, asked: AnswerQuery, key: str = "") -> str:
    """Send a query of the caller; return its id, which follows from `key` and the question, on
    whatever connection it is asked, if there is one.

    Raises:
        ForbiddenError: nothing identifies the caller, who could not be given the result.
        ProblemError: the question is too long.
    """
    if call.principal == NOBODY:
        raise ForbiddenError("nothing says who you are, so no result can be kept for you")
    asked = msgspec.structs.replace(asked, who=call.principal)
    content = encode(asked)
    if len(content) > MOST_MESSAGE_BYTES:
        raise ProblemError(
            413,
            f"a question that is answered later takes up to {MOST_MESSAGE_BYTES:,} bytes",
            hint="ask for fewer keys or ranges at once",
        )
    question = encode(msgspec.structs.replace(asked, connection=UNSET))
    head = _digest(key, question, 16) if key else call.services.ids.new()
    query_id = f"{head}-{_mark(head, call.principal)}"
    asked = msgspec.structs.replace(asked, query_id=query_id)
    call.instance.queues.send([OutboundMessage(QUEUE, asked)])
    return query_id


def list_queries(call: Call, query: QueriesPage) -> QueryPage:
    """List the queries that the caller has asked to be answered later, and that have begun.

    With `all`, list those of all callers, for whoever administers all tables by an access rule.
    """
    if query.all and not administers_instance(call.services, call.principal):
        raise ForbiddenError(
            "you may not see the queries of others",
            hint="a rule that lets you administer all tables, *, does",
        )
    records = call.services.tracker.records(QUERIES)
    own = [each for each in records if query.all or each.who == call.principal != NOBODY]
    own.sort(key=lambda each: (-(each.started_ms or each.updated_ms), each.job_id))
    some, more = page_of(own, query, lambda each: each.job_id)
    return QueryPage(queries=[QuerySummary(**_summary(each)) for each in some], next=more)


def show_query(call: Call, query_id: str) -> QueryShown:
    """Show the state of a query that the caller has asked, and its result once it is finished."""
    record = own_query(call, query_id)
    if record is None:
        return QueryShown(id=query_id, state="waiting", reason=_UNKNOWN)
    if not record.is_finished:
        return QueryShown(**_summary(record))
    end = _end(call, record)
    if end.state != "finished":
        reason = end.reason if end.state == "cancelled" else shown_reason(failure_of(end))
        return QueryShown(**_summary(record), reason=reason)
    return QueryShown(
        **_summary(record),
        media_type=ResultFormat(end.format).media_type,
        versions={name: list(found) for name, found in end.versions.items()},
        files=[_file(call, query_id, each) for each in end.files],
        expires_seconds=LINK_SECONDS,
    )


def cancel_query(call: Call, query_id: str) -> QueryAccepted:
    """Cancel a query that the caller has asked, unless it has ended. Who administers all tables by
    an access rule can cancel those of others that have begun.
    """
    record = call.services.tracker.get(QUERIES, query_id)
    if record is None or not administers_instance(call.services, call.principal):
        record = own_query(call, query_id)
    if record is None or not record.is_finished:
        message = CancelQuery(query_id=query_id, who=call.principal)
        call.instance.queues.send([OutboundMessage(QUEUE, message)])
    return QueryAccepted(query_id=query_id, location=f"/queries/{query_id}")


def read_result(call: Call, query_id: str, file: str) -> HttpResponse:
    """Return a file of a result; from a function only a small one: the others have links."""
    record = own_query(call, query_id)
    end = _end(call, record) if record is not None and record.is_finished else None
    found = next((each for each in end.files if each.name == file), None) if end else None
    if end is None or found is None:
        raise ProblemError(404, "there is no such file", hint="GET /queries/{query_id} names all")
    path = query_prefix(query_id) + file
    has_links = bool(call.instance.links.download_url(path, LINK_SECONDS))
    if has_links and found.size_bytes > MOST_ANSWER_BYTES:
        raise ProblemError(
            413, "the file is larger than an answer", hint="use its url in GET /queries/{query_id}"
        )
    headers = {
        "content-type": ResultFormat(end.format).media_type,
        "cache-control": "no-store",
        "content-length": str(found.size_bytes),
    }
    pieces = call.services.results.stream(path, found.size_bytes, 0, found.size_bytes)
    return HttpResponse(200, headers, pieces=pieces)


def _accepted_format(headers: Mapping[str, str]) -> ResultFormat:
    """Return the format of files that a client prefers; JSON lines by default.

    Who accepts JSON, and no file by the type that it has, gets JSON lines.
    """
    found = preferred_type(headers, _FORMATS)
    if found is not None:
        return _FORMATS[found]
    if preferred_type(headers, ["application/json"]) is not None:
        return ResultFormat.json
    raise ProblemError(
        406,
        "files of rows are not available in what the client accepts",
        hint=f"accept {', '.join(form.media_type for form in ResultFormat)}",
    )


def own_query(call: Call, query_id: str) -> JobRecord | None:
    """Return the record of a query of the caller; None if nothing is recorded of it yet.

    Raises:
        ProblemError: there is none, or somebody else asked it.
    """
    record = call.services.tracker.get(QUERIES, query_id)
    if record is not None and record.who == call.principal != NOBODY:
        return record
    head, _, mark = query_id.rpartition("-")
    if record is None and call.principal != NOBODY and mark == _mark(head, call.principal):
        return None
    raise ProblemError(404, "you have no such query", hint="GET /queries lists yours")


def _end(call: Call, record: JobRecord) -> QueryEnd:
    """Return how a query ended, if the caller may still see what it returns.

    Raises:
        ProblemError: its result is not kept any more.
        ForbiddenError: rules do not let the caller read the tables any more.
    """
    end = load_end(call.services.results, record.job_id)
    if end is None:
        raise ProblemError(410, "the result is not kept any more", hint="ask again")
    check_readable(call.services, call.principal, end.versions, end.columns)
    return end


def _file(call: Call, query_id: str, each: ResultFile) -> QueryFile:
    url = call.instance.links.download_url(query_prefix(query_id) + each.name, LINK_SECONDS)
    return QueryFile(
        url=url or f"/queries/{query_id}/files/{each.name}",
        rows=each.rows,
        size_bytes=each.size_bytes,
    )


def _summary(record: JobRecord) -> dict[str, Any]:
    names = [name for name in QuerySummary.__struct_fields__ if name not in ("id", "state")]
    state = record.state if record.is_finished else "running"
    return {"id": record.job_id, "state": state} | {name: getattr(record, name) for name in names}


def _mark(head: str, principal: str) -> str:
    """Return what the id of a query ends with if a caller has asked it by this API."""
    return _digest(head, principal, 6)


def _digest(one: str, other: str, size: int) -> str:
    return blake2b(f"{one}\0{other}".encode(), digest_size=size).hexdigest()
