"""Parse JSON values into Arrow columns: the exact JSON form of each field type.

The objects of a struct have no names except those of its members; a nullable member may be missing.
Values without a JSON form are written as text: bytes in base64, times and dates in ISO 8601, floats
that are not finite as NaN, Infinity and -Infinity. Decimals are text or numbers of any length.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dormouse.arrow.decimals import parse_decimals
from dormouse.arrow.types import COUNTS, Array, arrow_type
from dormouse.schema.schema import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
)
from dormouse.schema.types import TIMESTAMPS
from dormouse.sources.cells.text_cells import (
    NUMBER,
    bytes_contain,
    parse_base64,
    parse_booleans,
    parse_clocks,
    parse_floats,
    parse_integers,
    parse_times,
    parse_uuids,
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
        case Primitive.BYTES:
            return parse_base64(_texts(cells))
        case Primitive.TIME:
            return parse_clocks(_texts(cells))
        case Primitive.UUID:
            return parse_uuids(_texts(cells))
        case Primitive():
            return parse_times(*_apart(cells), kind, unit)
        case DecimalType():
            return parse_decimals(pc.coalesce(*_apart(cells)), kind)


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
    found: dict[FieldType, list[bytes | None]] = defaultdict(list)
    for value in values:
        _gather(value, kind, found)
    leaves = {leaf: iter(_plain(_column(raws, leaf, unit), leaf)) for leaf, raws in found.items()}
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


def _gather(value: Any, kind: FieldType, found: dict[FieldType, list[bytes | None]]) -> None:
    """Collect the values of leaves, in the order in which `_filled` puts them back."""
    if _is_leaf(kind):
        raw = None if value is None else bytes(value)
        found[kind].append(None if raw == _NULL else raw)
        return
    match kind, value:
        case _, None:
            return
        case ListType(element=element), list():
            for item in value:
                _gather(item, element, found)
        case MapType(), dict() | list():
            for key, item in _entries(value, kind):
                _gather(key, kind.key, found)
                _gather(item, kind.value, found)
        case StructType(members=members), msgspec.Struct():
            for member, item in zip(members, msgspec.structs.astuple(value), strict=True):
                if not member.nullable and _is_leaf(member.type) and bytes(item) == _NULL:
                    raise ValueError(f"{member.name!r} has no value in it, and cannot be null")
                _gather(item, member.type, found)


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


def _plain(column: Array, kind: FieldType) -> list[Any]:
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
    wanted = _python_type(kind)
    return wanted if wanted is msgspec.Raw else wanted | None


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
