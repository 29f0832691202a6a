"""What must hold of queries that messages ask: each is answered once, whole, or says why not.

A query is looked at as soon as its manifest can be read: its files must be there, with the rows
of the version that it read, in key order. When all is at rest, each query has ended, its record
says how, and nothing of those without a result is left.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.errors import CorruptDataError
from dormouse.features.queries import END, QUERIES, QUERY, Query, QueryEnd
from dormouse.keys import encode_key
from dormouse.log.pinning import CLOCK_MARGIN_MS
from dormouse.stored.paths import query_manifest_path, query_path, query_prefix
from tests.simulation.event_log import Violation
from tests.simulation.message_queries import ANSWERS, Asked, Askers, Format
from tests.simulation.oracle import Oracle
from tests.simulation.rows import Row
from tests.simulation.watched import last_record

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


class MessageAnswers:
    """The queries of a run, and how they ended."""

    def __init__(self, run: Simulation, askers: Askers) -> None:
        """Begin without any."""
        self.run, self.askers = run, askers
        self.ended: dict[str, QueryEnd] = {}

    def look(self) -> None:
        """Check each query whose manifest has just come to be.

        Raises:
            Violation: it is not as it must be.
        """
        there = self.run.instance.results._objects
        for query_id, asked in self.askers.asked.items():
            path = query_manifest_path(query_id)
            if query_id not in self.ended and path in there:
                end = END.decode(there[path][0], path)
                self.ended[query_id] = end
                self.run.tell("watch", f"query {query_id} is {end.state} {end.reason}")
                self._check(asked, end)
                if end.state == "failed":
                    self._check_failure(asked, end)

    def check_rest(self) -> None:
        """Check all queries once nothing is to be done any more.

        Raises:
            Violation: one has not ended, its record says otherwise, or something is left of it.
        """
        for query_id, asked in self.askers.asked.items():
            end = self.ended.get(query_id)
            if end is None:
                query = self._living(asked)
                if not asked.is_lost or (query is not None and query.tasks > 1):
                    raise _violation(asked, "has not ended")  # the sweep asks again what is lost
                continue
            self._check(asked, end)
            if not asked.is_lost:
                self._check_record(asked, end)
            if end.to and not asked.is_lost:
                self._check_delivered(asked, end)
            if end.state != "finished" and self._living(asked) is not None:
                for stored in self.run.instance.results.list(f"{query_prefix(query_id)}part-"):
                    raise _violation(asked, f"is {end.state}, and {stored.path} is left")

    def _check_record(self, asked: Asked, end: QueryEnd) -> None:
        tracker = self.run.instance.tracker
        record = tracker.get(QUERIES, end.query)
        if record is None:
            raise _violation(asked, f"is {end.state}, and not recorded")
        last = last_record(record, tracker.latest[QUERIES, end.query], self.run.slack_ms)
        if end.state not in (record.state, last.state):
            raise _violation(asked, f"is {end.state}, and recorded as {record}")

    def _check(self, asked: Asked, end: QueryEnd) -> None:
        match end.state:
            case "finished":
                self._check_rows(asked, end)
            case "cancelled":
                if not asked.is_cancelled:
                    raise _violation(asked, "is cancelled, which nobody asked for")
            case "failed":
                if not end.reason or not end.error:
                    raise _violation(asked, "failed without a reason")
        if end.state != "finished" and end.files:
            raise _violation(asked, f"is {end.state}, and names files")

    def _check_rows(self, asked: Asked, end: QueryEnd) -> None:
        ((name, (version,)),) = end.versions.items()
        (table_id,) = end.columns
        oracle = self.run.oracle(table_id)
        found = self._rows(oracle, asked, end)
        wanted = asked.message.selection
        if name != asked.message.table or wanted.as_of not in (None, version):
            raise _violation(asked, f"is answered by version {version} of {name}")
        order = [oracle.shape.order(row) for row in found]
        if order != sorted(order):
            raise _violation(asked, "has rows that are not sorted")
        if len(found) != end.rows:
            raise _violation(asked, f"has {len(found)} rows, and says {end.rows}")
        table = self.run.instance.tables.get(table_id)
        generation = table.generation if table is not None else oracle.generation + 1
        if not found and oracle.is_before(version, generation):
            return  # the registry counted a reset that the state had not begun
        self._compare(oracle, asked, end, found)

    def _compare(self, oracle: Oracle, asked: Asked, end: QueryEnd, found: list[Row]) -> None:
        """Compare what was found with what a version has; with a limit, these are its first rows.

        Of rows that age, some may be there or not, as clocks differ.
        """
        ((_, (version,)),) = end.versions.items()
        if version not in oracle.versions:
            return
        shape, limit = oracle.shape, asked.message.selection.limit
        known = [
            row
            for row in oracle.versions[version].stored
            if row[0] in asked.letters
            and (
                not asked.wanted
                or any(w.contains(encode_key(shape.key(row))) for w in asked.wanted)
            )
        ]
        must, can = oracle.answers(known, end.begun_ms)
        lost, more = must - Counter(found), Counter(found) - can
        if limit is not None and len(found) >= limit:
            last = max(map(shape.order, found))
            lost = Counter({row: n for row, n in lost.items() if shape.order(row) < last})
            more += Counter(found[limit:])
        if lost or more:
            raise _violation(
                asked,
                f"of version {version} lacks {sorted(lost)[:3]}, has {sorted(more)[:3]} too many",
                oracle.table_id,
            )

    def _rows(self, oracle: Oracle, asked: Asked, end: QueryEnd) -> list[Row]:
        found: list[Row] = []
        for file in end.files:
            body = self.run.instance.results.get(f"{query_prefix(end.query)}{file.name}")
            rows = oracle.shape.rows_of(_read(body, asked.message.format))  # type: ignore[arg-type]
            if (len(rows), len(body)) != (file.rows, file.size_bytes):
                raise _violation(asked, f"has another file than its manifest says: {file.name}")
            found += rows
        return found

    def _check_failure(self, asked: Asked, end: QueryEnd) -> None:
        """Check that a query failed for a reason that there was, when it failed."""
        has_begun = query_path(end.query) in self.run.instance.results._objects
        limits = asked.message.limits
        match end.error:
            case "NotFoundError" | "VersionGoneError":
                is_apart = self.run.slack_ms >= CLOCK_MARGIN_MS
                is_right = not has_begun or is_apart or self._living(asked) is None
            case "LimitExceededError":
                is_right = limits.rows is not None or "took longer" in end.reason
            case "JobTooLargeError":
                is_right = self.run.faults.total() > 0
            case _:
                is_right = self.run.explains(CorruptDataError(end.reason))
        if not is_right:
            raise _violation(asked, f"failed: {end.error}: {end.reason}")

    def _living(self, asked: Asked) -> Query | None:
        """Return a query that has begun, if the table that it reads is not deleted."""
        path = query_path(asked.message.query_id)
        stored = self.run.instance.results._objects.get(path)
        if stored is None:
            return None
        query = QUERY.decode(stored[0], path)
        assert query.read is not None
        table = self.run.instance.tables.get(query.read.id)
        return query if table is not None and not table.deleting else None

    def _check_delivered(self, asked: Asked, end: QueryEnd) -> None:
        """Check that all messages of a result came, each with one content, however often."""
        bodies = {b for b in self.run.instance.answers.bodies if f'"{end.query}"' in b}
        parts = [json.loads(body) for body in bodies]
        numbers = sorted(part["part"] for part in parts)
        if not parts or numbers != list(range(1, parts[0]["parts"] + 1)):
            raise _violation(asked, f"was sent to {ANSWERS} as messages {numbers}")
        if {part["state"] for part in parts} != {end.state}:
            raise _violation(asked, f"is {end.state}, which {ANSWERS} was not told")


def _read(body: bytes, form: Format) -> pa.Table:
    if form == "parquet":
        return pq.read_table(io.BytesIO(body))
    opened = pa.ipc.open_stream(body) if form == "arrow" else pa.ipc.open_file(body)
    return opened.read_all()


def _violation(asked: Asked, text: str, subject: str = "") -> Violation:
    query_id = asked.message.query_id
    return Violation(f"query {query_id} {text}; {asked.message}", subject or f'"{query_id}"')
