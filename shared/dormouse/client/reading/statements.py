"""Statements in SQL over the tables of an instance: the part of `instance` that runs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from dormouse.access.doors import allowed_table
from dormouse.access.visible import VisibleTable
from dormouse.client.reading.versions import table_as_of
from dormouse.errors import InvalidRequestError
from dormouse.model.versions.as_of import parse_as_of
from dormouse.ports.services import Services
from dormouse.statements.limits import MEMORY_BYTES, TIMEOUT_SECONDS, Limits
from dormouse.tables.table import table_not_found

if TYPE_CHECKING:
    from dormouse.client.ports import Queues
    from dormouse.client.reading.exporting_sql import ExportedStatement
    from dormouse.client.reading.queries import AskedQuery
    from dormouse.client.waiting import Polling
    from dormouse.model.state import TableState
    from dormouse.ports.services import JobRecord
    from dormouse.query.result import QueryResult
    from dormouse.showing import Listing


class QueriedInstance:
    """What `Instance` has of SQL."""

    __slots__ = ()
    services: Services
    queues: Queues
    polling: Polling

    def sql(
        self,
        text: str,
        parameters: Sequence[object] | Mapping[str, object] = (),
        *,
        memory_bytes: int = MEMORY_BYTES,
        timeout_seconds: float = TIMEOUT_SECONDS,
        read_bytes: int | None = None,
        principal: str | None = None,
        run: Literal["here", "remote"] = "here",
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
            read_bytes: how much of the shards it may read, by an estimate before it begins; by
                default any amount.
            principal: who asks, if this process reads for others, as `dormouse.access` names
                callers: the access rules say which tables and columns there are. By default this
                process asks for itself, and AWS decides.
            run: ``"remote"`` sends the statement as a message, and the instance computes it, within
                limits of its own instead of `memory_bytes`; its parameters are texts, numbers,
                booleans and None. The call waits for the end of the query.

        Raises:
            InvalidRequestError: it is no query, or does not fit the tables.
            NotFoundError: there is no such table, or that version of it is not kept any more.
            LimitExceededError: it took too long or too much memory; here, or while rows are read.
            TimedOutError: a remote query took longer than `timeout_seconds`.
        """
        if run != "here":
            if principal is not None:
                raise InvalidRequestError("who asks a remote query is who sends its message")
            return self._ask(text, named_parameters(parameters), timeout_seconds, run)
        from dormouse.statements.answering import run_statement
        from dormouse.statements.scans import Tables

        services = self.services
        tables = Tables(
            services, partial(_open_table, services, principal), services.clock.now_ms()
        )
        limits = Limits(memory_bytes, timeout_seconds, read_bytes)
        return run_statement(tables, text, named_parameters(parameters), services.scratch, limits)

    def export_sql(
        self,
        text: str,
        parameters: Sequence[object] | Mapping[str, object] = (),
        *,
        to: str = "",
        form: str = "parquet",
        memory_bytes: int = MEMORY_BYTES,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> ExportedStatement:
        """Write the rows of a query in SQL to files in the results bucket, with a manifest.

        This process runs the query and uploads the files; they are complete when the manifest is
        there, which is when this returns. The prefix `to` must be empty; by default it is new.
        `form` is parquet, arrow, feather, csv or json. Other arguments are as for `sql`.

        Raises:
            InvalidRequestError: as `sql`, or there is no such format, or `to` is no prefix.
            NotFoundError: as `sql`.
            AlreadyExistsError: there are objects below `to`.
            LimitExceededError: as `sql`; then there is no manifest.
        """
        from dormouse.client.reading.exporting_sql import export_result, free_prefix

        prefix, chosen = free_prefix(self.services, to, form)
        found = self.sql(
            text, parameters, memory_bytes=memory_bytes, timeout_seconds=timeout_seconds
        )
        return export_result(self.services, text, found, prefix, chosen)

    def _ask(
        self, text: str, parameters: dict[str, object], timeout_seconds: float, run: str
    ) -> QueryResult:
        from dormouse.client.reading.queries import ask, check_run, message_parameters
        from dormouse.messages.queries import AnswerQuery

        check_run(run)
        asked = AnswerQuery(
            query_id=self.services.ids.new(),
            sql=text,
            parameters=message_parameters(parameters),
            format="arrow",
        )
        found = ask(self.services, self.queues, self.polling, asked, timeout_seconds)
        return found.answer(timeout_seconds)

    def queries(self) -> Listing[JobRecord]:
        """Return the records of queries over messages, the newest first; they live for a week."""
        from dormouse.client.reading.queries import listed_queries

        return listed_queries(self.services)

    def asked(self, query_id: str) -> AskedQuery:
        """Return a query over messages by its id: to follow it, read its result, or cancel it."""
        from dormouse.client.reading.queries import AskedQuery

        return AskedQuery(query_id, self.services, self.queues, self.polling)


def _open_table(
    services: Services, principal: str | None, name: str, as_of: str
) -> tuple[VisibleTable, TableState]:
    """Open a table for a caller of this process; by default, for the process itself."""
    version = parse_as_of(as_of) if as_of else None
    if principal is not None:
        seen = allowed_table(services, principal, name, "read")
        table, state = table_as_of(services, seen.table, version)
        return VisibleTable.of(table, seen.permission), state
    found = services.tables.named(name)
    if found is None or found.deleting:
        raise table_not_found(name, services.tables.list_readable()[0])
    table, state = table_as_of(services, found, version)
    return VisibleTable.whole(table), state


def named_parameters(parameters: Sequence[object] | Mapping[str, object]) -> dict[str, object]:
    """Return parameters by name; those of a sequence are called 1, 2 and so on."""
    if isinstance(parameters, Mapping):
        return {str(name): value for name, value in parameters.items()}
    if isinstance(parameters, str | bytes):
        raise InvalidRequestError("parameters are a list of values, or values by their names")
    return {str(number): value for number, value in enumerate(parameters, start=1)}
