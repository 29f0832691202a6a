"""Make a selection, and plan which slices of which shards contain its rows."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import msgspec

from dormouse.access import EVERYTHING, Permission, check_visible, visible_schema
from dormouse.arrow.order import ranges_to_read, requested_ranges
from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.key_codec import KeyCodec
from dormouse.keys import Key, KeyRange
from dormouse.messages.stages import SelectionMessage
from dormouse.schema.schema import ASKED, Schema, check_list
from dormouse.shards.reading import Slice
from dormouse.sql.conditions import Condition, parse_condition
from dormouse.state.partitions import Shard
from dormouse.state.state import Deletion, Piece, TableState
from dormouse.stored.decoding import decode_stored, encode_stored, raise_corrupt
from dormouse.tables.table import Table

# The selection: which rows and columns of one version of a table are asked for.
#
# `select` makes it once, and validates it; queries, counts, exports, purges and Spark carry it;
# `SelectionMessage` is its form in messages.


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows and columns of one version of a table are asked for.

    `ranges` are disjoint, in key order, and fit the key columns; by default the whole table. A row
    is selected if it is in one of them and `condition` is true of it, after the table's filters and
    aggregations. Filters by age are evaluated as of `time_ms`. At most `limit` rows are selected,
    the first in key order.
    """

    version: int
    columns: tuple[str, ...]
    ranges: tuple[KeyRange, ...] = (KeyRange(),)
    condition: Condition | None = None
    limit: int | None = None
    time_ms: int = 0

    @property
    def tested_columns(self) -> frozenset[str]:
        """The columns that its condition reads."""
        return frozenset() if self.condition is None else self.condition.columns

    @property
    def where(self) -> str:
        """The condition as SQL in its normal form; empty if there is none."""
        return "" if self.condition is None else self.condition.sql


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
    Raises InvalidRequestError: a column is unknown or hidden, none is left, the limit is not a
    number of rows, or a bound is of the wrong type.
    """
    visible = schema
    if permission.hidden:
        visible = visible_schema(schema, permission)
        check_visible(visible, permission, condition.columns if condition else (), ranges)
    return Selection(
        version,
        tuple(_checked_columns(visible, permission, columns)),
        tuple(requested_ranges(schema, ranges)) or (KeyRange((), ()),),
        condition,
        _limit(limit),
        time_ms,
    )


def _limit(limit: object) -> int | None:
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, Integral) or limit < 0:
        raise InvalidRequestError(f"a limit is a number of rows, which {limit!r} is not")
    return int(limit)


def selected_ranges(table: Table, selection: Selection) -> list[KeyRange]:
    """Return disjoint ascending ranges that contain all stored rows a selection depends on.

    They are narrower than the selection's ranges where the condition bounds keys, and wider where
    rows of one group may be outside of them.
    """
    return ranges_to_read(table, selection.ranges, selection.condition)


def slices_to_read(state: TableState, ranges: Sequence[KeyRange]) -> Iterator[list[Slice]]:
    """Yield the slices of shards that disjoint ranges need, in key order.

    Each list has the slices of one range within one leaf. For example, if the leaves meet at the
    key m, the range [k, p) is divided into [k, m) and [m, p), each with the shards of its leaf.
    """
    deletions = state.deletions_in(ranges)
    for span, references in state.partitions_to_read(*ranges):
        yield [Slice(state.shards[r.shard], span, deletions) for r in references]


def slices_from(pieces: Iterable[Piece], start: Key = ()) -> list[list[Slice]]:
    """Return the slices of pieces from a key on, for each piece that has any."""
    parts = []
    for piece in pieces:
        span = piece.range.intersection(KeyRange(start))
        if not span.is_empty():
            shards = (s for s in piece.shards if span.overlaps_span(s.low, s.high))
            parts.append([Slice(shard, span, piece.deletions) for shard in shards])
    return [part for part in parts if part]


def _checked_columns(
    schema: Schema, permission: Permission, columns: Sequence[str] | None
) -> list[str]:
    names = [f.name for f in schema.fields] if columns is None else check_list("columns", columns)
    if not names:
        raise InvalidRequestError("no columns are asked for", hint="leave them out to get all")
    if columns is None:
        return names
    if no_names := [name for name in names if not isinstance(name, str)]:
        raise InvalidRequestError(f"columns are names, which {no_names[0]!r} is not")
    if not schema.has_all(names):
        schema = schema.with_values(*(f for f in ASKED if f.name not in permission.hidden))
    return [schema.field_named(name).name for name in dict.fromkeys(names)]


# Selections in messages and stored objects: the one codec between `Selection` and JSON.
#
# A message says which rows are asked for before the version is known: keys and ranges in their JSON
# form, a condition in SQL, names of columns, a version or a time. `decode_selection` validates it
# against a schema and returns a `Selection` of one version; `encode_selection` turns a `Selection`
# back into a message, which decodes to the same selection. So code that cuts a query into
# parts, or stores what to read later, sends what a user could have sent.


class StoredSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stored form of a selection, with the schema that its names and keys are of."""

    schema: dict[str, Any]
    version: int
    time_ms: int
    rows: SelectionMessage


