"""Begin a query: check what is asked, fix the version that is read, and cut it into sub-queries.

Order of writes: the pin of the version, the tasks, the query. If several deliveries begin a query
at once, all read the version that was pinned first, and the query that is saved first says which
tasks are used. A crash leaves a pin, which the next delivery uses, and tasks that nothing names.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import structs

from dormouse import errors
from dormouse.access import VisibleTable
from dormouse.errors import InvalidRequestError, LimitExceededError, needs_extra
from dormouse.features import queries
from dormouse.features.access import allowed_table, check_readable, visible_tables
from dormouse.features.long_jobs import ReadTable
from dormouse.features.versions import owner_of, pin_version, read_as_of, unpin
from dormouse.files.results import READABLE, ResultFormat, json_objects, read_rows, read_schema
from dormouse.jobs import record, tracked_job
from dormouse.messages.stages import AnswerQuery, OutboundMessage, StatementJob
from dormouse.ports import Services, Storage
from dormouse.query import selection
from dormouse.query.result import PeekableBatches, QueryResult
from dormouse.showing import json_lines
from dormouse.sql.conditions import check_statement
from dormouse.state.jobs import Cancelled, Failed, Finished, Progressed, Started
from dormouse.state.state import DAY_MS, TableState
from dormouse.state.versions import AsOf, parse_as_of
from dormouse.stored.paths import query_manifest_path, query_path, query_prefix
from dormouse.tables.properties import properties_of

if TYPE_CHECKING:
    from dormouse.statements.limits import Watch
    from dormouse.statements.tables import SqlTables


# Open the tables that a query reads, each at one version, which a pin holds.


def open_pinned(
    services: Services, request: AnswerQuery, name: str, as_of: AsOf | None
) -> tuple[VisibleTable, TableState]:
    """Return a table as who asks may see it, and its state at the version to read, which is pinned.

    A query that runs for a second time reads the version that it pinned first. The pin ends a day
    after the time of the query, if nobody removes it.

    Raises:
        NotFoundError: there is no such table for the one who asks; or no such version any more, or
            it is about to expire.
        ForbiddenError: who asks may not read the table.
        ContendedError: it took too long; nothing is pinned.
    """
    visible = allowed_table(services, request.who, name, "read")
    table, state = read_as_of(services, visible.table, as_of)
    seconds = request.limits.seconds or table.properties.query_limit_seconds
    owner = owner_of(request.query_id, as_of)
    table, state = pin_version(services, table, state, owner, seconds * 1000 + DAY_MS)
    return VisibleTable.of(table, visible.permission), state


def statement_tables(
    services: Services, query: queries.Query, columns: dict[str, set[str]]
) -> "SqlTables":
    """Return the tables of a statement as who asks may see them, each at one version, which is
    pinned.

    The columns that are read of those that are opened are added to `columns`, by the ids of tables.
    """
    from dormouse.statements.tables import SqlTables

    def opened(name: str, as_of: str) -> tuple[VisibleTable, TableState]:
        at = parse_as_of(as_of) if as_of else None
        return open_pinned(services, query.asked, name, at)

    return SqlTables(services, opened, query.begun_ms, columns=columns)


# What a statement in Spark's dialect may read, by its words alone.
#
# Spark parses and checks it, on its cluster. Before, the versions that it reads are pinned, so its
# names are looked for here: every word outside of literals and comments may be that of a table, and
# one too many does no harm. Spark takes no version of a view, so a reference with one gets the name
# of a view of that version:
#
#     SELECT a.n, flights.n FROM flights VERSION AS OF 33 JOIN flights AS a ON …
#     SELECT a.n, flights.n FROM `flights@33` AS `flights` JOIN flights AS a ON …

View: TypeAlias = tuple[str, str]
"""A table, and the version of it as it was written; the newest if that is empty."""

_PARTS = re.compile(
    r"(?P<comment>--(?:\\\n|[^\r\n])*|/\*[\s\S]*?(?:\*/|\Z))"
    r"|(?P<text>[rR]'[^']*'|[rR]\"[^\"]*\"|'(?:[^'\\]|\\[\s\S])*'|\"(?:[^\"\\]|\\[\s\S])*\""
    r"|\$(?P<tag>\w*)\$[\s\S]*?\$(?P=tag)\$)"
    r"|(?P<name>`(?:[^`]|``)*`|\w+)"
)
_VERSION = re.compile(
    r"(?P<table>`(?:[^`]|``)*`|\w+)\s+(?:FOR\s+)?(?:SYSTEM_)?VERSION\s+AS\s+OF\s+"
    r"(?P<version>\d+|'[^']*'|\"[^\"]*\")(?P<alias>\s*(?:`|\w+)|)",
    re.IGNORECASE,
)
_NO_ALIAS = re.compile(
    r"|ANTI|CLUSTER|CROSS|DISTRIBUTE|EXCEPT|FULL|GROUP|HAVING|INNER|INTERSECT|JOIN|LATERAL|LEFT"
    r"|LIMIT|MINUS|NATURAL|OFFSET|ON|ORDER|PIVOT|RIGHT|SELECT|SEMI|SETMINUS|SORT|UNION|UNPIVOT"
    r"|USING|WHERE|WINDOW",
    re.IGNORECASE,
)
"""What follows a table that has no alias; before TABLESAMPLE there can be none."""


@dataclass(frozen=True, slots=True)
class SparkText:
    """A statement: its `text` for Spark, the `words` that may be names, and the views of versions
    by their names.
    """

    text: str
    words: frozenset[str]
    versions: dict[str, View]


def spark_text(statement: str) -> SparkText:
    """Return what a statement may read.

    Raises:
        InvalidRequestError: it is too long, or has a comment within a comment.
    """
    check_statement(statement)
    words: set[str] = set()

    def masked(part: re.Match[str]) -> str:
        word = part[0]
        if part["name"]:
            words.add(_plain(word))
            return word
        if part["comment"]:
            if "/*" in word[2:]:
                raise InvalidRequestError("the statement has a comment within a comment")
            return " " * len(word)
        return f"'{' ' * (len(word) - 2)}'"

    versions: dict[str, View] = {}
    text, end = [], 0
    for each in _VERSION.finditer(_PARTS.sub(masked, statement)):
        table = _plain(each["table"])
        version = statement[slice(*each.span("version"))].strip("'\"")
        view = f"{table}@{version}"
        versions[view] = (table, version)
        text += [statement[end : each.start()], quoted(view)]
        if _NO_ALIAS.fullmatch(each["alias"].strip()):
            text.append(f" AS {quoted(table)}")
        end = each.end("version")
    return SparkText("".join([*text, statement[end:]]), frozenset(words), versions)


def quoted(name: str) -> str:
    """Return a name as Spark takes it, whatever its characters."""
    return "`" + name.replace("`", "``") + "`"


def _plain(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


_NO_SPARK = (
    "deploy it with Spark=yes; in a folder, install Java 17 and dormouse-tables[spark]; or leave "
    "Spark out, and DuckDB computes the statement, in its own dialect"
)


def begin_query(services: Services, request: AnswerQuery) -> queries.Query:
    """Plan and save a query; return it, or the one that another delivery saved first.

    Raises:
        InvalidRequestError: a key, column, condition or limit does not fit the table, or results
            are not sent to such a queue.
        NotFoundError: there is no such table or version of it, or the queue is gone.
        ContendedError: to pin the version took too long; retry the message.
    """
    if request.to:
        services.result_queues.check(request.to)
    if request.spark:
        query = _for_spark(services, request)
    else:
        query = _statement(services, request) if request.sql else _rows(services, request)
    return queries.QUERY.save(services.results, query_path(query.id), query)


def _statement(services: Services, message: AnswerQuery) -> queries.Query:
    """Return the query of a statement in SQL: one function computes it, and opens its tables."""
    properties = properties_of(services.tables.defaults())
    digest, now_ms = queries.question(message), services.clock.now_ms()
    message = structs.replace(message, limits=queries.effective_limits(message.limits, properties))
    return queries.Query(message, digest, now_ms, services.ids.new(), 1)


def _for_spark(services: Services, message: AnswerQuery) -> queries.Query:
    """Return the query of a statement for Spark: what it may read is fixed and pinned here, by the
    rules for the one who asks; the job reads nothing else.
    """
    if not services.has_spark:
        raise InvalidRequestError("this instance has no Spark", hint=_NO_SPARK)
    statement = spark_text(message.sql)
    readable = [
        each.table.name
        for each in visible_tables(services, message.who)
        if "read" in each.permission.verbs and each.table.name in statement.words
    ]
    names: dict[str, View] = {name: (name, "") for name in readable} | statement.versions
    if not names:
        raise InvalidRequestError(
            "the statement names no table that you may read",
            hint="names of tables are case-sensitive; without tables it needs no Spark",
        )
    _check_views(names)
    views, size_bytes, now_ms = {}, 0, services.clock.now_ms()
    for view, (name, as_of) in names.items():
        visible, state = open_pinned(services, message, name, parse_as_of(as_of) if as_of else None)
        table = visible.table
        scope = selection.select(table.schema, state.version, now_ms, permission=visible.permission)
        views[view] = ReadTable.of(table, scope)
        size_bytes += selection.bytes_to_read(state, selection.selected_ranges(table, scope))
    properties = properties_of(services.tables.defaults())
    digest = queries.question(message)
    message = structs.replace(message, limits=queries.effective_limits(message.limits, properties))
    cut = message.query_id  # the job's id, so that the query is found if its table is deleted
    return queries.Query(
        message, digest, now_ms, cut, 1, size_bytes=size_bytes, views=views, text=statement.text
    )


def _check_views(names: Iterable[str]) -> None:
    """Refuse names of which Spark would take one for the other."""
    first: dict[str, str] = {}
    for name in names:
        other = first.setdefault(name.lower(), name)
        if other != name:
            raise InvalidRequestError(
                f"the statement names {other} and {name}, which differ only by case: Spark takes "
                "one for the other",
                hint="give an alias or a column another name, or rename a table",
            )


def _rows(services: Services, message: AnswerQuery) -> queries.Query:
    """Return the query of rows of a table; its tasks are saved."""
    visible, state = open_pinned(services, message, message.table, message.selection.as_of)
    table, now_ms = visible.table, services.clock.now_ms()
    limits = queries.effective_limits(message.limits, table.properties)
    scope = selection.decode_selection(
        message.selection,
        table.schema,
        permission=visible.permission,
        version=state.version,
        time_ms=now_ms,
    )
    ranges = selection.selected_ranges(table, scope)
    size_bytes = selection.bytes_to_read(state, ranges)
    is_cut = size_bytes > table.properties.query_cut_bytes
    task_bytes = table.properties.query_task_bytes if is_cut else max(1, size_bytes)
    cut = services.ids.new()
    pieces = selection.plan_tasks(state, ranges, task_bytes)
    tasks = queries.parts_of(services.results, message.query_id, cut).save(pieces)
    if scope.limit is not None and state.rows <= scope.limit:
        scope = replace(scope, limit=None)  # it leaves nothing out
    in_turn = scope.limit is not None
    digest = queries.question(message)
    message = structs.replace(message, limits=limits)
    read = ReadTable.of(table, scope)
    return queries.Query(message, digest, now_ms, cut, tasks, read, in_turn, size_bytes)


# The rows of a statement in SQL over messages: one function computes all of it.

_WITH_SPARK = (
    "ask for less, or let Spark compute it: dormouse sql --spark, or `spark` of the message; the "
    "statement is in Spark's dialect then"
)


def statement_rows(
    services: Services, query: queries.Query, columns: dict[str, set[str]], watch: "Watch"
) -> QueryResult:
    """Return the rows of a statement; add the columns that it reads to `columns`, by the ids of
    tables. `watch` may end it while it is computed.

    Raises:
        LimitExceededError: it needs too much; at the latest, that is known when rows are taken.
    """
    with needs_extra("sql", "a statement in SQL"):
        from dormouse.statements.running import run_statement
    limits, asked = queries.statement_limits(services, query), query.asked
    with _naming_spark():
        tables = statement_tables(services, query, columns)
        result = run_statement(tables, asked.sql, asked.parameters, services.scratch, limits, watch)
    return replace(result, batches=PeekableBatches(_naming_spark_in(result.batches)))


def _naming_spark_in(batches: PeekableBatches) -> Iterator[pa.RecordBatch]:
    try:
        with _naming_spark():
            yield from batches
    finally:
        batches.close()


@contextmanager
def _naming_spark() -> Iterator[None]:
    """Say what else to do about a statement that exceeds the limits of one function."""
    try:
        yield
    except LimitExceededError as error:
        raise LimitExceededError(str(error), hint=_WITH_SPARK) from error


# What becomes of a query that runs: its progress, its end, and statements that Spark computes.


# How far a query is.


def report_progress(
    services: Services, query: queries.Query, done: int, usage: queries.Spent
) -> None:
    """Record that so many sub-queries are done, and what the query has spent."""
    progress = Progressed(
        rows=usage.rows,
        size_bytes=usage.read_bytes,
        requests=usage.requests,
        parts=query.tasks,
        parts_done=done,
    )
    record(services, query.tracked_job, progress)


# How a query ends: its manifest is put once, then it is recorded, and its pins are removed.
#
# A crash after the manifest leaves the record and the pins; each later delivery of a message of the
# query settles them, and so does the sweep. What a query stored that failed or was cancelled is
# deleted by the sweep, which finds it by its pins: the function has no right to delete objects.

CANCELLED = "it was cancelled"
CANCELLED_BY_ADMINISTRATOR = "it was cancelled by someone who administers the instance"
_EVENTS: Mapping[queries.EndState, type[Finished | Failed | Cancelled]] = {
    "finished": Finished,
    "failed": Failed,
    "cancelled": Cancelled,
}


@contextmanager
def failing(services: Services, query: queries.Query) -> Iterator[None]:
    """End a query if the block fails with an error that a retry cannot cure.

    Raises:
        UnavailableError: a service does not answer; the message can be retried.
    """
    try:
        yield
    except (errors.UnavailableError, errors.OutcomeUnknownError):
        raise
    except errors.DormouseError as error:
        settle(services, save_early(services, query, "failed", error.explanation, error.class_name))


def save_early(
    services: Services, query: queries.Query, state: queries.EndState, reason: str, error: str = ""
) -> queries.QueryEnd:
    """Save that a query ended without a result, which another may have said first; the next message
    about the query settles that.
    """
    return _save_end(services, query, state, reason=reason, error=error)


def _save_end(
    services: Services, query: queries.Query, state: queries.EndState, **more: Any
) -> queries.QueryEnd:
    end = queries.QueryEnd(
        query=query.id,
        state=state,
        question=query.question,
        ended_ms=services.clock.now_ms(),
        begun_ms=query.begun_ms,
        who=query.asked.who,
        to=query.asked.to,
        format=query.asked.format,
        **more,
    )
    return queries.END.save(services.results, query_manifest_path(end.query), end)


def finish(services: Services, query: queries.Query, ends: Iterable[queries.TaskEnd]) -> None:
    """Put the manifest of a query whose sub-queries are done, in their order.

    Raises:
        ForbiddenError: rules have changed meanwhile, and do not let who asked read it any more.
    """
    parts = list(ends)
    versions: dict[str, tuple[int, ...]] = {}  # all sub-queries have read the same of a table
    columns: dict[str, set[str]] = {}
    for part in parts:
        versions |= part.versions
        for table_id, names in part.columns.items():
            columns.setdefault(table_id, set()).update(names)
    check_readable(services, query.asked.who, versions, columns)
    usage = queries.total(parts)
    end = _save_end(
        services,
        query,
        "finished",
        schema=parts[0].schema,
        versions=versions,
        columns={table_id: tuple(sorted(names)) for table_id, names in columns.items()},
        files=tuple(file for part in parts for file in part.files),
        rows=usage.rows,
        size_bytes=usage.result_bytes,
        tasks=query.tasks,
        requests=usage.requests,
        read_bytes=usage.read_bytes,
        function_milliseconds=usage.milliseconds,
    )
    settle(services, end)


def settle(services: Services, end: queries.QueryEnd) -> None:
    """Send how a query ended to its queue, if it names one, then record it, and let go of the
    versions that a finished one read.
    """
    last = services.tracker.get(queries.tracked_query(end.query).table_id, end.query)
    if last is None or not last.is_finished:
        undelivered = _deliver(services, end) if end.to else ""
        kind = Failed if undelivered else _EVENTS[end.state]
        event = kind(
            reason=undelivered or end.reason,
            rows=end.rows,
            files=len(end.files),
            size_bytes=end.read_bytes,
            who=end.who,
            parts=end.tasks,
            parts_done=end.tasks,
            requests=end.requests,
        )
        record(services, queries.tracked_query(end.query), event)
    if end.state == "finished":
        for table_id in end.columns:
            table = services.table(table_id)
            if table is not None:
                unpin(services, table, end.query)


def _deliver(services: Services, end: queries.QueryEnd) -> str:
    """Send how a query ended to its queue; return why that cannot be, empty if it was done.
    Raises UnavailableError: some messages may not have been sent; deliver again.
    """
    try:
        texts = [_text(message) for message in messages_of(services.results, end)]
        services.result_queues.send(end.to, end.query, texts)
    except (errors.UnavailableError, errors.OutcomeUnknownError):
        raise
    except errors.DormouseError as error:
        return end.reason or f"the result is complete, but was not sent: {error.explanation}"
    return ""


# A statement that Spark computes: what its job does, which has no access to queues.
#
# The driver saves the end of the only sub-query, or that the query has failed. After the run, a
# message to `answer_query` goes on from there: it puts the manifest, sends it and records it.

Compute: TypeAlias = Callable[[queries.Query], queries.TaskEnd]
"""Writes the rows of a statement, and returns where they are."""


def is_computed(services: Services, job: StatementJob) -> bool:
    """Return whether Spark has no more to do: the rows are there, or the query has ended."""
    query = queries.load_query(services.results, job.query_id)
    return (
        query is None
        or queries.load_end(services.results, query.id) is not None
        or bool(queries.done_tasks(services.results, query))
    )


def compute(services: Services, job: StatementJob, compute: Compute) -> None:
    """Compute the statement of a job, unless that is done; an error that a retry cannot cure fails
    the query.

    Raises:
        UnavailableError: a service does not answer, or Spark failed; the job can be run again.
    """
    query = queries.load_query(services.results, job.query_id)
    if query is None or is_computed(services, job):
        return
    tracked = tracked_job(job)
    record(services, tracked, Started(subject=query.id, who=query.asked.who))
    try:
        queries.check_time(query.asked.limits, query.begun_ms, services.clock.now_ms())
        end = compute(query)
        queries.parts_of(services.results, query.id).end(0, end)
        record(services, tracked, Finished(rows=end.spent.rows, size_bytes=end.spent.read_bytes))
    except queries.EndedError:
        record(services, tracked, Finished("its query has ended meanwhile"))
    except errors.DormouseError as error:
        record(services, tracked, Failed(error.explanation))
        if isinstance(error, errors.UnavailableError | errors.OutcomeUnknownError):
            raise
        fail(services, job, error.explanation, error.class_name)


def fail(services: Services, job: StatementJob, reason: str, error: str) -> None:
    """Save that the query of a job has failed, unless it has ended."""
    query = queries.load_query(services.results, job.query_id)
    if query is not None:
        save_early(services, query, "failed", reason, error)


def following(services: Services, job: StatementJob) -> list[OutboundMessage]:
    """Return the message with which the query of a job goes on."""
    query = queries.load_query(services.results, job.query_id)
    return [] if query is None else queries.task_messages(query, [0])


# Send the result of a query to a queue: rows as JSON if they are few, else where the files are.
#
# Messages are numbered from 1 and say how many there are, so a receiver knows what it has twice and
# what is missing: they may come twice or in another order, but what a number has never changes. A
# query that has no result sends why. They are sent after the manifest was put, which is what the
# message of a large result leads to, and before the end of the query is recorded: a crash between
# sends them again.

MESSAGE_BYTES = 240 * 1024
"""The most bytes of the rows of one message; queues of SQS take 256 KiB at least."""
MOST_MESSAGES = 16
"""A result that needs more messages is not sent, but where it is."""


class ResultMessage(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    kw_only=True,
    tag="query_result",
    tag_field="type",
):
    """What is sent of a query: message `part`, from 1, of `parts`; `is_last` for the last.

    `rows` are objects as in JSON lines. Of a large result there is one message, with the URI of the
    `manifest`, which names its files. `total` is the number of rows of the whole result.
    """

    query_id: str
    state: str
    part: int
    parts: int
    is_last: bool
    total: int = 0
    manifest: str = ""
    reason: str = ""
    error: str = ""
    rows: tuple[msgspec.Raw, ...] = ()


def messages_of(results: Storage, end: queries.QueryEnd) -> Iterator[ResultMessage]:
    """Yield the messages of a query that has ended; each call yields the same."""
    if end.state != "finished":
        common: dict[str, Any] = {"reason": end.reason, "error": end.error}
        yield _message(end, 1, 1, common)
        return
    groups = _row_groups(results, end)
    if groups is None:
        yield _message(end, 1, 1, {"manifest": f"{results.uri}/{query_manifest_path(end.query)}"})
        return
    for part, rows in enumerate(groups, start=1):
        yield _message(end, part, len(groups), {"rows": tuple(map(msgspec.Raw, rows))})


def _message(end: queries.QueryEnd, part: int, parts: int, more: dict[str, Any]) -> ResultMessage:
    return ResultMessage(
        query_id=end.query,
        state=end.state,
        part=part,
        parts=parts,
        is_last=part == parts,
        total=end.rows,
        **more,
    )


def _text(message: ResultMessage) -> str:
    return msgspec.json.encode(message).decode()


def _row_groups(results: Storage, end: queries.QueryEnd) -> list[list[bytes]] | None:
    """Return the rows of each message as JSON; None if they are too many or too large, or JSON
    lacks a value.
    """
    form = ResultFormat(end.format)
    if form not in READABLE or end.size_bytes > MOST_MESSAGES * MESSAGE_BYTES:
        return None
    try:
        return _grouped(_lines(results, end, form))
    except errors.InvalidRequestError:
        return None


def _grouped(lines: Iterable[bytes]) -> list[list[bytes]] | None:
    groups: list[list[bytes]] = [[]]
    size_bytes = 0
    for line in lines:
        if len(line) > MESSAGE_BYTES:
            return None
        if size_bytes + len(line) > MESSAGE_BYTES:
            groups.append([])
            size_bytes = 0
            if len(groups) > MOST_MESSAGES:
                return None
        groups[-1].append(line)
        size_bytes += len(line) + 1
    return groups


def _lines(results: Storage, end: queries.QueryEnd, form: ResultFormat) -> Iterator[bytes]:
    schema = read_schema(end.schema, end.query)
    for file in end.files:
        path = query_prefix(end.query) + file.name
        for batch in read_rows(results, form, schema, path, file.size_bytes, file.rows):
            for row in json_objects(batch):
                yield json_lines([row]).rstrip(b"\n")
