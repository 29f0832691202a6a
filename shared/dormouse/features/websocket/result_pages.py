"""The pages of a query: rows of the files that its sub-queries have written, in their order.

A sub-query that is done has an end that never changes (`features.queries`), so a page is the same
whenever it is asked for, before the query has ended and after. A page is as long as a frame can be.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pyarrow as pa

from dormouse.access.results import check_readable
from dormouse.arrow.types import conform, frame_schema
from dormouse.client.reading.queries import QUEUE, failure_of
from dormouse.errors import NotFoundError
from dormouse.features.http.calls import Call
from dormouse.features.http.problems import ProblemError
from dormouse.features.http.resources.asked import own_query
from dormouse.features.queries.following import may_follow
from dormouse.features.queries.query import Query, QueryEnd, TaskEnd
from dormouse.features.queries.stored import load_end, load_query, load_task_ends
from dormouse.features.websocket.tokens import Place, place_of, token_of
from dormouse.messages.queries import FollowQuery
from dormouse.messages.socket_frames import (
    ColumnFrame,
    PageFrame,
    ProgressFrame,
    RowsForm,
    RowsFrame,
    encode_frame,
)
from dormouse.messages.stages import OutboundMessage
from dormouse.ports.connections import MOST_FRAME_BYTES
from dormouse.ports.services import JobRecord
from dormouse.results.cells import json_objects
from dormouse.results.formats import ResultFormat, write_rows
from dormouse.results.reading import read_rows, read_schema
from dormouse.stored.paths import query_prefix, task_of

FIRST_GUESS = 1024
"""How many rows the first page of a request may have."""
MOST_SKIPPED = 50
"""How many sub-queries without rows one request looks at: each is two reads, and a function has
half a minute.
"""
_GROWTH = 4
"""How many times as many rows as the page before a page may have."""
_GONE = "rows of this query are not kept any more"
_AGAIN = "ask the query again"


def pages(call: Call, asked: PageFrame, connection: str) -> Iterator[RowsFrame | ProgressFrame]:
    """Yield the pages that a client asks for, as far as there are any yet.

    Raises:
        ProblemError: the caller has no such query; the token does not fit; the query was cancelled,
            or its rows are not kept any more; or a row is longer than a frame.
        ForbiddenError: rules do not let the caller read a table any more.
        DormouseError: the query failed with it.
    """
    place = place_of(asked.after, asked.query_id)
    record = own_query(call, asked.query_id)
    end = _end(call, record, asked.query_id)
    query = load_query(call.services.results, asked.query_id)
    if query is None and end is not None:
        raise ProblemError(410, _GONE, hint=_AGAIN)
    if query is None:
        yield ProgressFrame(id=asked.id, query_id=asked.query_id, state="waiting")
        return
    if end is None:
        _follow(call, query, connection)
    left, guess, skipped = asked.pages, FIRST_GUESS, 0
    while left:
        task_end = _task_end(call, query, place.task)
        if task_end is None:
            yield _not_yet(call, asked, query, place.task, record, end)
            return
        reader, before = _Reader(call, asked, query, task_end, place), left
        for page in reader.pages(left, guess):
            yield page
            left -= 1
            guess = page.count * _GROWTH
        place = reader.place
        skipped += before == left
        if skipped == MOST_SKIPPED:
            yield _empty(asked, task_end.schema, token_of(place))
            return


def _follow(call: Call, query: Query, connection: str) -> None:
    """Let a connection that goes on with a query of another one have its news."""
    if not may_follow(call.services.results, query, connection):
        return
    message = FollowQuery(query_id=query.id, connection=connection, who=call.principal)
    call.instance.queues.send([OutboundMessage(QUEUE, message)])


def _not_yet(
    call: Call,
    asked: PageFrame,
    query: Query,
    task: int,
    record: JobRecord | None,
    end: QueryEnd | None,
) -> RowsFrame | ProgressFrame:
    """Return what is answered where a sub-query has no end: the end of the query, or that there is
    more to come. Raises as `pages`; and ProblemError: the sub-query has written rows that are gone.
    """
    if end is not None:
        _check(call, end)
        if any(task_of(file.name) >= task for file in end.files):
            raise ProblemError(410, _GONE, hint=_AGAIN)
        return _empty(asked, end.schema, "")
    return ProgressFrame(
        id=asked.id,
        query_id=query.id,
        state="running",
        parts=query.tasks,
        parts_done=record.parts_done if record is not None else 0,
        rows=record.rows if record is not None else 0,
    )


def _end(call: Call, record: JobRecord | None, query_id: str) -> QueryEnd | None:
    """Return how a query has finished; None if it has not ended. Raises as `pages`."""
    end = load_end(call.services.results, query_id)
    if end is None:
        if record is not None and record.is_finished:
            raise ProblemError(410, _GONE, hint=_AGAIN)
        return None
    if end.state == "cancelled":
        raise ProblemError(410, "the query was cancelled", hint=_AGAIN)
    if end.state == "failed":
        raise failure_of(end)
    return end


def _task_end(call: Call, query: Query, task: int) -> TaskEnd | None:
    """Return the end of the sub-query at a place; None if there is none, or not yet."""
    try:
        (found,) = load_task_ends(call.services.results, query.id, [task])
    except NotFoundError:
        return None
    _check(call, found)
    return found


def _check(call: Call, end: TaskEnd | QueryEnd) -> None:
    """Check that the caller may still see what was read."""
    check_readable(call.services, call.principal, end.versions, end.columns)
    if any(call.services.table(table_id) is None for table_id in end.columns):
        raise ProblemError(410, "a table of this query was deleted", hint="ask another query")


@dataclass
class _Reader:
    """Reads the files of one sub-query, from a place on; `place` is where the next page begins."""

    call: Call
    asked: PageFrame
    query: Query
    end: TaskEnd
    place: Place

    def pages(self, most: int, guess: int) -> Iterator[RowsFrame]:
        """Yield up to `most` pages; if there are fewer, go on to the next sub-query."""
        while self.place.file < len(self.end.files):
            for page in self._pages_of_file(guess):
                yield page
                most -= 1
                guess = page.count * _GROWTH
                if not most:
                    return
            self.place = _replace(self.place, file=self.place.file + 1, row=0)
        self.place = _replace(self.place, task=self.place.task + 1, file=0, row=0)

    def _pages_of_file(self, guess: int) -> Iterator[RowsFrame]:
        file = self.end.files[self.place.file]
        if self.place.row >= file.rows:
            return
        schema = read_schema(self.end.schema, self.query.id)
        path = query_prefix(self.query.id) + file.name
        form = ResultFormat(self.query.asked.format)
        try:
            for batch in read_rows(
                self.call.services.results,
                form,
                schema,
                path,
                file.size_bytes,
                file.rows,
                self.place.row,
            ):
                while batch.num_rows:
                    page = self._page(batch.slice(0, guess))
                    batch, guess = batch.slice(page.count), page.count * _GROWTH
                    yield page
        except NotFoundError as error:
            raise ProblemError(410, _GONE, hint=_AGAIN) from error

    def _page(self, batch: pa.RecordBatch) -> RowsFrame:
        """Return the first rows of a batch, as many as fit into a frame."""
        count = batch.num_rows
        while True:
            after = _replace(self.place, row=self.place.row + count)
            page = _encoded(self.asked, batch.slice(0, count), token_of(after))
            size_bytes = len(encode_frame(page).encode())
            if size_bytes <= MOST_FRAME_BYTES:
                self.place = after
                return page
            if count == 1:
                raise ProblemError(
                    413,
                    f"a row takes more than the {MOST_FRAME_BYTES:,} bytes of a frame",
                    hint="ask for fewer columns, or by HTTP with Prefer: respond-async",
                )
            count = max(1, min(count // 2, count * MOST_FRAME_BYTES // size_bytes))


def _replace(place: Place, **changes: int) -> Place:
    return msgspec.structs.replace(place, **changes)


def _empty(asked: PageFrame, schema: str, after: str) -> RowsFrame:
    """Return a page without rows. Raises ProblemError: its columns are longer than a frame."""
    columns = frame_schema(read_schema(schema, asked.query_id))
    page = _encoded(asked, pa.RecordBatch.from_pylist([], columns), after)
    if len(encode_frame(page).encode()) > MOST_FRAME_BYTES:
        raise ProblemError(
            413,
            f"the columns take more than the {MOST_FRAME_BYTES:,} bytes of a frame",
            hint="ask for fewer columns",
        )
    return page


def _encoded(asked: PageFrame, batch: pa.RecordBatch, after: str) -> RowsFrame:
    schema = frame_schema(batch.schema)
    rows, form = conform(batch, schema), asked.form
    columns, objects, arrow = _content(form, rows, schema)
    return RowsFrame(
        id=asked.id,
        query_id=asked.query_id,
        columns=columns,
        rows=objects,
        arrow=arrow,
        count=batch.num_rows,
        next=after,
    )


def _content(
    form: RowsForm, rows: pa.RecordBatch, schema: pa.Schema
) -> tuple[tuple[ColumnFrame, ...], tuple[msgspec.Raw, ...], str]:
    if form == "arrow":
        sink = io.BytesIO()
        write_rows(ResultFormat.arrow, [rows], schema, sink)
        return (), (), base64.b64encode(sink.getvalue()).decode()
    columns = tuple(ColumnFrame(name=each.name, type=str(each.type)) for each in schema)
    return columns, tuple(msgspec.Raw(msgspec.json.encode(row)) for row in json_objects(rows)), ""