def decode_selection(
    message: SelectionMessage,
    schema: Schema,
    *,
    permission: Permission,
    version: int,
    time_ms: int,
    of_rows: bool = True,
) -> Selection:
    """Return the rows that a message asks for, of a version that its caller has found. `now()` in
    its condition is `time_ms`; `of_rows` says that it may ask for row tags.

    `schema` is whole; what the message names must be among what `permission` shows of it.
    Raises InvalidRequestError: a key, column, condition or limit does not fit the schema, or a
    range ends before it starts.
    """
    visible = visible_schema(schema, permission)
    return select(
        schema,
        version,
        time_ms,
        list(ranges_of(message, visible)),
        permission=permission,
        columns=message.columns or None,
        condition=_condition(message.where, visible, time_ms, of_rows),
        limit=message.limit,
    )


def encode_selection(selection: Selection, schema: Schema) -> SelectionMessage:
    """Return the message that asks for the rows of a selection."""
    codec = KeyCodec(schema)
    is_all = selection.ranges == (KeyRange(),)
    return SelectionMessage(
        ranges=() if is_all else tuple(map(codec.range_to_json, selection.ranges)),
        where=selection.where,
        columns=selection.columns,
        limit=selection.limit,
        as_of=selection.version,
    )


def store_selection(selection: Selection, schema: Schema) -> StoredSelection:
    """Return the stored form of a selection."""
    rows = encode_selection(selection, schema)
    return StoredSelection(schema.to_json(), selection.version, selection.time_ms, rows)


def load_selection(form: StoredSelection) -> tuple[Schema, Selection]:
    """Return the schema and the selection of a stored form.
    Raises CorruptDataError: it is no selection; the error quotes neither keys nor the condition.
    """
    try:
        schema = Schema.from_json(form.schema)
        selection = decode_selection(
            form.rows,
            schema,
            permission=EVERYTHING,  # its columns were chosen when it was stored
            version=form.version,
            time_ms=form.time_ms,
        )
    except InvalidRequestError:
        # not chained: the message of the error quotes what may be values of rows
        raise CorruptDataError("its selection cannot be read any more") from None
    return schema, selection


def _condition(where: str, schema: Schema, time_ms: int, of_rows: bool) -> Condition | None:
    if not where.strip():
        return None
    # what has no time, such as a purge, has no present either
    return parse_condition(where, schema, now_ms=time_ms or None, of_rows=of_rows)


def ranges_of(message: SelectionMessage, schema: Schema) -> Iterator[KeyRange]:
    """Yield the keys and ranges of a message. Raises InvalidRequestError: one does not fit."""
    codec = KeyCodec(schema)
    for number, key in enumerate(message.keys, start=1):
        yield KeyRange.exactly(codec.from_json(key, f"key {number}"))
    for number, ends in enumerate(message.ranges, start=1):
        yield codec.range_from_json(ends, f"range {number}")


