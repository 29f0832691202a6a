"""The results of partial statements, as the table that a final statement reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from dormouse.arrow.types import arrow_schema, conform, frame_schema
from dormouse.engine.predicates import Predicate
from dormouse.query.result import PeekableBatches, QueryResult
from dormouse.readers.read_counters import ReadCounters
from dormouse.schema.schema import Schema
from dormouse.sql.conditions import parse_condition
from dormouse.statements.protocol import Named, Scan


@dataclass(frozen=True, slots=True)
class Partials:
    """All partial results of a statement, with these columns. `open` returns their rows; `reads`
    counts what reading them takes. `versions` are those that the partial statements read, by the
    names of tables.
    """

    schema: Schema
    open: Callable[[], Iterable[pa.RecordBatch]]
    reads: ReadCounters
    versions: Mapping[str, tuple[int, ...]]

    def find(self, reference: Named) -> Schema:
        """Return the columns; there is no other table."""
        return self.schema

    def read_so_far(self) -> ReadCounters:
        """Return what was read, also by scans that go on."""
        return self.reads

    def result(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> QueryResult:
        """Return rows as the result of the statement."""
        return QueryResult(schema, PeekableBatches(batches), self.reads, 0, self.versions)

    def rows(self, name: str, scan: Scan) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Return the rows of a scan, and their schema; its limit would only save reading."""
        wanted = frame_schema(arrow_schema(self.schema))
        chosen = pa.schema([wanted.field(column) for column in scan.columns])
        return chosen, self._selected(scan, chosen)

    def _selected(self, scan: Scan, chosen: pa.Schema) -> Iterator[pa.RecordBatch]:
        found = self.open()
        if scan.where:
            condition = parse_condition(scan.where, self.schema)
            found = Predicate(condition, self.schema).apply(found)
        for batch in found:
            yield conform(batch, chosen) if scan.columns else _counted(batch)


def _counted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return so many rows without columns."""
    return pa.RecordBatch.from_arrays([pa.nulls(batch.num_rows)], names=["rows"]).select([])
