"""Match rows against a purge: count those to remove."""

from contextlib import closing
from dataclasses import dataclass

from dormouse.arrow.order import fit_range
from dormouse.errors import InvalidRequestError
from dormouse.features.purge import PurgeRequest
from dormouse.keys import KeyRange
from dormouse.query.rows import QueryResources
from dormouse.rows.merging import merge_slices
from dormouse.rows.predicates import Predicate, parse_stored_predicate
from dormouse.schema.evolution import is_same
from dormouse.schema.schema import SEQUENCE, TOMBSTONE, Schema
from dormouse.shards.reading import Slice
from dormouse.tables.row_rules import is_no_tombstone
from dormouse.tables.table import Table

COUNTED_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class RowMatcher:
    """Counts the rows of a table that a purge is to remove.

    Tombstones, which come in place of rows in a table that keeps the latest ones, have the keys
    alone: a condition on values does not match them.
    """

    request: PurgeRequest
    schema: Schema
    predicate: Predicate | None
    ranges: tuple[KeyRange, ...]

    @staticmethod
    def of(request: PurgeRequest, table: Table) -> "RowMatcher":
        """Return the matcher of a request for the table's present schema.
        Raises InvalidRequestError: the predicate does not fit the schema, or one of its column
        names now belongs to another column, or one of another type.
        """
        selection, schema, keep = request.selection, table.schema, table.properties.keep
        names = selection.tested_columns
        for name in sorted(names):
            now, then = schema.field_named(name), request.schema.field_named(name)
            if now.id != then.id or not is_same(now, then):
                raise InvalidRequestError(
                    f"column {name!r} is not the same column as when the purge was requested",
                    hint="request the purge again, with the present column names",
                )
        predicate = parse_stored_predicate(selection.where, schema) if selection.where else None
        spans = (fit_range(span, schema) for span in selection.ranges)
        ranges = tuple(span for span in spans if not span.is_empty())
        if predicate is None or keep == "all" or names <= {field.name for field in schema.row_keys}:
            return RowMatcher(request, schema, predicate, ranges)
        with_tombstones = schema.with_values(TOMBSTONE, SEQUENCE)
        rows = Predicate(predicate.condition.and_also(is_no_tombstone()), with_tombstones)
        return RowMatcher(request, with_tombstones, rows, ranges)

    def count(
        self, resources: QueryResources, table_id: str, slice: Slice, *, at_most: int | None = None
    ) -> int:
        """Count the rows of a slice that match, `COUNTED_AT_ONCE` slices at once; stop at
        `at_most`.

        Raises:
            NotFoundError: the shard was deleted.
            CorruptDataError: the shard is damaged.
        """
        rows = 0
        for span in self.ranges:
            part = span.intersection(slice.range)
            if part.is_empty() or not part.overlaps_span(slice.shard.low, slice.shard.high):
                continue
            matching = merge_slices(
                resources.storage,
                table_id,
                [Slice(slice.shard, part)],
                self.schema,
                columns=[self.schema.row_keys[0].name],
                where=self.predicate,
                scratch=resources.scratch,
                memory_bytes=resources.memory_bytes // COUNTED_AT_ONCE,
            )
            with closing(matching):
                for batch in matching:
                    rows += batch.num_rows
                    if at_most is not None and rows >= at_most:
                        return at_most
        return rows
