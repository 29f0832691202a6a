"""Routes that read rows: of one table in pages, and of statements in SQL."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import UNSET

from dormouse.access import NOBODY, VisibleTable
from dormouse.client.queries import QUEUE, failure_of, message_parameters
from dormouse.client.versions import named_parameters
from dormouse.errors import ForbiddenError, InvalidRequestError, LimitExceededError, NotFoundError
from dormouse.features.access import administers_instance, check_readable
from dormouse.features.http import calls, forms
from dormouse.features.http.tables import KeyJson, ListPage, idempotency_key, key_parts, page_of
from dormouse.features.queries import QUERIES, QueryEnd, load_end
from dormouse.features.requests import ResultFile
from dormouse.features.versions import read_as_of
from dormouse.files.results import ResultFormat
from dormouse.http.messages import HttpResponse, preferred_type
from dormouse.key_codec import EMPTY_RANGE
from dormouse.keys import KeyRange
from dormouse.messages.stages import (
    AnswerQuery,
    CancelQuery,
    OutboundMessage,
    SelectionMessage,
    encode,
)
from dormouse.query import selection
from dormouse.query.rows import query_rows
from dormouse.schema.schema import Schema
from dormouse.sql.conditions import parse_condition
from dormouse.state.jobs import JobRecord
from dormouse.state.versions import parse_as_of
from dormouse.statements.limits import ReadLimitError
from dormouse.stored.paths import query_prefix
from dormouse.system import Clock
from dormouse.tables.properties import SparkOptions
from dormouse.tables.table import Table

# The message of a query names the caller, whom the stage believes because this API sent it. The id
# of a query has a mark of the caller in it, which shows whose query it is before anything is
# recorded of it; nothing is written here.

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


class QueryAccepted(calls.Answer, frozen=True, kw_only=True):
    """A query that is answered later; `location` is the path that shows its state and result."""

    query_id: str
    location: str


class QuerySummary(calls.Answer, frozen=True, kw_only=True):
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


class QueriesPage(calls.PageQuery, frozen=True, kw_only=True):
    """Which part of a list is wanted; with `all`, of the queries of all callers."""

    all: bool = False


class QueryFile(calls.Answer, frozen=True, kw_only=True):
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
    preferences = headers.get("prefer", "").lower().split(",")
    return RESPOND_LATER in [part.partition(";")[0].strip() for part in preferences]


def ask_later(call: calls.HttpCall, request: AnswerQuery) -> HttpResponse:
    """Send a query, and return where it is followed; `request` lacks its id, format and asker.

    Raises:
        ForbiddenError: nothing identifies the caller, who could not be given the result.
        ProblemError: the client accepts no format of files, or the question is too long.
    """
    form = _accepted_format(call.request.headers)
    request = msgspec.structs.replace(request, format=form.value)
    query_id = send_query(call, request, idempotency_key(call))
    answer = QueryAccepted(query_id=query_id, location=f"/queries/{query_id}")
    return calls.json_answer(202, answer, preference_applied=RESPOND_LATER)


def send_query(call: calls.HttpCall, request: AnswerQuery, key: str = "") -> str:
    """Send a query of the caller; return its id, which follows from `key` and the question if there
    is a key.

    Raises:
        ForbiddenError: nothing identifies the caller, who could not be given the result.
        ProblemError: the question is too long.
    """
    if call.principal == NOBODY:
        raise ForbiddenError("nothing says who you are, so no result can be kept for you")
    request = msgspec.structs.replace(request, who=call.principal)
    content = encode(request)
    if len(content) > MOST_MESSAGE_BYTES:
        raise calls.ProblemError(
            413,
            f"a question that is answered later takes up to {MOST_MESSAGE_BYTES:,} bytes",
            hint="ask for fewer keys or ranges at once",
        )
    head = _digest(key, content, 16) if key else call.services.ids.new()
    query_id = f"{head}-{_mark(head, call.principal)}"
    request = msgspec.structs.replace(request, query_id=query_id)
    call.instance.queues.send([OutboundMessage(QUEUE, request)])
    return query_id


def list_queries(call: calls.HttpCall, query: QueriesPage) -> ListPage[QuerySummary]:
    """List the queries that the caller has asked to be answered later, and that have begun, the
    newest first.

    With `all`, list those of all callers, for administrators of all tables by an access rule.
    """
    if query.all and not administers_instance(call.services, call.principal):
        raise ForbiddenError(
            "you may not see the queries of others",
            hint="a rule that lets you administer all tables, *, does",
        )
    records = call.services.tracker.records(QUERIES)
    own = [each for each in records if query.all or each.who == call.principal != NOBODY]
    own.sort(key=lambda each: (-each.began_ms, each.job_id))
    return page_of(
        own, query, lambda each: each.job_id, lambda each: QuerySummary(**_summary(each))
    )


def show_query(call: calls.HttpCall, query_id: str) -> QueryShown:
    """Show the state of a query that the caller has asked, and its result once it is finished."""
    record = own_query(call, query_id)
    if record is None:
        return QueryShown(id=query_id, state="waiting", reason=_UNKNOWN)
    if not record.is_finished:
        return QueryShown(**_summary(record))
    end = _end(call, record)
    if end.state != "finished":
        reason = end.reason if end.state == "cancelled" else calls.shown_reason(failure_of(end))
        return QueryShown(**_summary(record), reason=reason)
    return QueryShown(
        **_summary(record),
        media_type=ResultFormat(end.format).media_type,
        versions={name: list(numbers) for name, numbers in end.versions.items()},
        files=[_file(call, query_id, each) for each in end.files],
        expires_seconds=LINK_SECONDS,
    )


def cancel_query(call: calls.HttpCall, query_id: str) -> QueryAccepted:
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


def read_result(call: calls.HttpCall, query_id: str, file: str) -> HttpResponse:
    """Return a file of a result; from a function only a small one: the others have links."""
    record = own_query(call, query_id)
    end = _end(call, record) if record is not None and record.is_finished else None
    entry = next((each for each in end.files if each.name == file), None) if end else None
    if end is None or entry is None:
        raise calls.ProblemError(
            404, "there is no such file", hint="GET /queries/{query_id} names all"
        )
    path = query_prefix(query_id) + file
    has_links = bool(call.instance.result_link(path, LINK_SECONDS))
    if has_links and entry.size_bytes > forms.MOST_ANSWER_BYTES:
        raise calls.ProblemError(
            413, "the file is larger than an answer", hint="use its url in GET /queries/{query_id}"
        )
    headers = {
        "content-type": ResultFormat(end.format).media_type,
        "cache-control": "no-store",
        "content-length": str(entry.size_bytes),
    }
    pieces = call.services.results.stream(path, entry.size_bytes, 0, entry.size_bytes)
    return HttpResponse(200, headers, pieces=pieces)


def _accepted_format(headers: Mapping[str, str]) -> ResultFormat:
    """Return the format of files that a client prefers; JSON lines by default.

    Who accepts JSON, and no file by the type that it has, gets JSON lines.
    """
    media_type = preferred_type(headers, _FORMATS)
    if media_type is not None:
        return _FORMATS[media_type]
    if preferred_type(headers, ["application/json"]) is not None:
        return ResultFormat.json
    raise calls.ProblemError(
        406,
        "files of rows are not available in what the client accepts",
        hint=f"accept {', '.join(form.media_type for form in ResultFormat)}",
    )


def own_query(call: calls.HttpCall, query_id: str) -> JobRecord | None:
    """Return the record of a query of the caller; None if nothing is recorded of it yet.
    Raises ProblemError: there is none, or somebody else asked it.
    """
    record = call.services.tracker.get(QUERIES, query_id)
    if record is not None and record.who == call.principal != NOBODY:
        return record
    head, _, mark = query_id.rpartition("-")
    if record is None and call.principal != NOBODY and mark == _mark(head, call.principal):
        return None
    raise calls.ProblemError(404, "you have no such query", hint="GET /queries lists yours")


def _end(call: calls.HttpCall, record: JobRecord) -> QueryEnd:
    """Return how a query ended, if the caller may still see what it returns.

    Raises:
        ProblemError: its result is not kept any more.
        ForbiddenError: rules do not let the caller read the tables any more.
    """
    end = load_end(call.services.results, record.job_id)
    if end is None:
        raise calls.ProblemError(410, "the result is not kept any more", hint="ask again")
    check_readable(call.services, call.principal, end.versions, end.columns)
    return end


def _file(call: calls.HttpCall, query_id: str, each: ResultFile) -> QueryFile:
    url = call.instance.result_link(query_prefix(query_id) + each.name, LINK_SECONDS)
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


ANSWER_MS = 20_000
"""A page ends after this time: an HTTP API waits for thirty seconds."""
PAGE_BYTES = 16 * 1024 * 1024
"""How many bytes of rows, in memory, a page is chosen from."""
MOST_READ_BYTES = 1024 * 1024 * 1024
"""A condition on more than so many bytes of shards may find nothing for longer than a page may
take, and a statement that reads more would hardly be done in time: they are answered later, and
nothing is computed twice."""
_UNASKED = "-"
"""The id of a query before it has one."""
_MANY = msgspec.Meta(max_length=50_000)
"""How many keys or ranges one question may have: each is checked again for each page."""
STATEMENT_ROWS = 100_000
STATEMENT_BYTES = 512 * 1024 * 1024
"""What a statement may take of memory, beside what reads the tables."""


class Question(calls.Form, frozen=True, kw_only=True):
    """Which rows of a table are wanted.

    `keys` are keys or the first parts of keys, `ranges` pairs of them: the first inclusive, the
    second exclusive, null for an open end. Without both, all rows are wanted. `where` is a
    condition in SQL, `columns` are all by default, `limit` is the largest number of rows in all
    pages. `as_of` is a version, a tag, or an ISO 8601 time. `page_rows` is the largest number of
    rows in an answer; with `after`, which is `next` of the last answer, the rows after that follow.
    """

    keys: Annotated[list[KeyJson], _MANY] | None = None
    ranges: Annotated[list[tuple[KeyJson | None, KeyJson | None]], _MANY] | None = None
    where: str = ""
    columns: list[str] | None = None
    limit: Annotated[int, msgspec.Meta(ge=0)] | None = None
    as_of: int | str | None = None
    page_rows: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    after: str = ""


class Statement(calls.Form, frozen=True, kw_only=True):
    """A query in SQL over the tables of the instance. `parameters` are the values of ``$1``, ``$2``
    and so on, or by name those of ``:name``. With `spark`, the Spark of the instance computes it,
    in Spark's dialect, with ``:name`` alone; its rows are answered later.
    """

    text: Annotated[str, msgspec.Meta(min_length=1)]
    parameters: list[Any] | dict[str, Any] = []
    spark: bool = False


def query_table(call: calls.HttpCall, table: str, body: Question) -> HttpResponse:
    """Return rows of a table, sorted by its keys, in pages that are all of one version.

    With the header ``Prefer: respond-async``, and if a condition would read very much, all rows are
    answered later, as files.
    """
    services, visible = call.services, call.table(table).seen
    if prefers_later(call.request.headers) and not body.after:
        return _rows_later(call, visible, body)
    form = forms.accepted_form(call.request.headers)
    current = visible.table
    question = forms.digest(msgspec.structs.replace(body, after="", page_rows=1))
    before = forms.decode(body.after, current, question) if body.after else None
    as_of = before.version if before else _as_of(body)
    time_ms = before.time_ms if before else services.clock.now_ms()

    def ranges_of(table: Table) -> list[KeyRange]:
        paging = forms.Pagination(
            VisibleTable.of(table, visible.permission), 0, time_ms, question, before
        )
        return selection.selected_ranges(table, _selection(paging, body, _columns(paging, body), 1))

    try:
        current, state = read_as_of(services, current, as_of, ranges_of=ranges_of)
    except NotFoundError:
        if before is None:
            raise
        raise forms.gone() from None  # it was there when the first page was read
    visible = VisibleTable.of(current, visible.permission)
    paging = forms.Pagination(visible, state.version, time_ms, question, before)
    columns = _columns(paging, body)
    most = body.page_rows if body.limit is None else min(body.page_rows, body.limit - paging.given)
    scope = _selection(paging, body, columns, most)
    # Only in place of a first page: who began to read pages gets pages.
    if body.where and before is None:
        size_bytes = selection.bytes_to_read(state, selection.selected_ranges(current, scope))
        if size_bytes > MOST_READ_BYTES:
            return _rows_later(call, visible, body)
    result = query_rows(services, current, state, scope)
    with closing(result):
        rows = _without_first(result.batches, paging.repeats)
        batches, more = _taken(rows, most, services.clock, time_ms=services.clock.now_ms())
    schema = pa.schema([result.schema.field(name) for name in columns])

    def following(count: int) -> str:
        answered = sum(batch.num_rows for batch in batches)
        is_last = not more or paging.given + count == body.limit
        return "" if count == answered and is_last else paging.after(batches, count)

    page = forms.RowPage(schema, [b.select(columns) for b in batches], state.version, following)
    return forms.rows_response(form, page, can_continue=True)


def run_statement(call: calls.HttpCall, body: Statement) -> HttpResponse:
    """Return the rows of a query in SQL, all at once; later, as files, if they are too many for an
    answer or take too long, for Spark, or with the header ``Prefer: respond-async``.
    """
    if not prefers_later(call.request.headers) and not body.spark:
        try:
            return _statement_now(call, body)
        except forms.TooMuchError:
            pass
    parameters = message_parameters(named_parameters(body.parameters))
    spark = SparkOptions() if body.spark else UNSET
    message = AnswerQuery(query_id=_UNASKED, sql=body.text, parameters=parameters, spark=spark)
    return ask_later(call, message)


def _statement_now(call: calls.HttpCall, body: Statement) -> HttpResponse:
    """Return the rows of a statement. Raises TooMuchError."""
    form = forms.accepted_form(call.request.headers)
    clock = call.instance.services.clock
    begun_ms = clock.now_ms()
    try:
        result = call.instance.sql(
            body.text,
            body.parameters,
            memory_bytes=STATEMENT_BYTES,
            timeout_seconds=ANSWER_MS / 1000,
            read_bytes=MOST_READ_BYTES,
            principal=call.principal,
        )
        with closing(result):
            batches, more = _taken(result.batches, STATEMENT_ROWS, clock, time_ms=begun_ms)
    except ReadLimitError as error:
        raise forms.TooMuchError from error
    except LimitExceededError as error:
        if clock.now_ms() - begun_ms < ANSWER_MS:  # more memory is nowhere
            raise
        raise forms.TooMuchError from error
    if more:
        raise forms.TooMuchError
    page = forms.RowPage(result.schema, batches, result.version, lambda count: "")
    return forms.rows_response(form, page, can_continue=False)


def _rows_later(call: calls.HttpCall, visible: VisibleTable, body: Question) -> HttpResponse:
    """Ask for all rows by a message, once it is known to fit the table."""
    if body.columns == [] or EMPTY_RANGE in _ranges(visible.schema, body):
        raise InvalidRequestError("no rows or columns are asked for")
    rows = _message(body)
    _as_of(body)
    selection.decode_selection(
        rows,
        visible.table.schema,
        permission=visible.permission,
        version=0,
        time_ms=call.services.clock.now_ms(),
    )
    return ask_later(call, AnswerQuery(query_id=_UNASKED, table=visible.table.name, selection=rows))


def _as_of(body: Question) -> Any:
    return parse_as_of(body.as_of) if isinstance(body.as_of, str) else body.as_of


def _columns(paging: forms.Pagination, body: Question) -> list[str]:
    """Return the names of the columns, each once; `select` says which of them are not there."""
    names = [f.name for f in paging.seen.schema.fields] if body.columns is None else body.columns
    return list(dict.fromkeys(names))


def _selection(
    paging: forms.Pagination, body: Question, columns: Sequence[str], most: int
) -> selection.Selection:
    """Return the rows to read: those of the page, the keys by which it goes on, and one more."""
    schema = paging.seen.schema
    keys = [field.name for field in schema.keys if field.name not in columns]
    condition = parse_condition(body.where, schema, of_rows=True) if body.where else None
    return selection.select(
        paging.seen.table.schema,
        paging.version,
        paging.time_ms,
        paging.left_of(_ranges(schema, body)),
        permission=paging.seen.permission,
        columns=[*columns, *keys] if columns else columns,
        condition=condition,
        limit=most + paging.repeats + 1 if most > 0 else 0,
    )


def _message(body: Question) -> SelectionMessage:
    return SelectionMessage(
        keys=tuple(map(key_parts, body.keys or ())),
        ranges=tuple((_parts(low), _parts(high)) for low, high in body.ranges or ()),
        where=body.where,
        columns=tuple(body.columns or ()),
        limit=body.limit,
        as_of=body.as_of,
    )


def _ranges(schema: Schema, body: Question) -> list[KeyRange]:
    if body.keys is None and body.ranges is None:
        return [KeyRange()]
    return list(selection.ranges_of(_message(body), schema)) or [EMPTY_RANGE]


def _parts(key: KeyJson | None) -> tuple[object, ...] | None:
    return None if key is None else key_parts(key)


def _without_first(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if rows < batch.num_rows:
            yield batch.slice(rows)
        rows -= min(rows, batch.num_rows)


def _taken(
    batches: Iterator[pa.RecordBatch], rows: int, clock: Clock, *, time_ms: int
) -> tuple[list[pa.RecordBatch], bool]:
    """Return the first `rows` rows, or fewer if they are large or take long; and whether there are
    more.
    Raises TooMuchError: it took long, and there are none yet.
    """
    page: list[pa.RecordBatch] = []
    size_bytes = count = 0
    for batch in batches:
        is_late = clock.now_ms() - time_ms > ANSWER_MS
        if not batch.num_rows and not is_late:
            continue
        size_bytes += page[-1].nbytes if page else 0  # of the last one, nobody asks: it takes long
        if page and (size_bytes > PAGE_BYTES or is_late):
            return page, True
        if not batch.num_rows:
            raise forms.TooMuchError
        some = batch.slice(0, rows - count)
        if some.num_rows:
            page.append(some)
        count += some.num_rows
        if some.num_rows < batch.num_rows:
            return page, True
    return page, False
