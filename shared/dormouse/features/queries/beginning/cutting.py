"""Begin a query of a statement: cut it where that surely leads to the same result.

A statement on one large table becomes partial statements, each of which reads a piece of the table
as sub-queries of rows do, and a final one, the last sub-query, which reads what they wrote. Others
are one sub-query, in one process.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from dormouse.features.queries.limits import effective_limits, statement_limits
from dormouse.features.queries.opening import open_readable, statement_tables
from dormouse.features.queries.query import Query, ReadTable, question
from dormouse.features.queries.stored import save_tasks
from dormouse.keys.ranges import KeyRange
from dormouse.messages.queries import AnswerQuery
from dormouse.messages.stages import SelectionMessage
from dormouse.ports.services import Services
from dormouse.query.pieces import bytes_to_read, plan_tasks
from dormouse.query.planner import selected_ranges
from dormouse.query.selection_codec import decode_selection
from dormouse.sql.cut.statement_cut import StatementCut
from dormouse.tables.properties import properties_of

if TYPE_CHECKING:
    from dormouse.access.visible import VisibleTable
    from dormouse.model.state import TableState

_NOT_ONE_TABLE = StatementCut(whole_because="it does not read exactly one table, once")
_LONG = StatementCut(whole_because="its text is long")
_SMALL = StatementCut(whole_because="it reads little of its table")


def statement_query(services: Services, asked: AnswerQuery) -> Query:
    """Return the query of a statement; if it is cut, its tasks are saved.

    Raises:
        DormouseError: the statement cannot be planned, or its table cannot be read.
    """
    properties = properties_of(services.tables.defaults())
    digest, now_ms = question(asked), services.clock.now_ms()
    asked = structs.replace(asked, limits=effective_limits(asked.limits, properties))
    whole = Query(asked, digest, now_ms, services.ids.new(), 1)
    opened, cut = _find_cut(services, whole)
    if opened is None:
        return replace(whole, statement=cut)
    return _in_pieces(services, replace(whole, statement=cut), *opened)


def _find_cut(
    services: Services, query: Query
) -> tuple[tuple[VisibleTable, TableState] | None, StatementCut]:
    """Return the table that a statement reads and its parts; no table if it is computed whole."""
    from dormouse.sql.plain.reading import MAX_CHARACTERS
    from dormouse.sql.statements import parse_statement  # only statements need it
    from dormouse.statements.direct import is_answered_directly
    from dormouse.statements.protocol import Named
    from dormouse.statements.running import plan_cut

    text, parameters = query.asked.sql, query.asked.parameters
    if len(text) > MAX_CHARACTERS:  # only its own process parses what may be deep
        return None, _LONG
    statement = parse_statement(text)
    if len(statement.references) != 1 or statement.explains:
        return None, _NOT_ONE_TABLE
    (each,) = statement.references
    named = Named(each.name, each.table, each.as_of, each.line, each.column)
    tables = statement_tables(services, query, opening=open_readable)  # most are small
    tables.find(named)
    visible, state = tables.references[each.name]
    if bytes_to_read(state, [KeyRange()]) <= visible.table.properties.query_cut_bytes:
        return None, _SMALL
    if is_answered_directly(tables, text, parameters):
        return None, _SMALL
    tables = statement_tables(services, query)
    tables.find(named)
    cut = plan_cut(tables, text, parameters, services.scratch, statement_limits(services, query))
    return (None if cut.whole_because else tables.references[each.name]), cut


def _in_pieces(services: Services, query: Query, visible: VisibleTable, state: TableState) -> Query:
    """Return a query that is cut, if the pieces that its statement needs are large."""
    cut, table = query.statement, visible.table
    assert cut is not None
    selection = decode_selection(
        SelectionMessage(where=cut.where),
        table.schema,
        permission=visible.permission,
        version=state.version,
        time_ms=query.begun_ms,
    )
    ranges = selected_ranges(table, selection)
    size_bytes = bytes_to_read(state, ranges)
    if size_bytes <= table.properties.query_cut_bytes:
        return replace(query, statement=_SMALL)
    pieces = plan_tasks(state, ranges, task_bytes=table.properties.query_task_bytes)
    tasks = save_tasks(services.results, query.id, query.cut, pieces)
    rules = (table.properties.filters, table.properties.aggregations)
    # the partial statements have the condition
    rows = replace(selection, ranges=(KeyRange(),), condition=None)
    return replace(
        query,
        tasks=tasks + bool(cut.final),
        read=ReadTable(table.id, table.name, table.schema, rows, *rules),
        in_turn=cut.limit is not None,
        size_bytes=size_bytes,
    )
