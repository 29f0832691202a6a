"""Match rows against a purge: count those to remove, and keep all others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.order import fit_range, range_predicate
from dormouse.arrow.types import Scalar, Tally
from dormouse.errors import InvalidRequestError
from dormouse.features.purge import PurgeRequest
from dormouse.keys import KeyRange
from dormouse.ports import Storage
from dormouse.rows.merging import merge_slices
from dormouse.rows.predicates import Predicate, parse_stored_predicate
from dormouse.schema.evolution import is_same
from dormouse.schema.schema import SEQUENCE, TOMBSTONE, Schema
from dormouse.shards.reading import Slice
from dormouse.tables.row_rules import is_no_tombstone


@dataclass(frozen=True, slots=True)
class RowMatcher:
    """Separates the rows of a table that a purge removes from those it keeps.

    If it `entombs`, tombstones come in place of the rows that it removes: by a condition on values
    in a table that keeps the latest rows, where older ones of their keys would come back. They have
    the keys alone, so they do not match.
    """

    request: PurgeRequest
    schema: Schema
    predicate: Predicate | None
    ranges: tuple[KeyRange, ...]
    entombs: bool = False

    @staticmethod
    def of(request: PurgeRequest, schema: Schema, keep: str = "all") -> RowMatcher:
        """Return the matcher of a request for the table's present schema, and its property `keep`.

        Raises:
            InvalidRequestError: the predicate does not fit the schema, or one of its column names
                now belongs to another column, or one of another type.
        """
        selection = request.selection
        named = selection.tested_columns
        for name in sorted(named):
            now, then = schema.field_named(name), request.schema.field_named(name)
            if now.id != then.id or not is_same(now, then):
                raise InvalidRequestError(
                    f"column {name!r} is not the same column as when the purge was requested",
                    hint="request the purge again, with the present column names",
                )
        found = parse_stored_predicate(selection.where, schema) if selection.where else None
        spans = (fit_range(span, schema) for span in selection.ranges)
        ranges = tuple(span for span in spans if not span.is_empty())
        if found is None or keep == "all" or named <= {field.name for field in schema.row_keys}:
            return RowMatcher(request, schema, found, ranges)
        stored = schema.with_values(TOMBSTONE, SEQUENCE)
        rows = Predicate(found.condition.and_also(is_no_tombstone()), stored)
        return RowMatcher(request, stored, rows, ranges, entombs=True)

    def count(
        self,
        storage: Storage,
        table_id: str,
        slice: Slice,
        *,
        scratch: Path,
        memory_bytes: int,
        at_most: int | None = None,
    ) -> int:
        """Count the rows of a slice that match; stop at `at_most`.

        Raises:
            NotFoundError: the shard was deleted.
            CorruptDataError: the shard is damaged.
        """
        counted = 0
        for span in self.ranges:
            part = span.intersection(slice.range)
            if part.is_empty() or not part.overlaps_span(slice.shard.low, slice.shard.high):
                continue
            matching = merge_slices(
                storage,
                table_id,
                [Slice(slice.shard, part)],
                self.schema,
                columns=[self.schema.row_keys[0].name],
                where=self.predicate,
                scratch=scratch,
                memory_bytes=memory_bytes,
            )
            with closing(matching):
                for batch in matching:
                    counted += batch.num_rows
                    if at_most is not None and counted >= at_most:
                        return at_most
        return counted

    def kept(self, batches: Iterator[pa.RecordBatch], removed: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the rows that do not match, and add the number of others to `removed`.

        The batches have all columns of the schema.
        """
        if self.predicate is not None:
            yield from self.predicate.negated().apply(batches, removed)
            return
        terms = [
            range_predicate(span, self.schema.keys, pc.field, _literal) for span in self.ranges
        ]
        for batch in batches:
            for term in terms:
                # Without a term the range holds all keys.
                removed.rows += (batch if term is None else batch.filter(term)).num_rows
                batch = batch.filter(~term) if term is not None else batch.slice(0, 0)
            if batch.num_rows:
                yield batch


def _literal(value: Scalar) -> pc.Expression:
    return pc.scalar(value)  # type: ignore[arg-type]  # takes scalars of all types
