"""Parse JSON values into Arrow columns: the exact JSON form of each field type.

The objects of a struct have no names except those of its members; a nullable member may be missing.
Values without a JSON form are written as text: bytes in base64, times and dates in ISO 8601, floats
that are not finite as NaN, Infinity and -Infinity. Decimals are text or numbers of any length.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache, partial
from typing import Annotated, Any, SupportsIndex

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.documents import MAX_DEPTH, document, documents
from dormouse.arrow.types import COUNTS, Array, arrow_schema, arrow_type
from dormouse.arrow.values import leaves, parse_decimals
from dormouse.errors import RefusedSourceError
from dormouse.files.casting import (
    NUMBER,
    bytes_contain,
    check_years,
    convert,
    null_refusal,
    parse_base64,
    parse_booleans,
    parse_clocks,
    parse_floats,
    parse_integers,
    parse_times,
    parse_uuids,
)
from dormouse.files.rejects import refuse_each
from dormouse.key_codec import uuid_bytes
from dormouse.schema.schema import MAX_KEY_BYTES, Field, Schema
from dormouse.schema.types import (
    NANOSECONDS,
    TIMESTAMPS,
    UUID_BYTES,
    ZONED,
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
    to_count,
)

Raws = Sequence[bytes | None]
"""JSON values as written in the file; None for each null."""
_NULL = b"null"
_NO_FINITE = {b'"NaN"': b"nan", b'"Infinity"': b"inf", b'"-Infinity"': b"-inf"}


def json_column(raws: Raws, field: Field) -> Array:
    """Return JSON values as a column of the field's type.

    Raises:
        ValueError: a value is not one of the type.
        ArrowException: likewise.
    """
    try:
        return _column(raws, field.type, field.unit)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _column(raws: Raws, kind: FieldType, unit: str) -> Array:
    if isinstance(kind, ListType | MapType | StructType):
        return _nested_column(raws, kind, unit)
    if kind in (Primitive.FLOAT, Primitive.DOUBLE):
        raws = [_NO_FINITE.get(raw or b"", raw) for raw in raws]
    cells = pa.array(raws, pa.binary())
    match kind:
        case Primitive.INT | Primitive.LONG:
            return parse_integers(cells.cast(pa.string()), kind)
        case Primitive.FLOAT | Primitive.DOUBLE:
            return parse_floats(cells.cast(pa.string()), kind)
        case Primitive.BOOLEAN:
            return parse_booleans(cells.cast(pa.string()))
        case Primitive.STRING:
            return _texts(cells)
        case Primitive.BYTES | Primitive.TIME | Primitive.UUID:
            return _OF_TEXTS[kind](_texts(cells))
        case Primitive.DYNAMIC:
            return documents(raws)
        case Primitive():
            return parse_times(*_apart(cells), kind, unit)
        case DecimalType():
            return parse_decimals(pc.coalesce(*_apart(cells)), kind)


_OF_TEXTS: Mapping[Primitive, Callable[[Array], Array]] = {
    Primitive.BYTES: parse_base64,
    Primitive.TIME: parse_clocks,
    Primitive.UUID: parse_uuids,
}


def _texts(cells: Array) -> Array:
    """Return the decoded content of JSON strings."""
    if not pc.all(pc.starts_with(cells, '"'), min_count=0).as_py():
        raise ValueError("it is text")
    if bytes_contain(cells, b"\\"):
        decode = _text_decoder.decode
        return pa.array([None if raw is None else decode(raw) for raw in cells.to_pylist()])
    return pc.binary_slice(cells, 1, -1).cast(pa.string())


def _apart(cells: Array) -> tuple[Array, Array]:
    """Return the decoded strings among JSON values, and the numbers among them as text."""
    is_text = pc.starts_with(cells, '"')
    numbers = pc.if_else(is_text, None, cells).cast(pa.string())
    if not pc.all(pc.match_substring_regex(numbers, NUMBER), min_count=0).as_py():
        raise ValueError("it is neither text nor a number")
    return _texts(pc.if_else(is_text, cells, None)), numbers


_text_decoder = msgspec.json.Decoder(str)


def _nested_column(raws: Raws, kind: FieldType, unit: str) -> Array:
    decode = _decoder(kind).decode
    values = [None if raw is None else decode(raw) for raw in raws]
    cells_of_kind: dict[FieldType, list[bytes | None]] = defaultdict(list)
    for value in values:
        _gather(value, kind, cells_of_kind)
    leaves = {
        leaf: iter(_python_cells(_column(raws, leaf, unit), leaf))
        for leaf, raws in cells_of_kind.items()
    }
    column: Array = pa.array([_filled(value, kind, leaves) for value in values], arrow_type(kind))
    for raw in raws:
        if raw is not None and raw.count(b":") > 1:
            check_names(raw)
    return column


def check_names(body: bytes) -> None:
    """Check that no JSON object has a name twice. Raises ValueError if one has."""
    json.loads(body, object_pairs_hook=_object, parse_int=len, parse_float=len)


def _object(pairs: list[tuple[str, object]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("an object has a name twice")


def _is_leaf(kind: FieldType) -> bool:
    """Return whether values of the type inside nested ones stay raw JSON,
    to be converted as one column.
    """
    return isinstance(kind, DecimalType) or kind in (
        Primitive.FLOAT,
        Primitive.DOUBLE,
        Primitive.DATE,
        Primitive.TIME,
        Primitive.UUID,
        *TIMESTAMPS,
    )


def _gather(value: Any, kind: FieldType, leaves: dict[FieldType, list[bytes | None]]) -> None:
    """Collect the values of leaves, in the order in which `_filled` puts them back."""
    if _is_leaf(kind):
        raw = None if value is None else bytes(value)
        leaves[kind].append(None if raw == _NULL else raw)
        return
    match kind, value:
        case _, None:
            return
        case ListType(element=element), list():
            for item in value:
                _gather(item, element, leaves)
        case MapType(), dict() | list():
            for key, item in _entries(value, kind):
                _gather(key, kind.key, leaves)
                _gather(item, kind.value, leaves)
        case StructType(members=members), msgspec.Struct():
            for member, item in zip(members, msgspec.structs.astuple(value), strict=True):
                if not member.nullable and _is_leaf(member.type) and bytes(item) == _NULL:
                    raise ValueError(f"{member.name!r} has no value in it, and cannot be null")
                _gather(item, member.type, leaves)


def _filled(value: Any, kind: FieldType, leaves: dict[FieldType, Iterator[object]]) -> object:
    """Return a decoded value in which the leaves are replaced by their converted values."""
    if _is_leaf(kind):
        return next(leaves[kind])
    match kind, value:
        case ListType(element=element), list():
            return [_filled(item, element, leaves) for item in value]
        case MapType(), dict() | list():
            return [
                (_filled(key, kind.key, leaves), _filled(item, kind.value, leaves))
                for key, item in _entries(value, kind)
            ]
        case StructType(members=members), msgspec.Struct():
            items = zip(members, msgspec.structs.astuple(value), strict=True)
            return {member.name: _filled(item, member.type, leaves) for member, item in items}
    return value


def _python_cells(column: Array, kind: FieldType) -> list[Any]:
    """Return the cells of a column as Python values that Arrow accepts, also
    beyond Python's range of years.
    """
    stored = COUNTS.get(kind)
    plain: Any = column.cast(stored) if stored else column
    return list(plain.to_pylist())


def _entries(value: Any, kind: MapType) -> Iterator[tuple[Any, Any]]:
    """Yield the keys and values of a map; the names of a JSON object are
    keys of any type, written as text.
    """
    if isinstance(value, list):
        yield from value
        return
    for name, item in value.items():
        yield (_written(name) if _is_leaf(kind.key) else name), item


def _written(name: str) -> bytes:
    return name.encode() if re.fullmatch(NUMBER, name) else msgspec.json.encode(name)


def _integers(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_TYPES: dict[Primitive, Any] = {
    Primitive.INT: _integers(32),
    Primitive.LONG: _integers(64),
    Primitive.BOOLEAN: bool,
    Primitive.STRING: str,
    Primitive.BYTES: bytes,
}


@cache
def _decoder(kind: FieldType) -> msgspec.json.Decoder[object]:
    """Return the decoder of one JSON value of a nested type; its leaves stay raw JSON.

    Threads that call this at the same time may each make a decoder, with classes of its own: so no
    thread uses a class that another one is still preparing (see `stored.decoding`).
    """
    return msgspec.json.Decoder(_python_type(kind))


def _or_null(kind: FieldType) -> Any:
    target = _python_type(kind)
    return target if target is msgspec.Raw else target | None


def _python_type(kind: FieldType) -> Any:
    if _is_leaf(kind):
        return msgspec.Raw
    match kind:
        case ListType(element=element):
            return list[_or_null(element)]  # type: ignore[misc]  # built at run time
        case MapType():
            key, value = _python_type(kind.key), _or_null(kind.value)
            pairs = list[tuple[key, value]]  # type: ignore[valid-type]
            if kind.key is Primitive.BOOLEAN:  # the names in a JSON object cannot be booleans
                return pairs
            return dict[str if key is msgspec.Raw else key, value] | pairs  # type: ignore[misc]
        case StructType(members=members):
            return _object_of(members)
        case Primitive():
            return _TYPES[kind]


def _object_of(members: Sequence[Member]) -> type[msgspec.Struct]:
    """Return a class that decodes a struct; its attributes are numbered, because names of
    members may not be Python names.
    """
    fields: list[tuple[str, Any, Any]] = []
    for i, member in enumerate(members):
        if member.nullable:
            absent = msgspec.Raw(_NULL) if _is_leaf(member.type) else None
            fields.append((f"f{i}", _or_null(member.type), absent))
        else:
            fields.append((f"f{i}", _python_type(member.type), msgspec.NODEFAULT))
    return msgspec.defstruct(
        "Object",
        fields,
        rename={f"f{i}": member.name for i, member in enumerate(members)},
        forbid_unknown_fields=True,
        kw_only=True,
    )


# Convert Python values to columns of the table, exactly: what a program writes row by row.
#
# pyarrow alone is too lenient for this: it drops the zone of a time, the clock of a datetime in a
# date column, and takes a boolean for a number. Errors say what a value is, and never quote it.

Row = Mapping[str, object]


def rows_to_batch(rows: Sequence[Row], schema: Schema, first: int = 0) -> pa.RecordBatch:
    """Return rows as a batch of the table; `first` rows were before them.

    Raises:
        RefusedSourceError: a value does not fit its column; the message names the row, from 1.
    """

    def place(row: int) -> str:
        return f"row {first + row + 1}"

    columns = [python_column([row.get(f.name) for row in rows], f, place) for f in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def check_row_names(row: Row, schema: Schema) -> None:
    """Check that a row has no names but those of columns; nullable columns may be missing.

    Raises:
        RefusedSourceError: it has others, or lacks some.
    """
    names = {field.name for field in schema.fields}
    columns_hint = "the table has: " + ", ".join(field.name for field in schema.fields)
    if unknown := [name for name in row if name not in names]:
        raise RefusedSourceError(
            f"the table has no column {', '.join(map(repr, unknown))}", hint=columns_hint
        )
    if missing := [f.name for f in schema.fields if not f.nullable and f.name not in row]:
        raise RefusedSourceError(
            f"the row has no value for {', '.join(map(repr, missing))}", hint=columns_hint
        )


def python_column(values: list[object], field: Field, place: Callable[[int], str]) -> Array:
    """Return values as a column of the table.

    Raises:
        RefusedSourceError: a value does not fit it; the message names its `place`.
    """
    if not field.nullable and (empty := [i for i, value in enumerate(values) if value is None]):
        raise null_refusal(empty, field, place)
    return convert(values, field, place, lambda cells: _array(cells, field.type))


def _array(values: Sequence[object], kind: FieldType) -> Array:
    plain = [None if value is None else _plain(value, kind) for value in values]
    column: Array = pa.array(plain, arrow_type(kind))
    for leaf in leaves(column):
        check_years(leaf)  # a zone takes the first and last hours of Python beyond them
    return column


def _plain(value: object, kind: FieldType) -> object:
    """Return a value as pyarrow converts it without loss. Raises ValueError if it does not fit."""
    match kind:
        case Primitive():
            return _PRIMITIVES[kind](value)
        case DecimalType():
            return _decimal(value)
        case ListType(element=element):
            return [_or_none(item, element) for item in _items(value)]
        case MapType(key=key, value=inner):
            pairs = value.items() if isinstance(value, Mapping) else map(_pair, _items(value))
            return [(_plain(name, key), _or_none(item, inner)) for name, item in pairs]
        case StructType(members=members):
            if not isinstance(value, Mapping):
                raise _mistyped(value)
            if set(value) - {member.name for member in members}:
                raise ValueError("a struct has an unknown member")
            for member in members:
                if not member.nullable and value.get(member.name) is None:
                    raise ValueError(f"{member.name!r} has no value in it, and cannot be null")
            return {m.name: _or_none(value.get(m.name), m.type) for m in members}


def _or_none(value: object, kind: FieldType) -> object:
    return None if value is None else _plain(value, kind)


def _items(value: object) -> Sequence[object]:
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    if hasattr(value, "tolist"):  # an array of numpy
        items = value.tolist()
        if isinstance(items, list):
            return items
    raise _mistyped(value)


def _pair(value: object) -> tuple[object, object]:
    if isinstance(value, tuple | list) and len(value) == 2:
        return value[0], value[1]
    raise ValueError("a map is a dict, or pairs of key and value")


def _whole_number(bits: int) -> Callable[[object], int]:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def plain(value: object) -> int:
        if not isinstance(value, SupportsIndex) or isinstance(value, bool):
            raise _mistyped(value)
        if not least <= (whole := value.__index__()) <= most:
            raise ValueError(f"not in range: {least} to {most}")
        return whole

    return plain


def _double(value: object) -> float:
    plain = value.item() if _is_numpy(value) else value  # type: ignore[attr-defined]
    if isinstance(plain, bool) or not isinstance(plain, float | int):
        raise _mistyped(value)
    if isinstance(plain, int) and float(plain) != plain:
        raise ValueError("the whole number does not fit a float exactly")
    return float(plain)


def _single(value: object) -> float:
    number = _double(value)
    if math.isfinite(number) and abs(number) > _LARGEST_SINGLE:
        raise ValueError("the number is too large")
    if isinstance(value, int) and abs(value) > 2**24:
        raise ValueError("the whole number may not fit a float exactly")
    return number


_LARGEST_SINGLE = (2 - 2**-23) * 2.0**127


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if _is_numpy(value) and isinstance(plain := value.item(), bool):  # type: ignore[attr-defined]
        return plain
    raise _mistyped(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise _mistyped(value)


def _document(value: object) -> str:
    """Return JSON text of a value; text is JSON already."""
    text = value if isinstance(value, str) else _json.encode(_json_value(value, 0)).decode()
    return document(text.encode()).decode()


_json = msgspec.json.Encoder()


def _json_value(value: object, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise ValueError(f"the document is nested deeper than {MAX_DEPTH}")
    match value:
        case None | bool() | str():
            return value
        case int() | float() | Decimal():
            if not math.isfinite(value):
                raise ValueError("NaN and infinity are no numbers of JSON")
            return msgspec.Raw(str(value).encode())
        case Mapping():
            if not all(isinstance(name, str) for name in value):
                raise ValueError("a name in an object is no text")
            return {name: _json_value(part, depth + 1) for name, part in value.items()}
        case _ if _is_numpy(value):
            return _json_value(value.tolist(), depth)  # type: ignore[attr-defined]
    return [_json_value(part, depth + 1) for part in _items(value)]


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise _mistyped(value)


def _timestamp(kind: Primitive) -> Callable[[object], int]:
    def count(value: object) -> int:
        if not isinstance(value, dt.datetime):
            raise _mistyped(value)
        if bool(value.tzinfo) != (kind in ZONED):
            raise ValueError(f"the time has {'no' if kind in ZONED else 'a'} time zone")
        if getattr(value, "nanosecond", 0) and kind not in NANOSECONDS:
            raise ValueError("times are whole microseconds")
        return to_count(value, kind)

    return count


def _clock(value: object) -> dt.time:
    if isinstance(value, dt.time) and value.tzinfo is None:
        return value
    raise _mistyped(value)


def _date(value: object) -> dt.date:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    raise _mistyped(value)


def _decimal(value: object) -> Decimal:
    number = Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(number, Decimal):
        raise _mistyped(value)
    if not number.is_finite():
        raise ValueError("the decimal is not finite")
    return number


def _is_numpy(value: object) -> bool:
    return type(value).__module__ == "numpy" and hasattr(value, "item")


def _mistyped(value: object) -> ValueError:
    return ValueError(f"the value is of the type {type(value).__name__}")


_PRIMITIVES: dict[Primitive, Callable[[object], object]] = {
    Primitive.INT: _whole_number(32),
    Primitive.LONG: _whole_number(64),
    Primitive.FLOAT: _single,
    Primitive.DOUBLE: _double,
    Primitive.BOOLEAN: _boolean,
    Primitive.STRING: _text,
    Primitive.BYTES: _bytes,
    Primitive.DATE: _date,
    Primitive.TIME: _clock,
    Primitive.UUID: uuid_bytes,
    Primitive.DYNAMIC: _document,
    **{kind: _timestamp(kind) for kind in TIMESTAMPS},
}


# Refuse rows whose row key is too large, before any of them is written; used by `formats`.

_HINT = "keys are stored in memory and in every index: put long texts in a value column"


def with_fitting_keys(
    batches: Iterable[pa.RecordBatch], schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the rows of a file as long as their row keys are not too large.

    Raises:
        RefusedSourceError: one is; says which row, and the column that takes most of its key.
    """
    before = 0
    for batch in batches:
        sizes = [_sizes(batch.column(f.name), f.type) for f in schema.row_keys]
        total = sizes[0]
        for size in sizes[1:]:
            total = pc.add(total, size)
        if batch.num_rows and pc.max(total).as_py() > MAX_KEY_BYTES:
            totals: list[Any] = total.to_pylist()
            check = partial(_check_key, schema, sizes, totals, before)
            refuse_each(range(batch.num_rows), check)
        before += batch.num_rows
        yield batch


def _check_key(
    schema: Schema, sizes: Sequence[Array], total: Sequence[int], before: int, row: int
) -> None:
    if total[row] > MAX_KEY_BYTES:
        longest = max(range(len(sizes)), key=lambda column: sizes[column][row].as_py())
        raise RefusedSourceError(
            f"row {before + row + 1}, column {schema.row_keys[longest].name!r}: the row key "
            f"takes {total[row]:,} bytes, and may take {MAX_KEY_BYTES:,}",
            hint=_HINT,
        )


def _sizes(column: Array, kind: object) -> Array:
    """Return the bytes of each part as `schema.schema` counts them."""
    if kind in (Primitive.STRING, Primitive.BYTES):
        lengths: Array = pc.call_function("binary_length", [column])
        return pc.cast(lengths, pa.int64())
    size_bytes = UUID_BYTES if kind is Primitive.UUID else 8
    return pa.repeat(pa.scalar(size_bytes, pa.int64()), len(column))
