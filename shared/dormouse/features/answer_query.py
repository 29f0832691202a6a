"""answer_query: begin queries that messages ask, answer their sub-queries, cancel them.

A query that is not cut is answered at once by the delivery that begins it; others send a message
for each sub-query, or for the next one if a limit may make it needless. A statement in SQL is never
cut; one for Spark is a job of Spark's (`query_plans`). The delivery that finds all sub-queries done
puts the manifest. The end of a query is put once, so messages may come twice, late or side by side:
each query has one outcome. If two attempts at a sub-query crash (out of memory, time-out), the
third delivery fails the query.

Order of writes: what `query_plans` says; for each sub-query what `answer` says; the manifest; then
what `query_runs` says. A crash between the last end of a sub-query and the manifest leaves a query
that the redelivery of that sub-query, or the sweep, finishes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from dormouse.arrow.types import json_schema
from dormouse.encryption import FILES
from dormouse.errors import InvalidRequestError, JobTooLargeError, NotFoundError
from dormouse.features import queries, query_runs
from dormouse.features.access import administers_instance
from dormouse.features.query_plans import begin_query, statement_rows
from dormouse.features.requests import ResultFile
from dormouse.files.results import ResultFormat, RowFile
from dormouse.jobs import CRASH_LIMIT, crashed_attempts, record, record_attempt
from dormouse.messages import stages
from dormouse.ports import Services, Storage, Upload
from dormouse.query.result import QueryResult
from dormouse.query.rows import query_slices
from dormouse.query.selection import slices_from
from dormouse.state.jobs import Started
from dormouse.stored.paths import query_attempts_prefix, query_file, query_prefix
from dormouse.system import OwnFolder

if TYPE_CHECKING:
    import pyarrow as pa

    from dormouse.shards.reading import ReadCounters
    from dormouse.statements.limits import Watch as StatementWatch


# Where the rows of sub-queries go: files of a format in the results bucket.
#
# An attempt at a sub-query writes files of its own, so attempts side by side do not disturb each
# other. The end of the sub-query, which is put once, names the files of one attempt; the files of
# the others are never named, and expire with the rest.

FILE_BYTES = 256 * 1024 * 1024
"""About the size at which a file of a result ends."""


class FileSink:
    """Takes rows, as those of one attempt at one sub-query, in their order, into files in the
    results bucket. `begin` comes first, then batches; after `end` all is stored. What is not when a
    ``with`` block of it ends is forgotten.
    """

    def __init__(
        self, results: Storage, scratch: Path, prefix: str, name: Callable[[int], str], format: str
    ) -> None:
        """Write below a prefix files of names by their number, to which suffixes are added."""
        self._results, self._prefix = results, prefix
        self._base_name, self._format = name, ResultFormat(format)
        self._folder = OwnFolder(prefix="query-", dir=scratch)
        self._schema: pa.Schema | None = None
        self._files: list[ResultFile] = []
        self._stored_bytes = self._rows = 0
        self._writer: RowFile | None = None
        self._upload: Upload | None = None
        self.is_disturbed = False
        """Whether somebody else writes files of these names: then some are not these rows."""

    @property
    def size_bytes(self) -> int:
        """About how many bytes were written so far."""
        return self._stored_bytes + (self._writer.size_bytes if self._writer else 0)

    def begin(self, schema: pa.Schema) -> None:
        """Say of which schema the batches will be."""
        self._schema = schema

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows to the present file; store it once it is large enough."""
        if not batch.num_rows:
            return
        writer = self._writer or self._begin_file()
        writer.write(batch)
        self._rows += batch.num_rows
        if self._upload is not None:
            self._upload.advance(writer.size_bytes)
        if writer.size_bytes >= FILE_BYTES:
            self._store()

    def end(self, *, at_least_one: bool = False) -> tuple[ResultFile, ...]:
        """Store the last file, or `at_least_one` without rows if there were none; return all."""
        if at_least_one and not self._files and self._writer is None:
            self._begin_file()
        if self._writer is not None:
            self._store()
        self._folder.cleanup()
        return tuple(self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

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
        return self._base_name(len(self._files)) + self._format.suffix

    @property
    def _local(self) -> Path:
        return Path(self._folder.name) / self._name

    def _begin_file(self) -> RowFile:
        assert self._schema is not None
        self._upload = self._results.start_upload(self._prefix + self._name, self._local)
        self._writer = RowFile(self._local, self._format, self._schema)
        return self._writer

    def _store(self) -> None:
        assert self._writer is not None
        assert self._upload is not None
        self._writer.close()
        local, self._writer = self._local, None
        size_bytes = local.stat().st_size
        self.is_disturbed |= not self._upload.complete()
        self._upload = None
        self._files.append(ResultFile(self._name, self._rows, size_bytes))
        self._stored_bytes += size_bytes
        self._rows = 0
        local.unlink(missing_ok=True)


# Answer one sub-query: read its rows, write them to its sink, and save its end.
#
# Order of writes: the files of this attempt, then the end of the sub-query, which names them. A
# crash leaves files that nothing names; the next attempt writes its own. What a sub-query of a
# statement in SQL reads says `statements`.


def answer(
    services: Services, query: queries.Query, task: int, before: queries.Spent
) -> queries.TaskEnd | None:
    """Return the end of a sub-query, whose rows are written; None if the query has ended.

    `before` is what the sub-queries before have spent.

    Raises:
        LimitExceededError: the query took more than it may.
        NotFoundError: a shard or table that it needs is gone.
    """
    watch = queries.Watch(
        query.asked.limits,
        query.begun_ms,
        services.memory_bytes,
        before,
        services.clock.now_ms,
        lambda spent: _look(services, query, spent),
    )
    prefix, name = query_prefix(query.id), partial(query_file, task, services.ids.new())
    sink = FileSink(services.results, services.scratch, prefix, name, query.asked.format)
    columns: dict[str, set[str]] = {}

    def look(reads: ReadCounters) -> None:
        watch.check(reads, sink.size_bytes)

    opening = _rows(services, query, task, before, columns, look)
    with sink, suppress(queries.EndedError), opening as rows:
        return _written(rows, sink, watch, columns)
    return None


def _look(services: Services, query: queries.Query, usage: queries.Spent) -> bool:
    """Return whether a query has ended; if it has not, and there is no other sub-query whose end
    would be news, say how far this one is.
    """
    if queries.load_end(services.results, query.id) is not None:
        return True
    if query.tasks == 1:
        query_runs.report_progress(services, query, 0, usage)
    return False


def _written(
    rows: QueryResult, sink: FileSink, watch: queries.Watch, read: Mapping[str, set[str]]
) -> queries.TaskEnd:
    sink.begin(rows.schema)
    for batch in rows:
        watch.rows += batch.num_rows
        sink.write(batch)
        watch.check(rows.reads, sink.size_bytes)
    files = sink.end()
    usage = watch.spent(rows.reads, sum(file.size_bytes for file in files))
    watch.check(rows.reads, usage.result_bytes)
    return queries.TaskEnd(
        files,
        base64.b64encode(rows.schema.serialize().to_pybytes()).decode(),
        usage,
        {table_id: tuple(sorted(columns)) for table_id, columns in read.items()},
        dict(rows.versions),
    )


@contextmanager
def _rows(
    services: Services,
    query: queries.Query,
    task: int,
    before: queries.Spent,
    noted: dict[str, set[str]],
    look: StatementWatch,
) -> Iterator[QueryResult]:
    """Open the rows of a sub-query, and note the columns that it reads, by the ids of tables; rows
    are read while they are taken. `look` looks whether to go on while a statement is computed.
    """
    source, services = query.read, replace(services, keys=FILES)
    if source is None:
        result = statement_rows(services, query, noted, look)
    else:
        selection = source.selection
        noted[source.id] = {*selection.columns, *selection.tested_columns}
        if selection.limit is not None:
            selection = replace(selection, limit=max(0, selection.limit - before.rows))
        parts = slices_from(queries.parts_of(services.results, query.id, query.cut).pieces(task))
        result = query_slices(services, source.table, parts, selection).in_types(json_schema)
        result = replace(result, versions={source.name: (selection.version,)})
    try:
        yield result
    finally:
        result.close()


_CRASHED = f"{CRASH_LIMIT} attempts at it crashed, out of time or memory"
_LESS = "ask for less at once, lower query_task_bytes, or export the rows with Spark"


def answer_query(services: Services, message: stages.QueryMessage) -> list[stages.OutboundMessage]:
    """Do what a message asks, unless its query has ended.

    Raises:
        UnavailableError: a service does not answer; the message can be retried.
        InvalidRequestError: another query has this id.
        NotFoundError: the query was asked by somebody else.
    """
    end = queries.load_end(services.results, message.query_id)
    if end is not None:
        if isinstance(message, stages.AnswerQuery) and end.question:
            _check_same(message, end.question, end.who)
        query_runs.settle(services, end)
        return []
    match message:
        case stages.AnswerQuery():
            return _begin(services, message)
        case stages.CancelQuery():
            return _cancel(services, message)
        case stages.QueryTask():
            query = _own_query(services, message)
            return [] if query is None else _continue(services, query, message.task)


def _begin(services: Services, request: stages.AnswerQuery) -> list[stages.OutboundMessage]:
    query = queries.load_query(services.results, request.query_id)
    if query is not None:
        _check_same(request, query.question, query.asked.who)
    else:
        digest, now_ms = queries.question(request), services.clock.now_ms()
        with query_runs.failing(services, queries.Query(request, digest, now_ms, "", 0)):
            query = begin_query(services, request)
    if query is None:
        return []
    _check_same(request, query.question, query.asked.who)
    subject = query.read.name if query.read is not None else "SQL"
    start = Started(subject=subject, who=request.who, parts=query.tasks)
    record(services, query.tracked_job, start)
    end = queries.load_end(services.results, query.id)
    if end is not None:  # meanwhile; the record must not say for good that the query has begun
        query_runs.settle(services, end)
        return []
    if query.tasks == 1 or query.in_turn:
        return _continue(services, query, 0)
    return queries.task_messages(query, queries.done_tasks(services.results, query))


def _check_same(request: stages.AnswerQuery, digest: str, who: str) -> None:
    if queries.question(request) != digest or request.who != who:
        raise InvalidRequestError(
            f"another query has the id {request.query_id!r}",
            hint="give each query an id of its own",
        )


def _cancel(services: Services, message: stages.CancelQuery) -> list[stages.OutboundMessage]:
    """End a query without a result, for its owner or an administrator of the instance; one that has
    not begun never will.
    """
    query, reason = queries.load_query(services.results, message.query_id), query_runs.CANCELLED
    if query is None:
        request = stages.AnswerQuery(query_id=message.query_id, table="-", who=message.who)
        query = queries.Query(request, question="", begun_ms=0, cut="", tasks=0)
    elif query.asked.who != message.who:
        if not administers_instance(services, message.who):
            raise _not_yours(message.query_id)
        reason = query_runs.CANCELLED_BY_ADMINISTRATOR
    query_runs.settle(services, query_runs.save_early(services, query, "cancelled", reason))
    return []


def _own_query(services: Services, message: stages.QueryTask) -> queries.Query | None:
    """Return the query of a message from its owner, or from the instance, whose messages name the
    owner; None if the query has not begun.

    Others could end the query, by starting so many attempts at a sub-query side by side that they
    count as crashed.
    """
    query = queries.load_query(services.results, message.query_id)
    if query is not None and query.asked.who != message.who:
        raise _not_yours(message.query_id)
    return query


def _not_yours(query_id: str) -> NotFoundError:
    return NotFoundError(
        f"you have no query {query_id!r}",
        hint="the owner of a query, or an administrator of the instance, can cancel it; the sweep "
        "continues it",
    )


def _continue(services: Services, query: queries.Query, task: int) -> list[stages.OutboundMessage]:
    """Answer a sub-query, unless that is done; go on with what follows."""
    if not 0 <= task < query.tasks:
        raise InvalidRequestError(f"query {query.id!r} has no sub-query {task}")
    with query_runs.failing(services, query):
        return _answered(services, query, task)
    return []


def _answered(services: Services, query: queries.Query, task: int) -> list[stages.OutboundMessage]:
    queries.check_time(query.asked.limits, query.begun_ms, services.clock.now_ms())
    ends = queries.done_tasks(services.results, query)
    if query.in_turn and task not in ends:
        task = len(ends)  # whatever a message says: those before leave a part of the limit
    if task not in ends and query.views:
        return [queries.spark_job(query)]
    if task not in ends:
        before = _spent(services, query, ends)
        queries.check_spent(query.asked.limits, before, services.memory_bytes)
        end = _attempted(services, query, task, before)
        if end is None:  # the query has ended meanwhile
            return []
        queries.parts_of(services.results, query.id).end(task, end)
        ends = queries.done_tasks(services.results, query)
    return _next(services, query, ends)


def _attempted(
    services: Services, query: queries.Query, task: int, before: queries.Spent
) -> queries.TaskEnd | None:
    prefix = query_attempts_prefix(query.id, task)
    if len(crashed_attempts(services.results, prefix)) >= CRASH_LIMIT:
        raise JobTooLargeError(f"sub-query {task}: {_CRASHED}", hint=_LESS)
    with record_attempt(services.results, services.ids, prefix):
        if services.compute is None:
            return answer(services, query, task, before)
        left_ms = query.deadline_ms - services.clock.now_ms()
        services.compute(query.id, task, max(0.0, left_ms / 1000))
    if task not in queries.done_tasks(services.results, query):
        return None
    return queries.parts_of(services.results, query.id).load_ends([task])[0]


def compute_task(services: Services, query_id: str, task: int) -> None:
    """Answer a sub-query and save its end, for the process whose `Services.compute` this is.
    Raises DormouseError: the query fails with it.
    """
    query = queries.load_query(services.results, query_id)
    if query is None:
        return
    ends = queries.done_tasks(services.results, query)
    end = answer(services, query, task, _spent(services, query, ends))
    if end is not None:  # else the query has ended meanwhile
        queries.parts_of(services.results, query_id).end(task, end)


def _next(
    services: Services, query: queries.Query, done: list[int]
) -> list[stages.OutboundMessage]:
    """Finish a query whose sub-queries are done. Of another record the progress; return the message
    of its next sub-query, if they come in turn.

    A limit that is reached leaves nothing for the others: they are not answered.
    """
    ends = queries.parts_of(services.results, query.id).load_ends(done)
    usage = queries.total(ends)
    is_full = query.in_turn and query.limit is not None and usage.rows >= query.limit
    if is_full or len(done) == query.tasks:
        query_runs.finish(services, query, ends)
        return []
    query_runs.report_progress(services, query, len(done), usage)
    return queries.task_messages(query, done) if query.in_turn else []


def _spent(services: Services, query: queries.Query, done: list[int]) -> queries.Spent:
    return queries.total(queries.parts_of(services.results, query.id).load_ends(done))
