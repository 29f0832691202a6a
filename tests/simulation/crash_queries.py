"""The queries over messages that are cut off: each is answered once in the end, whole or not at
all.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence

import pyarrow.parquet as pq

from dormouse.features.queries import QUERIES, QueryEnd, load_end
from dormouse.messages.stages import (
    AnswerQuery,
    CancelQuery,
    Message,
    QueryLimits,
    SelectionMessage,
    encode,
)
from dormouse.stored.paths import query_prefix
from tests.simulation.crash_operations import NAME, TEXTS, Prepare, filled, handles, rows
from tests.simulation.crash_points import Answer, Operation
from tests.simulation.crash_recovery import Rows
from tests.simulation.instance import Instance, Worker

CUT = {"query_cut_bytes": 0, "query_task_bytes": 1}
LONGER_THAN_RECOVERY = 10**6
QUEUE, TO = "queries", "answers"
ROWS = rows(*TEXTS)
LIMIT = 10
ALL = AnswerQuery(query_id="q", table=NAME)
SENT = AnswerQuery(query_id="q", table=NAME, to=TO)
FIRST = AnswerQuery(query_id="q", table=NAME, selection=SelectionMessage(limit=LIMIT))
BRIEF = AnswerQuery(query_id="q", table=NAME, limits=QueryLimits(seconds=60))
PLAIN = AnswerQuery(query_id="q", sql=f'SELECT letter, "at" FROM {NAME} ORDER BY letter, "at"')
COMPUTED = AnswerQuery(
    query_id="q",
    sql=f'SELECT letter, max("at") AS "at" FROM {NAME} GROUP BY letter, "at" ORDER BY letter, "at"',
)


def _send(instance: Instance, message: Message) -> None:
    instance.queues.send(QUEUE, encode(message))


def asked(message: AnswerQuery, handled: int = 0, **properties: object) -> Prepare:
    """Bring a table to a query, of which so many messages were handled."""

    def prepare(instance: Instance, worker: Worker) -> dict[str, Rows]:
        tables = instance.tables
        tables.settings = {**tables.settings, "query_limit_seconds": LONGER_THAN_RECOVERY}
        filled(instance, worker, **properties)
        _send(instance, message)
        for _ in range(handled):
            handles(QUEUE)(instance, worker)
        return {NAME: ROWS}

    return prepare


def _to_cancel(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring a query, of which one sub-query is done, to its cancellation."""
    expected = asked(ALL, 2, **CUT)(instance, worker)
    _send(instance, CancelQuery(query_id="q"))
    instance.queues.messages[QUEUE].reverse()
    return expected


def _cancelled(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring a cancelled query to the sweep that deletes what it wrote."""
    expected = _to_cancel(instance, worker)
    handles(QUEUE)(instance, worker)
    return expected


def _overdue(instance: Instance, worker: Worker) -> dict[str, Rows]:
    """Bring a query, of which all messages are lost, to a sweep after its time is over."""
    expected = asked(BRIEF, 1, **CUT)(instance, worker)
    instance.queues.messages[QUEUE].clear()
    instance.clock.advance(seconds=61)
    return expected


def _sweeps(instance: Instance, worker: Worker) -> None:
    worker.scheduled("sweep")


FINISHED, CANCELLED, FAILED = Answer("finished", ROWS), Answer("cancelled"), Answer("failed")
TOO_LATE = Answer("cancelled", ROWS, may_finish=True)
"""A cancellation whose process dies may come again when the query is finished."""
_ANSWERS = handles(QUEUE)
QUERIES_CUT_OFF: Sequence[Operation] = tuple(
    Operation(f"query: {name}", prepare, run, answer=answer)
    for name, prepare, run, answer in (
        ("begin", asked(ALL, **CUT), _ANSWERS, FINISHED),
        ("answer at once, and send", asked(SENT), _ANSWERS, FINISHED),
        ("sub-query", asked(ALL, 1, **CUT), _ANSWERS, FINISHED),
        ("last end", asked(SENT, 2, **CUT), _ANSWERS, FINISHED),
        ("limit", asked(FIRST, **CUT), _ANSWERS, Answer("finished", ROWS[:LIMIT])),
        ("cancel", _to_cancel, _ANSWERS, TOO_LATE),
        ("sweep what was cancelled", _cancelled, _sweeps, CANCELLED),
        ("overdue", _overdue, _sweeps, FAILED),
        ("SQL", asked(PLAIN), _ANSWERS, FINISHED),
        ("SQL that groups", asked(COMPUTED), _ANSWERS, FINISHED),
    )
)


def unanswered(instance: Instance, answer: Answer, *, at_once: bool, dies: bool) -> Iterator[str]:
    """Return what is wrong with how the query ended; `at_once` it need not have. If processes died
    twice, it may have failed as too large.
    """
    end = load_end(instance.results, "q")
    if end is None:
        if not at_once:
            yield "the query has not ended"
        return
    is_too_large = dies and end.error == "JobTooLargeError"
    is_too_late = answer.may_finish and end.state == "finished"
    if end.state != answer.state and not is_too_large and not is_too_late:
        yield f"the query is {end.state}: {end.reason}"
    if end.state == "finished" and (found := _rows_of(instance, end)) != answer.rows:
        yield f"the query has the rows {found}"
    if at_once:
        return
    record = instance.tracker.get(QUERIES, "q")
    if record is None or record.state != end.state:
        yield f"the query is {end.state}, and recorded as {record}"
    parts = [stored.path for stored in instance.results.list(f"{query_prefix('q')}part-")]
    if end.state != "finished" and parts:
        yield f"{parts[0]} is left of a query that is {end.state}"
    sent = [json.loads(body)["state"] for body in set(instance.answers.bodies)]
    if sent != [end.state] * bool(end.to):
        yield f"{sent} was sent to {end.to!r}"


def _rows_of(instance: Instance, end: QueryEnd) -> Rows:
    found: list[tuple[object, ...]] = []
    for file in end.files:
        table = pq.read_table(io.BytesIO(instance.results.get(f"{query_prefix('q')}{file.name}")))
        columns = [table.column(number).to_pylist() for number in range(2)]
        found += zip(*columns, strict=True)
    return tuple(found)
