"""Hypothesis strategies for schemas, rows and ranges that a shard can hold."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from decimal import Context, Decimal

import pandas as pd
from hypothesis import strategies as st

from dormouse.keys import Key, KeyPart, KeyRange
from dormouse.schema import types
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import (
    DecimalType,
    FieldType,
    KeyType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
)

Row = dict[str, object]

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
_EXACT = Context(prec=38)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_TIMES = (st.integers(-2, 2) | st.integers(-(10**15), 10**15)).map(
    lambda n: _EPOCH + n * _MICROSECOND
) | st.sampled_from(
    [dt.datetime.min.replace(tzinfo=dt.UTC), dt.datetime.max.replace(tzinfo=dt.UTC)]
)
# Arrow does not read the first second of its range from text
_NANOS = st.integers(-2, 2) | st.integers(-(2**63) + 10**9, 2**63 - 1)
CELLS: dict[Primitive, st.SearchStrategy[object]] = {
    Primitive.INT: st.sampled_from([-(2**31), -1, 0, 1, 2, 2**31 - 1]),
    Primitive.LONG: st.sampled_from([-(2**63), -1, 0, 1, 2, 2**63 - 1]) | st.integers(-5, 5),
    Primitive.FLOAT: st.floats(width=32),
    Primitive.DOUBLE: st.floats(),
    Primitive.BOOLEAN: st.booleans(),
    Primitive.STRING: st.sampled_from(
        ["", "\0", "a", "a\0", "ab", "é", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]
    )
    | _TEXT,
    Primitive.BYTES: st.sampled_from([b"", b"\0", b"a", b"\xff", b"\xff\0"]),
    Primitive.TIMESTAMP: _TIMES,
    Primitive.TIMESTAMP_NTZ: _TIMES.map(lambda time: time.replace(tzinfo=None)),
    Primitive.TIMESTAMP_NS: _NANOS.map(lambda n: pd.Timestamp(n, unit="ns", tz="UTC")),
    Primitive.TIMESTAMP_NTZ_NS: _NANOS.map(lambda n: pd.Timestamp(n, unit="ns")),
    Primitive.TIME: st.sampled_from([dt.time.min, dt.time(12), dt.time.max])
    | st.times().map(lambda clock: clock.replace(fold=0)),
    Primitive.UUID: st.sampled_from([b"\0" * 16, b"\0" * 15 + b"\1", b"\xff" * 16])
    | st.binary(min_size=16, max_size=16),
    Primitive.DYNAMIC: st.sampled_from(
        ["{}", "[1,2.50,null]", '{"b":1,"a":{"x":"é"}}', '"text"', "1e400", "true"]
    ),
    Primitive.DATE: st.sampled_from([dt.date.min, dt.date(1969, 12, 31), dt.date.max]) | st.dates(),
}
"""Few values for key types, so that keys often meet."""

DECIMAL_KEYS = (DecimalType(9, 2), DecimalType(18, 0), DecimalType(38, 19), DecimalType(38, 0))
KEY_TYPES: st.SearchStrategy[KeyType] = st.sampled_from(
    [*sorted(types.KEY_TYPES, key=lambda kind: kind.value), *DECIMAL_KEYS]
)
NAMES = ["k", "Key", "with space", 'quo"te', "dot.ted", "snow☃"]
WITHIN = [kind for kind in Primitive if kind is not Primitive.DYNAMIC]
"""The types that parts of values have, too."""
_MAP_KEYS = st.sampled_from(sorted(set(WITHIN) - {Primitive.FLOAT, Primitive.DOUBLE}, key=str))
_MEMBERS = st.lists(st.sampled_from(["dot", "ted", *NAMES]), min_size=1, max_size=3, unique=True)


@st.composite
def _structs(draw: st.DrawFn, inner: st.SearchStrategy[FieldType]) -> FieldType:
    names = draw(_MEMBERS)
    return StructType(tuple(Member(name, draw(inner), draw(st.booleans())) for name in names))


VALUE_TYPES: st.SearchStrategy[FieldType] = st.recursive(
    st.sampled_from([*WITHIN, DecimalType(9, 2), DecimalType(38, 19), DecimalType(38, 0)]),
    lambda inner: inner.map(ListType) | st.builds(MapType, _MAP_KEYS, inner) | _structs(inner),
    max_leaves=4,
) | st.just(Primitive.DYNAMIC)


def cells(kind: FieldType) -> st.SearchStrategy[object]:
    """Return values of a type as ``to_pylist`` gives them."""
    match kind:
        case Primitive():
            return CELLS[kind]
        case DecimalType(precision=precision, scale=scale):
            most = 10**precision - 1
            few = st.sampled_from([-most, -1, 0, 1, 2**63 % most, most])
            return (few | st.integers(-most, most)).map(lambda n: Decimal(n).scaleb(-scale, _EXACT))
        case ListType(element=element):
            return st.lists(st.none() | cells(element), max_size=2)
        case StructType(members=members):
            return st.fixed_dictionaries({m.name: _maybe(m) for m in members})
        case MapType():
            entry = st.tuples(cells(kind.key), st.none() | cells(kind.value))
            return st.lists(entry, max_size=2, unique_by=lambda pair: pair[0])


def _maybe(field: Field | Member) -> st.SearchStrategy[object]:
    return (st.none() | cells(field.type)) if field.nullable else cells(field.type)


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = iter(draw(st.permutations(NAMES)))

    def keys(least: int) -> tuple[Field, ...]:
        kinds = draw(st.lists(KEY_TYPES, min_size=least, max_size=2))
        return tuple(Field(next(names), kind) for kind in kinds)

    row_keys, sort_keys = keys(1), keys(0)
    kinds = draw(st.lists(VALUE_TYPES, max_size=2))
    values = tuple(Field(next(names), kind, nullable=draw(st.booleans())) for kind in kinds)
    return Schema(row_keys, sort_keys, values)


def rows_of(schema: Schema, max_size: int = 40) -> st.SearchStrategy[list[Row]]:
    """Return lists of rows of a schema."""
    columns = {f.name: _maybe(f) for f in schema.fields}
    return st.lists(st.fixed_dictionaries(columns), max_size=max_size)


def part_of(cell: object) -> KeyPart:
    """Return the key part of a cell, by the definition of keys."""
    if isinstance(cell, pd.Timestamp):
        return int(cell.value)
    if isinstance(cell, dt.datetime):
        return ((cell if cell.tzinfo else cell.replace(tzinfo=dt.UTC)) - _EPOCH) // _MICROSECOND
    if isinstance(cell, dt.time):
        midnight = dt.datetime.combine(_EPOCH, dt.time.min)
        return (dt.datetime.combine(_EPOCH, cell) - midnight) // _MICROSECOND
    if isinstance(cell, dt.date):
        return (cell - _EPOCH.date()).days
    if isinstance(cell, uuid.UUID):
        return cell.bytes
    if isinstance(cell, Decimal):  # with all digits of its type, as Arrow has it
        sign, digits, _ = cell.as_tuple()
        return (-1 if sign else 1) * int("".join(map(str, digits)))
    assert isinstance(cell, int | str | bytes)
    return cell


def row_key_of(row: Row, schema: Schema) -> Key:
    """Return the row key of a row."""
    return tuple(part_of(row[f.name]) for f in schema.row_keys)


def sort_key_of(row: Row, schema: Schema) -> Key:
    """Return what rows are sorted by."""
    return tuple(part_of(row[f.name]) for f in schema.keys)


@st.composite
def bounds(draw: st.DrawFn, schema: Schema) -> Key:
    """Return keys, prefixes, and points that no column of the table could hold; of row keys."""
    return draw(_bounds(schema.row_keys))


@st.composite
def _bounds(draw: st.DrawFn, fields: Sequence[Field]) -> Key:
    parts: list[KeyPart] = []
    for field in fields:
        part = cells(field.type).map(part_of)
        if field.type is Primitive.UUID:
            part = part | st.sampled_from([b"", b"\0", b"\xff" * 17, b"\0" * 17])
        elif field.type not in (Primitive.STRING, Primitive.BYTES):
            part = part | st.sampled_from([-(2**31) - 1, 2**31, -(2**63), 2**63, -(10**38), 10**38])
        parts.append(draw(part))
    return tuple(parts[: draw(st.integers(0, len(parts)))])


@st.composite
def ranges(draw: st.DrawFn, schema: Schema) -> KeyRange:
    """Return ranges over row keys and sort keys, those of one key and empty ones too."""
    low = draw(_bounds(schema.keys))
    if draw(st.booleans()):
        return KeyRange.exactly(low)
    return KeyRange(low, draw(st.none() | _bounds(schema.keys)))
