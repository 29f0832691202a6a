"""Make a selection, and plan which slices of which shards contain its rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dormouse.access.rules import Permission
from dormouse.access.visible import check_visible, visible_schema
from dormouse.arrow.ranges import ranges_to_read, requested_ranges
from dormouse.errors import InvalidRequestError
from dormouse.keys.ranges import Key, KeyRange
from dormouse.model.state import Piece, TableState
from dormouse.query.selection import Selection
from dormouse.readers.reading import Slice
from dormouse.schema.schema import Schema
from dormouse.schema.types import check_name_list
from dormouse.sql.conditions import Condition
from dormouse.tables.table import Table


def select(
    schema: Schema,
    version: int,
    time_ms: int,
    ranges: Sequence[KeyRange] = (),
    *,
    permission: Permission,
    columns: Sequence[str] | None = None,
    condition: Condition | None = None,
    limit: int | None = None,
) -> Selection:
    """Return the selection of the rows in any of `ranges`; without ranges, of the whole table.

    Ranges are of row keys, which sort keys continue. `columns` of None are all that `permission`
    shows. Who writes a condition or a range from which something is hidden has it parsed by the
    visible schema; that no hidden column is used is checked here, for every way to rows.

    Raises:
        InvalidRequestError: a column is unknown or hidden, none is left, the limit is not a number
            of rows, or a bound is of the wrong type.
    """
    check_visible(schema, permission, condition.columns if condition else (), ranges)
    visible = visible_schema(schema, permission)
    return Selection(
        version,
        tuple(_checked_columns(visible, columns, limit)),
        tuple(requested_ranges(schema, ranges)) or (KeyRange((), ()),),
        condition,
        limit,
        time_ms,
    )


def selected_ranges(table: Table, selection: Selection) -> list[KeyRange]:
    """Return disjoint ascending ranges that contain all stored rows a selection depends on.

    They are narrower than the selection's ranges where the condition bounds keys, and wider where
    rows of one group may be outside of them.
    """
    return ranges_to_read(table, selection.ranges, selection.condition)


def slices_to_read(state: TableState, wanted: Sequence[KeyRange]) -> Iterator[list[Slice]]:
    """Yield the slices of shards that disjoint ranges need, in key order.

    Each list has the slices of one range within one leaf. For example, if the leaves meet at the
    key m, the range [k, p) is divided into [k, m) and [m, p), each with the shards of its leaf.
    """
    for item in wanted:
        for span, references in state.partitions_to_read(item):
            yield [Slice(state.shards[r.shard], span) for r in references]


def slices_from(pieces: Iterable[Piece], start: Key = ()) -> list[list[Slice]]:
    """Return the slices of pieces from a key on, for each piece that has any."""
    parts = []
    for piece in pieces:
        span = piece.range.intersection(KeyRange(start))
        if not span.is_empty():
            shards = (s for s in piece.shards if span.overlaps_span(s.low, s.high))
            parts.append([Slice(shard, span) for shard in shards])
    return [part for part in parts if part]


def _checked_columns(schema: Schema, columns: Sequence[str] | None, limit: int | None) -> list[str]:
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
        raise InvalidRequestError(f"a limit is a number of rows, which {limit!r} is not")
    check_name_list("columns", columns)
    if columns is None:
        columns = [f.name for f in schema.fields]
    if not columns:
        raise InvalidRequestError("no columns are asked for", hint="leave them out to get all")
    return [schema.field_named(name).name for name in dict.fromkeys(columns)]
