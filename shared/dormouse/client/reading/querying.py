"""The rows of one table as a client asks for them, here or by messages: the part of `table`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dormouse.access.rules import EVERYTHING
from dormouse.client.reading.versioned import VersionedTable
from dormouse.client.reading.versions import table_as_of
from dormouse.client.waiting import WAIT_SECONDS
from dormouse.key_forms.codec import KeyCodec
from dormouse.key_forms.python import KeyLike, Ranges
from dormouse.model.versions.as_of import AsOf
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from dormouse.messages.stages import SelectionMessage
    from dormouse.query.result import QueryResult
    from dormouse.query.selection import Selection


@dataclass(frozen=True, slots=True, repr=False)
class QueriedTable(VersionedTable):
    """A table whose rows can be asked for."""

    def query(
        self,
        ranges: Ranges | None = None,
        *,
        exact: KeyLike | list[KeyLike] | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        as_of: AsOf | None = None,
        run: Literal["here", "remote"] = "here",
        timeout_seconds: float = WAIT_SECONDS,
    ) -> QueryResult:
        """Return the rows, sorted by the keys, streamed, of one version of the table.

        The result is a stream of Arrow batches: iterate over it, read it whole by its `read_all`,
        or hand it to a library that reads Arrow streams.

        Args:
            ranges: pairs of keys or prefixes, the first inclusive, the second exclusive, None for
                an open end; a row is returned if it is in any of them.
            exact: a key or prefix whose rows are wanted, or a list of these. Without `ranges` and
                `exact`, every row is returned.
            where: a condition in SQL on any columns, which must also be true of a row.
            columns: the columns to return; by default all.
            limit: the largest number of rows to return.
            as_of: the version, the tag, or the time at which the table is read; by default the
                newest version.
            run: ``"remote"`` sends a message, and the instance reads the rows: so this process
                needs no right to read the data bucket, and little memory and network.
            timeout_seconds: how long a remote query may take; the call waits for its end, and
                cancels it when it is interrupted.

        Raises:
            InvalidRequestError: a key, column or condition does not fit the schema.
            NotFoundError: that version is not kept any more, is yet to come, or has rows of an
                earlier schema.
            TimedOutError: a remote query took longer than `timeout_seconds`.
        """
        if run != "here":
            from dormouse.client.reading.queries import check_run
            from dormouse.client.reading.selecting import selection_message

            check_run(run)
            selected = selection_message(
                self.schema, ranges, exact, where=where, columns=columns, limit=limit, as_of=as_of
            )
            return self._ask(selected, timeout_seconds)
        from dormouse.query.planner import selected_ranges
        from dormouse.query.rows import query_rows

        now_ms = self.services.clock.now_ms()
        wanted = ranges, exact, where, columns, limit
        table, state = table_as_of(
            self.services,
            self.current(),
            as_of,
            ranges_of=lambda known: selected_ranges(known, self._select(known, 0, now_ms, *wanted)),
        )
        selection = self._select(table, state.version, now_ms, *wanted)
        return query_rows(self.services, table, state, selection).for_programs()

    def count(
        self,
        ranges: Ranges | None = None,
        *,
        exact: KeyLike | list[KeyLike] | None = None,
        where: str | None = None,
        as_of: AsOf | None = None,
    ) -> int:
        """Count the rows that `query` would return, reading as few of them as possible."""
        from dormouse.query.count import count_rows

        table, state = table_as_of(self.services, self.current(), as_of)
        now_ms = self.services.clock.now_ms()
        selection = self._select(table, state.version, now_ms, ranges, exact, where)
        return count_rows(self.services, table, state, selection)

    def _ask(self, selection: SelectionMessage, timeout_seconds: float) -> QueryResult:
        from dormouse.client.reading.queries import ask
        from dormouse.messages.queries import AnswerQuery

        services = self.services
        # Parquet has all types of tables, and checksums
        asked = AnswerQuery(query_id=services.ids.new(), table=self.name, selection=selection)
        found = ask(services, self.queues, self.polling, asked, timeout_seconds)
        return found.answer(timeout_seconds).for_programs()

    def _select(
        self,
        table: Table,
        version: int,
        now_ms: int,
        ranges: Ranges | None,
        exact: KeyLike | list[KeyLike] | None,
        where: str | None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> Selection:
        from dormouse.query.planner import select
        from dormouse.sql.conditions import parse_condition

        return select(
            table.schema,
            version,
            now_ms,
            KeyCodec(table.schema).ranges_from_python(ranges, exact),
            permission=EVERYTHING,  # AWS decides about what this process reads
            columns=columns,
            condition=None
            if where is None
            else parse_condition(where, table.schema, now_ms=now_ms),
            limit=limit,
        )