# Pieces of a version of a table: ranges with their shards, grouped into tasks of limited size.
#
# Exports and queries that are too large for one function are cut into such tasks, each of
# consecutive leaf partitions: what the tasks return, one after the other, is in key order.

FORMAT = 1
MAX_TASK_BYTES = 256 * 1024 * 1024
"""About how many bytes of shards a task reads at most, unless a single partition has more."""
MAX_TASK_SHARDS = 1000
"""The most shards that a task reads, summed over partitions, unless one partition has more."""


def plan_tasks(
    state: TableState, ranges: Iterable[KeyRange], task_bytes: int = MAX_TASK_BYTES
) -> Iterator[tuple[Piece, ...]]:
    """Group the partitions of disjoint ascending ranges into tasks, in key order.

    A partition is never divided: a task ends before the piece that would exceed a limit. With
    `task_bytes=100` and pieces of 60, 30, 50 and 200 bytes, the tasks have 60 + 30, 50, and 200.
    """
    task: list[Piece] = []
    size_bytes = slices = 0
    for piece, piece_bytes in _pieces(state, ranges):
        is_too_many = slices + len(piece.shards) > MAX_TASK_SHARDS
        if task and (is_too_many or size_bytes + piece_bytes > task_bytes):
            yield tuple(task)
            task, size_bytes, slices = [], 0, 0
        task.append(piece)
        size_bytes += piece_bytes
        slices += len(piece.shards)
    if task:
        yield tuple(task)


def bytes_to_read(state: TableState, ranges: Iterable[KeyRange]) -> int:
    """Estimate how many bytes of shards lie in disjoint ascending ranges."""
    return sum(piece_bytes for _, piece_bytes in _pieces(state, ranges))


def _pieces(state: TableState, ranges: Iterable[KeyRange]) -> Iterator[tuple[Piece, int]]:
    """Yield the pieces of ranges, each with an estimate of the bytes to read.

    A shard of several partitions counts in each by the share of its rows there.
    """
    ranges = list(ranges)
    deletions = state.deletions_in(ranges)
    for span, references in state.partitions_to_read(*ranges):
        shards = tuple(state.shards[reference.shard] for reference in references)
        size_bytes = sum(
            shard.size_bytes * min(reference.rows, shard.rows) // shard.rows
            for shard, reference in zip(shards, references, strict=True)
        )
        yield Piece(span, shards, deletions=deletions), size_bytes


class _StoredPieces(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of a task: each shard once; pieces refer to shards by position."""

    shards: tuple[Shard, ...]
    pieces: tuple[tuple[tuple[bytes, bytes | None], tuple[int, ...]], ...]
    deletions: tuple[Deletion, ...] = ()


def encode_pieces(pieces: Sequence[Piece], kind: str, path: str) -> bytes:
    """Return the stored form of the pieces of one task, an object of this kind for `path`."""
    shards = list({shard.id: shard for piece in pieces for shard in piece.shards}.values())
    numbers = {shard.id: number for number, shard in enumerate(shards)}
    parts = (
        ((piece.range.low, piece.range.high), tuple(numbers[shard.id] for shard in piece.shards))
        for piece in pieces
    )
    deletions = pieces[0].deletions if pieces else ()
    body = _StoredPieces(tuple(shards), tuple(parts), deletions)
    return encode_stored(kind, FORMAT, path, body)


def decode_pieces(content: bytes, kind: str, path: str) -> tuple[Piece, ...]:
    """Parse the result of `encode_pieces`.
    Raises CorruptDataError: the object at `path` is damaged or is of another kind.
    """
    hint = "what it is a part of has failed: request it again"
    with raise_corrupt(f"{path} is not {kind}", hint=hint):
        body = decode_stored(kind, FORMAT, path, content, _StoredPieces)
        return tuple(
            Piece(
                KeyRange.between(*ends),
                tuple(body.shards[number] for number in numbers),
                deletions=body.deletions,
            )
            for ends, numbers in body.pieces
        )
