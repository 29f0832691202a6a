"""Begin a query: check what is asked, fix the version that is read, and cut it into sub-queries.

Order of writes: the pin of the version, the tasks, the query. If several deliveries begin a query
at once, all read the version that was pinned first, and the query that is saved first says which
tasks are used. A crash leaves a pin, which the next delivery uses, and tasks that nothing names.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from msgspec import structs

from dormouse.access import VisibleTable
from dormouse.errors import InvalidRequestError, LimitExceededError, needs_extra
from dormouse.features import queries
from dormouse.features.access import allowed_table, visible_tables
from dormouse.features.long_jobs import ReadTable
from dormouse.features.versions import owner_of, pin_version, read_as_of
from dormouse.messages.stages import AnswerQuery
from dormouse.ports import Services
from dormouse.query import selection
from dormouse.query.result import PeekableBatches, QueryResult
from dormouse.sql.conditions import check_statement
from dormouse.state.state import DAY_MS, TableState
from dormouse.state.versions import AsOf, parse_as_of
from dormouse.stored.paths import query_path
from dormouse.tables.properties import properties_of

if TYPE_CHECKING:
    from dormouse.statements.limits import Watch
    from dormouse.statements.tables import SqlTables


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
    Raises InvalidRequestError: it is too long, or has a comment within a comment.
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


_WITH_SPARK = (
    "ask for less, or let Spark compute it: dormouse sql --spark, or `spark` of the message; the "
    "statement is in Spark's dialect then"
)


def statement_rows(
    services: Services, query: queries.Query, columns: dict[str, set[str]], watch: "Watch"
) -> QueryResult:
    """Return the rows of a statement; add the columns that it reads to `columns`, by the ids of
    tables. `watch` may end it while it is computed.
    Raises LimitExceededError: it needs too much; at the latest, that is known when rows are taken.
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
