"""Routes that read rows: of one table in pages, and of statements in SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import UNSET

from dormouse.access.visible import VisibleTable
from dormouse.client.reading.queries import message_parameters
from dormouse.client.reading.statements import named_parameters
from dormouse.errors import InvalidRequestError, LimitExceededError, NotFoundError
from dormouse.features.http.calls import Call, Form
from dormouse.features.http.resources.asked import ask_later, prefers_later
from dormouse.features.http.resources.forms import (
    RowPage,
    TooMuchError,
    accepted_form,
    rows_response,
)
from dormouse.features.http.resources.pages import Paging, decode, digest, gone
from dormouse.features.versions.as_of import read_as_of
from dormouse.http.messages import HttpResponse
from dormouse.key_forms.codec import EMPTY_RANGE, KeyCodec
from dormouse.keys.ranges import KeyRange
from dormouse.messages.base import SelectionMessage
from dormouse.messages.queries import AnswerQuery
from dormouse.model.state import TableState
from dormouse.model.versions.as_of import parse_as_of
from dormouse.ports.services import Clock
from dormouse.query.pieces import bytes_to_read
from dormouse.query.planner import select, selected_ranges
from dormouse.query.rows import query_rows
from dormouse.query.selection import Selection
from dormouse.query.selection_codec import decode_selection
from dormouse.sql.conditions import parse_condition
from dormouse.statements.limits import ReadLimitError
from dormouse.tables.spark_options import SparkOptions
from dormouse.tables.table import Table

KeyJson = int | str | list[int | str]
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


class Question(Form, frozen=True, kw_only=True):
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


class Statement(Form, frozen=True, kw_only=True):
    """A query in SQL over the tables of the instance. `parameters` are the values of ``$1``, ``$2``
    and so on, or by name those of ``:name``. With `spark`, the Spark of the instance computes it,
    in Spark's dialect, with ``:name`` alone; its rows are answered later.
    """

    text: Annotated[str, msgspec.Meta(min_length=1)]
    parameters: list[Any] | dict[str, Any] = []
    spark: bool = False


def query_table(call: Call, table: str, body: Question) -> HttpResponse:
    """Return rows of a table, sorted by its keys, in pages that are all of one version.

    With the header ``Prefer: respond-async``, and if a condition would read very much, all rows are
    answered later, as files.
    """
    services, seen = call.services, call.table(table).seen
    if prefers_later(call.request.headers) and not body.after:
        return _rows_later(call, seen, body)
    form = accepted_form(call.request.headers)
    current = seen.table
    question = digest(msgspec.structs.replace(body, after="", page_rows=1))
    before = decode(body.after, current, question) if body.after else None
    as_of = before.version if before else _as_of(body)
    time_ms = before.time_ms if before else services.clock.now_ms()

    def ranges_of(table: Table) -> list[KeyRange]:
        paging = Paging(VisibleTable.of(table, seen.permission), 0, time_ms, question, before)
        return selected_ranges(table, _selection(paging, body, _columns(paging, body), 1))

    try:
        current, state = read_as_of(services, current, as_of, ranges_of=ranges_of)
    except NotFoundError:
        if before is None:
            raise
        raise gone() from None
    seen = VisibleTable.of(current, seen.permission)
    paging = Paging(seen, state.version, time_ms, question, before)
    columns = _columns(paging, body)
    most = body.page_rows if body.limit is None else min(body.page_rows, body.limit - paging.given)
    selection = _selection(paging, body, columns, most)
    if body.where and before is None and _reads_much(current, state, selection):
        return _rows_later(call, seen, body)
    found = query_rows(services, current, state, selection)
    with closing(found):
        rows = _without_first(found.batches, paging.repeats)
        batches, more = _taken(rows, most, services.clock, time_ms=services.clock.now_ms())
    shown = pa.schema([found.schema.field(name) for name in columns])

    def following(count: int) -> str:
        answered = sum(batch.num_rows for batch in batches)
        is_last = not more or paging.given + count == body.limit
        return "" if count == answered and is_last else paging.after(batches, count)

    page = RowPage(shown, [b.select(columns) for b in batches], state.version, following)
    return rows_response(form, page, can_continue=True)


def run_statement(call: Call, body: Statement) -> HttpResponse:
    """Return the rows of a query in SQL, all at once; later, as files, if they are too many for an
    answer or take too long, for Spark, or with the header ``Prefer: respond-async``.
    """
    if not prefers_later(call.request.headers) and not body.spark:
        try:
            return _statement_now(call, body)
        except TooMuchError:
            pass
    parameters = message_parameters(named_parameters(body.parameters))
    spark = SparkOptions() if body.spark else UNSET
    asked = AnswerQuery(query_id=_UNASKED, sql=body.text, parameters=parameters, spark=spark)
    return ask_later(call, asked)


def _statement_now(call: Call, body: Statement) -> HttpResponse:
    """Return the rows of a statement. Raises TooMuchError."""
    form = accepted_form(call.request.headers)
    clock = call.instance.services.clock
    begun_ms = clock.now_ms()
    try:
        found = call.instance.sql(
            body.text,
            body.parameters,
            memory_bytes=STATEMENT_BYTES,
            timeout_seconds=ANSWER_MS / 1000,
            read_bytes=MOST_READ_BYTES,
            principal=call.principal,
        )
        with closing(found):
            batches, more = _taken(found.batches, STATEMENT_ROWS, clock, time_ms=begun_ms)
    except ReadLimitError as error:
        raise TooMuchError from error
    except LimitExceededError as error:
        if clock.now_ms() - begun_ms < ANSWER_MS:  # more memory is nowhere
            raise
        raise TooMuchError from error
    if more:
        raise TooMuchError
    page = RowPage(found.schema, batches, found.version, lambda count: "")
    return rows_response(form, page, can_continue=False)


def _rows_later(call: Call, seen: VisibleTable, body: Question) -> HttpResponse:
    """Ask for all rows by a message, once it is known to fit the table."""
    if body.columns == [] or EMPTY_RANGE in _ranges(KeyCodec(seen.schema), body):
        raise InvalidRequestError("no rows or columns are asked for")
    wanted = SelectionMessage(
        keys=tuple(_parts(key) or () for key in body.keys or ()),
        ranges=tuple((_parts(low), _parts(high)) for low, high in body.ranges or ()),
        where=body.where,
        columns=tuple(body.columns or ()),
        limit=body.limit,
        as_of=body.as_of,
    )
    _as_of(body)
    decode_selection(
        wanted,
        seen.table.schema,
        permission=seen.permission,
        version=0,
        time_ms=call.services.clock.now_ms(),
    )
    return ask_later(call, AnswerQuery(query_id=_UNASKED, table=seen.table.name, selection=wanted))


def _reads_much(table: Table, state: TableState, selection: Selection) -> bool:
    return bytes_to_read(state, selected_ranges(table, selection)) > MOST_READ_BYTES


def _as_of(body: Question) -> Any:
    return parse_as_of(body.as_of) if isinstance(body.as_of, str) else body.as_of


def _columns(paging: Paging, body: Question) -> list[str]:
    schema = paging.seen.schema
    names = [field.name for field in schema.fields] if body.columns is None else body.columns
    return list(dict.fromkeys(schema.field_named(name).name for name in names))


def _selection(paging: Paging, body: Question, columns: Sequence[str], most: int) -> Selection:
    """Return the rows to read: those of the page, the keys by which it goes on, and one more."""
    schema = paging.seen.schema
    keys = [field.name for field in schema.keys if field.name not in columns]
    condition = parse_condition(body.where, schema) if body.where else None
    return select(
        paging.seen.table.schema,
        paging.version,
        paging.time_ms,
        paging.left_of(_ranges(KeyCodec(schema), body)),
        permission=paging.seen.permission,
        columns=[*columns, *keys] if columns else columns,
        condition=condition,
        limit=most + paging.repeats + 1 if most > 0 else 0,
    )


def _ranges(codec: KeyCodec, body: Question) -> list[KeyRange]:
    if body.keys is None and body.ranges is None:
        return [KeyRange()]
    found = [
        codec.range_from_json((_parts(low), _parts(high)), f"range {number}")
        for number, (low, high) in enumerate(body.ranges or (), start=1)
    ]
    found += [
        KeyRange.exactly(codec.from_json(_parts(key) or (), f"key {number}"))
        for number, key in enumerate(body.keys or (), start=1)
    ]
    return found or [EMPTY_RANGE]


def _parts(key: KeyJson | None) -> tuple[object, ...] | None:
    if key is None:
        return None
    return tuple(key) if isinstance(key, list) else (key,)


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

    Raises:
        TooMuchError: it took long, and there are none yet.
    """
    taken: list[pa.RecordBatch] = []
    size_bytes = count = 0
    for batch in batches:
        is_late = clock.now_ms() - time_ms > ANSWER_MS
        if taken and (size_bytes > PAGE_BYTES or is_late):
            return taken, True
        if not batch.num_rows:
            if is_late:
                raise TooMuchError
            continue
        some = batch.slice(0, rows - count)
        if some.num_rows:
            taken.append(some)
        count += some.num_rows
        size_bytes += some.nbytes
        if some.num_rows < batch.num_rows:
            return taken, True
    return taken, False
