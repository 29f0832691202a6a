"""Answer one sub-query: read its rows, write them to its sink, and save its end.

Order of writes: the files of this attempt, then the end of the sub-query, which names them. A crash
leaves files that nothing names; the next attempt writes its own. What a sub-query of a statement in
SQL reads says `statements`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dormouse.features.queries.answering.sinks import FileSink, ResultSink
from dormouse.features.queries.answering.statements import statement_rows
from dormouse.features.queries.following import report_progress
from dormouse.features.queries.limits import EndedError, Spent, Watch
from dormouse.features.queries.query import Query, TaskEnd
from dormouse.features.queries.stored import load_end, load_pieces
from dormouse.ports.services import Services, Storage
from dormouse.query.planner import slices_from
from dormouse.query.result import QueryResult
from dormouse.query.rows import query_slices

if TYPE_CHECKING:
    from dormouse.ports.services import Ids
    from dormouse.readers.read_counters import ReadCounters
    from dormouse.statements.limits import Watch as StatementWatch


@dataclass(frozen=True, slots=True)
class ResultAttempts:
    """Where attempts at sub-queries are marked: beside their results (`jobs.attempts`)."""

    storage: Storage
    ids: Ids


def answer(
    services: Services,
    query: Query,
    task: int,
    before: Spent,
) -> TaskEnd | None:
    """Return the end of a sub-query, whose rows are written; None if the query has ended.

    `before` is what the sub-queries before have spent.

    Raises:
        LimitExceededError: the query took more than it may.
        NotFoundError: a shard or table that it needs is gone.
    """
    watch = Watch(
        query.asked.limits,
        query.begun_ms,
        services.memory_bytes,
        before,
        services.clock.now_ms,
        lambda spent: _look(services, query, spent),
    )
    sink = _file_sink(services, query, task)
    read: dict[str, set[str]] = {}

    def look(reads: ReadCounters) -> None:
        watch.check(reads, sink.size_bytes)

    opening = _rows(services, query, task, before, read, look)
    with _aborting(sink), suppress(EndedError), opening as rows:
        return _written(rows, sink, watch, read)
    return None


def _look(services: Services, query: Query, spent: Spent) -> bool:
    """Return whether a query has ended; if it has not, and there is no other sub-query whose end
    would be news, say how far this one is.
    """
    if load_end(services.results, query.id) is not None:
        return True
    if query.tasks == 1:
        report_progress(services, query, 0, spent)
    return False


def _written(
    rows: QueryResult, sink: ResultSink, watch: Watch, read: Mapping[str, set[str]]
) -> TaskEnd:
    sink.begin(rows.schema)
    for batch in rows:
        watch.rows += batch.num_rows
        sink.write(batch)
        watch.check(rows.reads, sink.size_bytes)
    files = sink.end()
    spent = watch.spent(rows.reads, sum(file.size_bytes for file in files))
    watch.check(rows.reads, spent.result_bytes)
    return TaskEnd(
        files,
        watch.rows,
        base64.b64encode(rows.schema.serialize().to_pybytes()).decode(),
        spent.requests,
        spent.read_bytes,
        spent.milliseconds,
        {table_id: tuple(sorted(columns)) for table_id, columns in read.items()},
        dict(rows.versions),
    )


@contextmanager
def _aborting(sink: ResultSink) -> Iterator[None]:
    try:
        yield
    finally:
        sink.abort()


@contextmanager
def _rows(
    services: Services,
    query: Query,
    task: int,
    before: Spent,
    noted: dict[str, set[str]],
    look: StatementWatch,
) -> Iterator[QueryResult]:
    """Open the rows of a sub-query, and note the columns that it reads, by the ids of tables; rows
    are read while they are taken. `look` looks whether to go on while a statement is computed.
    """
    read = query.read
    if read is None:
        found = statement_rows(services, query, noted, look)
    else:
        selection = read.selection
        noted[read.id] = {*selection.columns, *selection.tested_columns}
        if selection.limit is not None:
            selection = replace(selection, limit=max(0, selection.limit - before.rows))
        parts = slices_from(load_pieces(services.results, query, task))
        found = query_slices(services, read.table, parts, selection)
        found = replace(found, versions={read.name: (selection.version,)})
    try:
        yield found
    finally:
        found.close()


def _file_sink(services: Services, query: Query, task: int) -> ResultSink:
    place = (query.id, task, services.ids.new())
    return FileSink(services.results, services.scratch, place, query.asked.format)
