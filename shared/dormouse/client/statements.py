"""Statements in SQL over the tables of an instance: the part of `instance` that runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from dormouse.client.versions import table_as_of
from dormouse.errors import InvalidRequestError
from dormouse.model.as_of import parse_as_of
from dormouse.ports import Services
from dormouse.statements.limits import MEMORY_BYTES, TIMEOUT_SECONDS, Limits
from dormouse.tables.table import Table, table_not_found

if TYPE_CHECKING:
    from dormouse.model.state import TableState
    from dormouse.query.result import QueryResult


class QueriedInstance:
    """What `Instance` has of SQL."""

    __slots__ = ()
    services: Services

    def sql(
        self,
        text: str,
        parameters: Sequence[object] | Mapping[str, object] = (),
        *,
        memory_bytes: int = MEMORY_BYTES,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> QueryResult:
        """Return the rows of a query in SQL over tables of this instance, streamed.

        A process of its own computes them; it gets the rows that it needs, and nothing else.

        Args:
            text: SELECT, WITH, VALUES, or a set operation on these; EXPLAIN before it asks what
                would be read. Names of tables and columns are case-sensitive. ``FROM flights FOR
                VERSION AS OF 33`` reads a version, ``'a-tag'`` in place of the number a tag, ``FOR
                TIMESTAMP AS OF '2026-01-31T12:00:00Z'`` what was there at a time.
            parameters: the values of ``$1``, ``$2`` and so on, or by name those of ``:name``.
            memory_bytes: what sorting, grouping and joining may use before they spill to disk.
            timeout_seconds: how long the caller waits for rows, in all.

        Raises:
            InvalidRequestError: it is no query, or does not fit the tables.
            NotFoundError: there is no such table, or that version of it is not kept any more.
            LimitExceededError: it took too long or too much memory; here, or while rows are read.
        """
        from dormouse.statements.running import run_statement
        from dormouse.statements.scans import Tables

        services = self.services
        tables = Tables(services, partial(_open_table, services), services.clock.now_ms())
        limits = Limits(memory_bytes, timeout_seconds)
        return run_statement(tables, text, _named(parameters), services.scratch, limits)


def _open_table(services: Services, name: str, as_of: str) -> tuple[Table, TableState]:
    table = services.tables.named(name)
    if table is None or table.deleting:
        raise table_not_found(name, services.tables.list_readable()[0])
    return table_as_of(services, table, parse_as_of(as_of) if as_of else None)


def _named(parameters: Sequence[object] | Mapping[str, object]) -> dict[str, object]:
    """Return parameters by name; those of a sequence are called 1, 2 and so on."""
    if isinstance(parameters, Mapping):
        return {str(name): value for name, value in parameters.items()}
    if isinstance(parameters, str | bytes):
        raise InvalidRequestError("parameters are a list of values, or values by their names")
    return {str(number): value for number, value in enumerate(parameters, start=1)}
