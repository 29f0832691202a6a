"""Parse JSON values into Arrow columns: the exact JSON form of each field type.

The objects of a struct have no names except those of its members; a nullable member may be missing.
Values without a JSON form are written as text: bytes in base64, times and dates in ISO 8601, floats
that are not finite as NaN, Infinity and -Infinity. Decimals are text or numbers of any length.
"""

import datetime as dt
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache, reduce
from operator import index
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.documents import MAX_DEPTH, check_unique, document, documents
from dormouse.arrow.types import Array, arrow_schema, arrow_type
from dormouse.arrow.values import leaves, parse_decimals, rebuilt
from dormouse.errors import RefusedSourceError
from dormouse.files import casting
from dormouse.files.rejects import refuse_rows
from dormouse.key_codec import uuid_bytes
from dormouse.schema.schema import MAX_KEY_BYTES, Field, Schema
from dormouse.schema.types import (
    FLOATS,
    TIMESTAMPS,
    UUID_BYTES,
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
    exact_count,
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
    if kind is Primitive.DYNAMIC:
        return documents(raws)
    if kind in FLOATS:
        raws = [_NO_FINITE.get(raw or b"", raw) for raw in raws]
    cells = pa.array(raws, pa.binary())
    if isinstance(kind, DecimalType):
        return parse_decimals(pc.coalesce(*_apart(cells)), kind)
    if kind is Primitive.DATE or kind in TIMESTAMPS:
        return casting.parse_times(*_apart(cells), kind, unit)
    parse = casting.text_parser(kind)
    assert parse is not None, "only nested values are written in JSON"
    return parse(_texts(cells) if kind in _TEXTS else cells.cast(pa.string()))


_TEXTS = (Primitive.STRING, Primitive.BYTES, Primitive.TIME, Primitive.UUID)
"""The types whose values are texts in JSON, and never numbers."""


def _texts(cells: Array) -> Array:
    """Return the decoded content of JSON strings."""
    if not pc.all(pc.starts_with(cells, '"'), min_count=0).as_py():
        raise ValueError("expected: text")
    if casting.bytes_contain(cells, b"\\"):
        decode = _text_decoder.decode
        return pa.array([None if raw is None else decode(raw) for raw in cells.to_pylist()])
    return pc.binary_slice(cells, 1, -1).cast(pa.string())


def _apart(cells: Array) -> tuple[Array, Array]:
    """Return the decoded strings among JSON values, and the numbers among them as text."""
    is_text = pc.starts_with(cells, '"')
    numbers = pc.if_else(is_text, None, cells).cast(pa.string())
    if not pc.all(pc.match_substring_regex(numbers, casting.NUMBER), min_count=0).as_py():
        raise ValueError("it is neither text nor a number")
    return _texts(pc.if_else(is_text, cells, None)), numbers


_text_decoder = msgspec.json.Decoder(str)


def _nested_column(raws: Raws, kind: FieldType, unit: str) -> Array:
    decode = _decoder(kind).decode
    values = [None if raw is None else _decoded(decode(raw), kind) for raw in raws]
    target = arrow_type(kind, lambda part: pa.binary() if _is_raw(part) else arrow_type(part))
    column: Array = pa.array(values, target)
    kinds = casting.leaf_kinds(column.type, kind)

    def parsed(leaf: Array) -> Array:
        leaf_kind = next(kinds)
        return _column(leaf.to_pylist(), leaf_kind, unit) if _is_raw(leaf_kind) else leaf

    column = rebuilt(column, parsed)
    for raw in raws:
        if raw is not None and raw.count(b":") > 1:
            check_names(raw)
    return column


def check_names(body: bytes) -> None:
    """Check that no JSON object has a name twice. Raises ValueError if one has."""
    json.loads(body, object_pairs_hook=check_unique, parse_int=len, parse_float=len)


def _is_raw(kind: FieldType) -> bool:
    """Return whether values of the type inside nested ones stay JSON until all are converted."""
    others = (*FLOATS, Primitive.DATE, Primitive.TIME, Primitive.UUID, *TIMESTAMPS)
    return isinstance(kind, DecimalType) or kind in others


def _decoded(value: Any, kind: FieldType) -> object:
    """Return a decoded value as Arrow takes it, with JSON where the type `_is_raw`."""
    if _is_raw(kind):
        raw = None if value is None else bytes(value)
        return None if raw == _NULL else raw
    match kind, value:
        case ListType(element=element), list():
            return [_decoded(item, element) for item in value]
        case MapType(), dict() | list():
            entries = _entries(value, kind)
            return [(_decoded(key, kind.key), _decoded(item, kind.value)) for key, item in entries]
        case StructType(members=members), msgspec.Struct():
            items = zip(members, msgspec.structs.astuple(value), strict=True)
            cells = {member.name: _decoded(item, member.type) for member, item in items}
            for member in members:
                if not member.nullable and cells[member.name] is None:
                    raise ValueError(f"{member.name!r} has no value in it, and cannot be null")
            return cells
    return value


def _entries(value: Any, kind: MapType) -> Iterator[tuple[Any, Any]]:
    """Yield the keys and values of a map; the names of a JSON object are keys, written as text."""
    if isinstance(value, list):
        yield from value
        return
    for name, item in value.items():
        yield (_written(name) if _is_raw(kind.key) else name), item


def _written(name: str) -> bytes:
    return name.encode() if re.fullmatch(casting.NUMBER, name) else msgspec.json.encode(name)


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
    """Return the decoder of one JSON value of a nested type; what `_is_raw` stays JSON.

    Threads that call this at the same time may each make a decoder, with classes of its own: so no
    thread uses a class that another one is still preparing (see `stored.decoding`).
    """
    return msgspec.json.Decoder(_python_type(kind))


def _or_null(kind: FieldType) -> Any:
    target = _python_type(kind)
    return target if target is msgspec.Raw else target | None


def _python_type(kind: FieldType) -> Any:
    if _is_raw(kind):
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
            absent = msgspec.Raw(_NULL) if _is_raw(member.type) else None
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
    Raises RefusedSourceError: a value does not fit its column; the message names the row, from 1.
    """
    place = casting.rows_after(first)
    columns = [python_column([row.get(f.name) for row in rows], f, place) for f in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def python_column(values: list[object], field: Field, place: Callable[[int], str]) -> Array:
    """Return values as a column. Raises RefusedSourceError: one does not fit; names its `place`."""
    return casting.convert(values, field, place, lambda cells: _array(cells, field.type))


def _array(values: Sequence[object], kind: FieldType) -> Array:
    plain = [None if value is None else _plain(value, kind) for value in values]
    column: Array = pa.array(plain, arrow_type(kind))
    for leaf in leaves(column):
        casting.check_years(leaf)  # a zone takes the first and last hours of Python beyond them
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
    # an array of numpy; times of nanoseconds, and durations, would become plain numbers
    kind = str(getattr(value, "dtype", ""))
    if hasattr(value, "tolist") and not kind.endswith(("64[ns]", "64[ps]")):
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
        number = _unboxed(value)
        try:
            whole = index(number)
        except TypeError:
            raise _mistyped(value) from None
        if isinstance(number, bool):
            raise _mistyped(value)
        if not least <= whole <= most:
            raise ValueError(f"not in range: {least} to {most}")
        return whole

    return plain


def _double(value: object) -> float:
    plain = _unboxed(value)
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


def _as_it_is(*kinds: type, but: tuple[type, ...] = ()) -> Callable[[object], object]:
    """Return what takes values of some types of Python, `but` those of others."""

    def plain(value: object) -> object:
        if isinstance(value, kinds) and not isinstance(value, but):
            return value
        raise _mistyped(value)

    return plain


def _boolean(value: object) -> bool:
    if isinstance(plain := _unboxed(value), bool):
        return plain
    raise _mistyped(value)


def _document(value: object) -> str:
    """Return JSON text of a value; text is JSON already."""
    text = value if isinstance(value, str) else _json.encode(_json_value(value, 0)).decode()
    return document(text.encode()).decode()


_json = msgspec.json.Encoder()


def _json_value(value: object, depth: int) -> object:
    if depth > MAX_DEPTH:
        raise ValueError(f"the document is nested deeper than {MAX_DEPTH}")
    match value := _unboxed(value):
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
    return [_json_value(part, depth + 1) for part in _items(value)]


def _timestamp(kind: Primitive) -> Callable[[object], int]:
    def count(value: object) -> int:
        if not isinstance(value, dt.datetime):
            raise _mistyped(value)
        return exact_count(value, kind)

    return count


def _clock(value: object) -> dt.time:
    if isinstance(value, dt.time) and value.tzinfo is None:
        return value
    raise _mistyped(value)


def _decimal(value: object) -> Decimal:
    number = Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(number, Decimal):
        raise _mistyped(value)
    if not number.is_finite():
        raise ValueError("the decimal is not finite")
    return number


def _unboxed(value: Any) -> Any:
    """Return a single number or truth value of numpy as Python's, and all else as it is."""
    is_numpy = type(value).__module__ == "numpy" and value.ndim == 0
    return value.item() if is_numpy and value.dtype.kind in "biuf" else value


def _mistyped(value: object) -> ValueError:
    return ValueError(f"the value is of the type {type(value).__name__}")


_PRIMITIVES: dict[Primitive, Callable[[object], object]] = {
    Primitive.INT: _whole_number(32),
    Primitive.LONG: _whole_number(64),
    Primitive.FLOAT: _single,
    Primitive.DOUBLE: _double,
    Primitive.BOOLEAN: _boolean,
    Primitive.STRING: _as_it_is(str),
    Primitive.BYTES: _as_it_is(bytes, bytearray, memoryview),
    Primitive.DATE: _as_it_is(dt.date, but=(dt.datetime,)),
    Primitive.TIME: _clock,
    Primitive.UUID: uuid_bytes,
    Primitive.DYNAMIC: _document,
    **{kind: _timestamp(kind) for kind in TIMESTAMPS},
}


_HINT = "keys are stored in memory and in every index: put long texts in a value column"


def with_fitting_keys(
    batches: Iterable[pa.RecordBatch], schema: Schema
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the rows of a file as long as their row keys are not too large.
    Raises RefusedSourceError: one is; says which row, and the column that takes most of its key.
    """
    before = 0
    for batch in batches:
        sizes = {f.name: _sizes(batch.column(f.name), f.type) for f in schema.row_keys}
        if sum(pc.max(each).as_py() or 0 for each in sizes.values()) > MAX_KEY_BYTES:
            _check_keys(sizes, before)
        before += batch.num_rows
        yield batch


def _check_keys(sizes: Mapping[str, Array], before: int) -> None:
    nothing: Any = pa.scalar(0, pa.int64())  # sums are wider than lengths
    total: Any = reduce(pc.add, sizes.values(), nothing)

    def refusal(row: int) -> RefusedSourceError:
        longest = max(sizes, key=lambda name: sizes[name][row].as_py())
        return RefusedSourceError(
            f"row {before + row + 1}, column {longest!r}: the row key takes "
            f"{total[row].as_py():,} bytes, and may take {MAX_KEY_BYTES:,}",
            hint=_HINT,
        )

    too_large: Any = pc.greater(total, pa.scalar(MAX_KEY_BYTES, pa.int64()))
    refuse_rows(pc.indices_nonzero(too_large).to_pylist(), refusal)


def _sizes(column: Array, kind: object) -> Array:
    """Return the bytes of each part as `schema.schema` counts them."""
    if kind in (Primitive.STRING, Primitive.BYTES):
        lengths: Array = pc.call_function("binary_length", [column])
        return lengths
    size_bytes = UUID_BYTES if kind is Primitive.UUID else 8
    return pa.repeat(pa.scalar(size_bytes, pa.int64()), len(column))
