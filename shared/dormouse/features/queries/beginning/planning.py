"""Begin a query: check what is asked, fix the version that is read, and cut it into sub-queries.

Order of writes: the pin of the version, the tasks, the query. If several deliveries begin a query
at once, all read the version that was pinned first, and the query that is saved first says which
tasks are used. A crash leaves a pin, which the next delivery uses, and tasks that nothing names.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from msgspec import structs

from dormouse.access.doors import visible_tables
from dormouse.errors import InvalidRequestError
from dormouse.features.queries.beginning.spark_text import View, spark_text
from dormouse.features.queries.limits import effective_limits
from dormouse.features.queries.opening import open_pinned
from dormouse.features.queries.query import Query, ReadTable, question
from dormouse.features.queries.stored import save_query, save_tasks
from dormouse.messages.queries import AnswerQuery
from dormouse.model.versions.as_of import parse_as_of
from dormouse.ports.services import Services
from dormouse.query.pieces import bytes_to_read, plan_tasks
from dormouse.query.planner import select, selected_ranges
from dormouse.query.selection_codec import decode_selection
from dormouse.tables.properties import properties_of

_NO_SPARK = (
    "deploy it with Spark=yes; in a folder, install Java 17 and dormouse-tables[spark]; or leave "
    "Spark out, and DuckDB computes the statement, in its own dialect"
)


def begin_query(services: Services, asked: AnswerQuery) -> Query:
    """Plan and save a query; return it, or the one that another delivery saved first.

    Raises:
        InvalidRequestError: a key, column, condition or limit does not fit the table, or results
            are not sent to such a queue.
        NotFoundError: there is no such table or version of it, or the queue is gone.
        ContendedError: to pin the version took too long; retry the message.
    """
    if asked.to:
        services.result_queues.check(asked.to)
    if asked.spark:
        query = _for_spark(services, asked)
    else:
        query = _statement(services, asked) if asked.sql else _rows(services, asked)
    return save_query(services.results, query)


def _statement(services: Services, asked: AnswerQuery) -> Query:
    """Return the query of a statement in SQL: one function computes it, and opens its tables."""
    properties = properties_of(services.tables.defaults())
    digest, now_ms = question(asked), services.clock.now_ms()
    asked = structs.replace(asked, limits=effective_limits(asked.limits, properties))
    return Query(asked, digest, now_ms, services.ids.new(), 1)


def _for_spark(services: Services, asked: AnswerQuery) -> Query:
    """Return the query of a statement for Spark: what it may read is fixed and pinned here, by the
    rules for the one who asks; the job reads nothing else.
    """
    if not services.has_spark:
        raise InvalidRequestError("this instance has no Spark", hint=_NO_SPARK)
    found = spark_text(asked.sql)
    readable = [
        each.table.name
        for each in visible_tables(services, asked.who)
        if "read" in each.permission.verbs and each.table.name in found.words
    ]
    wanted: dict[str, View] = {name: (name, "") for name in readable} | found.versions
    if not wanted:
        raise InvalidRequestError(
            "the statement names no table that you may read",
            hint="names of tables are case-sensitive; without tables it needs no Spark",
        )
    _check_views(wanted)
    views, size_bytes, now_ms = {}, 0, services.clock.now_ms()
    for view, (name, as_of) in wanted.items():
        visible, state = open_pinned(services, asked, name, parse_as_of(as_of) if as_of else None)
        table = visible.table
        selection = select(table.schema, state.version, now_ms, permission=visible.permission)
        rules = (table.properties.filters, table.properties.aggregations)
        views[view] = ReadTable(table.id, table.name, table.schema, selection, *rules)
        size_bytes += bytes_to_read(state, selected_ranges(table, selection))
    properties = properties_of(services.tables.defaults())
    digest = question(asked)
    asked = structs.replace(asked, limits=effective_limits(asked.limits, properties))
    cut = asked.query_id  # the job's id, so that the query is found if its table is deleted
    return Query(asked, digest, now_ms, cut, 1, size_bytes=size_bytes, views=views, text=found.text)


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


def _rows(services: Services, asked: AnswerQuery) -> Query:
    """Return the query of rows of a table; its tasks are saved."""
    visible, state = open_pinned(services, asked, asked.table, asked.selection.as_of)
    table, now_ms = visible.table, services.clock.now_ms()
    limits = effective_limits(asked.limits, table.properties)
    selection = decode_selection(
        asked.selection,
        table.schema,
        permission=visible.permission,
        version=state.version,
        time_ms=now_ms,
    )
    rules = (table.properties.filters, table.properties.aggregations)
    read = ReadTable(table.id, table.name, table.schema, selection, *rules)
    ranges = selected_ranges(read.table, selection)
    size_bytes = bytes_to_read(state, ranges)
    is_cut = size_bytes > table.properties.query_cut_bytes
    task_bytes = table.properties.query_task_bytes if is_cut else max(1, size_bytes)
    cut = services.ids.new()
    pieces = plan_tasks(state, ranges, task_bytes=task_bytes)
    tasks = save_tasks(services.results, asked.query_id, cut, pieces)
    if selection.limit is not None and state.rows <= selection.limit:
        read = replace(read, selection=replace(selection, limit=None))  # it leaves nothing out
    in_turn = read.selection.limit is not None
    digest = question(asked)
    asked = structs.replace(asked, limits=limits)
    return Query(asked, digest, now_ms, cut, tasks, read, in_turn, size_bytes)
