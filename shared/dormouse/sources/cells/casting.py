"""Cast columns of ingested files to columns of the table, exactly, or
refuse the file with row and reason.

Used by the readers of all formats. Error messages are stored and shown where rows are not, and are
read by people who may not see rows. They name columns of the table, positions in the file and
types, and never a value of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from dormouse.arrow.decimals import parse_decimals
from dormouse.arrow.plain import LISTS, leaves, rebuilt
from dormouse.arrow.types import (
    MAX_DECIMAL_DIGITS,
    Array,
    arrow_schema,
    arrow_type,
    nulls,
    widest_decimal,
)
from dormouse.errors import InvariantError, RefusedSourceError
from dormouse.schema.schema import (
    DecimalType,
    Field,
    FieldType,
    ListType,
    MapType,
    Primitive,
    Schema,
    StructType,
)
from dormouse.schema.type_text import show_type
from dormouse.schema.types import UNITS, UUID_BYTES, contains_type
from dormouse.sources.cells.text_cells import check_years, from_unit_count, parse_uuids

EXPECTED_FORMS: dict[FieldType, str] = {
    Primitive.INT: "a whole number of 32 bits",
    Primitive.LONG: "a whole number of 64 bits",
    Primitive.STRING: "text in UTF-8",
    Primitive.BYTES: "bytes in base64",
    Primitive.TIMESTAMP: "an ISO 8601 time, in UTC without a zone, from year 0000 to 9999",
    Primitive.TIMESTAMP_NTZ: "an ISO 8601 time without a zone, from year 0000 to 9999",
    Primitive.TIMESTAMP_NS: "an ISO 8601 time, in UTC without a zone, from year 1678 to 2261",
    Primitive.TIMESTAMP_NTZ_NS: "an ISO 8601 time without a zone, from year 1678 to 2261",
    Primitive.DATE: "an ISO 8601 date such as 2024-02-29",
    Primitive.TIME: "an ISO 8601 time of day such as 12:30:45.123456",
    Primitive.UUID: "a UUID such as 123e4567-e89b-12d3-a456-426614174000",
}
"""What a value of each type looks like in a file, for errors that say no more."""
Cells = TypeVar("Cells", bound="Sequence[object] | Array")
Place = Callable[[int], str]
"""Returns the position in the file of a row of a batch, as text: its
line, or its row in a row group.
"""

_QUOTES_NOTHING = re.compile(
    r"Integer value -?\d+ (not in range: -?\d+ to -?\d+)|Casting from \S+ .+ (would lose data): "
    r"|Rescaling \w+ value (would cause data loss)|(Invalid UTF8 sequence)"
)
"""Error messages of Arrow; the groups are the parts without values."""
_COUNTED = 10
_WORDS = re.compile(r"[^\W\d][\w .()/%-]{0,63}")
"""Names of columns as people give them: no address, number or sentence."""


def check_file_columns(names: Sequence[str], schema: Schema, *, of: str = "the file") -> None:
    """Check that a file has the columns of the table, in any order;
    nullable columns may be missing.

    If none of the names is a column's, unknown columns are reported by their positions, because
    the names may be values: the file may have no header. So are names that are no words. `of` says
    what the columns belong to.

    Raises:
        RefusedSourceError: a column is missing, unknown, or present twice.
    """
    wanted = {f.name for f in schema.fields}
    columns_hint = "the table has: " + ", ".join(f.name for f in schema.fields)
    if unknown := [at for at, name in enumerate(names, start=1) if name not in wanted]:
        is_header = not {name.strip().lower() for name in names}.isdisjoint(map(str.lower, wanted))
        shown = [
            repr(name) if is_header and _WORDS.fullmatch(name := names[at - 1]) else str(at)
            for at in unknown[:_COUNTED]
        ]
        which = f"column{'s'[: len(unknown) > 1]} {', '.join(shown)}"
        more = f" and {len(unknown) - _COUNTED} more" if len(unknown) > _COUNTED else ""
        fates = [
            f"{name!r}: {fate}"
            for name in names
            if name not in wanted and (fate := schema.explain_former_name(name))
        ]
        known = f" ({'; '.join(fates)})" if fates else ""
        raise RefusedSourceError(
            f"the table has no {which}{more} of {of}{known}", hint=columns_hint
        )
    counts = Counter(names)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise RefusedSourceError(f"{of} has {_quoted(twice)} more than once")
    required = [f.name for f in schema.fields if not f.nullable]
    if missing := [name for name in required if name not in counts]:
        raise RefusedSourceError(f"the file has no {_quoted(missing)}", hint=columns_hint)


def check_nulls(column: Array, field: Field, place: Place) -> None:
    """Check that a column that must not have nulls has none.

    Raises:
        RefusedSourceError: it has nulls; the message says where the first one is.
    """
    if field.nullable or not column.null_count:
        return
    row = pc.index(column.is_null(), True).as_py()
    raise cell_refusal(place(row), field, "there is no value, and the column cannot be null")


def convert(cells: Cells, field: Field, place: Place, build: Callable[[Cells], Array]) -> Array:
    """Return ``build(cells)``, or find the first cell for which it fails and refuse the file.

    Raises:
        RefusedSourceError: a cell is not a value of the field's type; the message says which cell.
    """
    try:
        return build(cells)
    except pa.ArrowNotImplementedError as error:
        raise unreadable(f"column {field.name!r} as {show_type(field.type)}") from error
    except (pa.ArrowException, ValueError, OverflowError):
        at = _first_bad(cells, build)
    try:
        build(cells[at : at + 1])  # type: ignore[arg-type]  # a slice is of the same type
    except (pa.ArrowException, ValueError, OverflowError) as error:
        reason = f"the value is not of type {show_type(field.type)}"
        raise cell_refusal(
            place(at), field, reason, describe_without_values(error, field.type)
        ) from error
    raise InvariantError(f"column {field.name!r} fails as a whole, but none of its cells does")


def convert_batch(
    batch: pa.RecordBatch,
    schema: Schema,
    place: Place,
    converter: Callable[[Field], Callable[[Array], Array]],
) -> pa.RecordBatch:
    """Return a batch of a file as rows of the table; columns that the file lacks are null.

    `converter` returns what converts the cells of a field.

    Raises:
        RefusedSourceError: a cell cannot be converted, or is null in a required column.
    """

    def column(field: Field) -> Array:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            return nulls(batch.num_rows, field.type)
        cells = batch.column(at)
        check_nulls(cells, field, place)
        return convert(cells, field, place, converter(field))

    columns = [column(field) for field in schema.fields]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def cell_refusal(place: str, field: Field, reason: str, hint: str = "") -> RefusedSourceError:
    """Return the error for a cell of a column of the table."""
    return RefusedSourceError(f"{place}, column {field.name!r}: {reason}", hint=hint)


def unreadable(what: str) -> RefusedSourceError:
    """Return the error for what a library does not implement, which is no fault of the data."""
    return RefusedSourceError(
        f"{what} cannot be read: a library does not implement that",
        hint="convert the column to another type where it is written: to decimal(38,0) or text if "
        "it has integers of 128 bits",
    )


def _first_bad(cells: Cells, build: Callable[[Cells], Array]) -> int:
    """Return the index of a cell for which `build` fails, by bisection."""
    low, high = 0, len(cells)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            build(cells[low:middle])  # type: ignore[arg-type]  # a slice is of the same type
        except (pa.ArrowException, ValueError, OverflowError):
            high = middle
        else:
            low = middle
    return low


def can_cast(source: pa.DataType, kind: FieldType, unit: str = "") -> bool:
    """Return whether values of an Arrow type can become values of `kind` with the same meaning.

    Integers can become times or dates if the `unit` that they count is known.
    """
    if types.is_null(source):
        return True
    if types.is_integer(source) and unit and kind in UNITS[unit]:
        return True
    match source:
        case pa.DictionaryType() | pa.RunEndEncodedType():
            return can_cast(source.value_type, kind, unit)
        case pa.BaseExtensionType(extension_name=name) if name in _EXTENSIONS:
            return kind in _EXTENSIONS[name]
        case pa.BaseExtensionType(extension_name="arrow.opaque", storage_type=storage):
            # numbers of PostgreSQL, which has more digits than any decimal
            is_number = isinstance(kind, DecimalType) and _is_text(storage)
            return is_number or can_cast(storage, kind, unit)
        case pa.BaseExtensionType():
            return can_cast(source.storage_type, kind, unit)
    return _can_cast_plain(source, kind)


def _can_cast_plain(source: pa.DataType, kind: FieldType) -> bool:
    match kind:
        case ListType(element=element):
            return isinstance(source, LISTS) and can_cast(source.value_type, element)
        case MapType(key=key, value=value):
            return (
                isinstance(source, pa.MapType)
                and can_cast(source.key_type, key)
                and can_cast(source.item_type, value)
            )
        case StructType():
            return isinstance(source, pa.StructType) and _can_cast_members(source, kind)
        case DecimalType():
            if types.is_integer(source):
                return kind.scale == 0
            if not isinstance(source, _DECIMALS):
                return False
            digits: int = source.precision - source.scale + kind.scale
            return digits <= MAX_DECIMAL_DIGITS
        case Primitive():
            return any(accepts(source) for accepts in _ACCEPTED[kind])


def _can_cast_members(source: pa.StructType, kind: StructType) -> bool:
    wanted = {member.name: member for member in kind.members}
    names = [field.name for field in source]
    required = {member.name for member in kind.members if not member.nullable}
    return (
        len(set(names)) == len(names)
        and required <= set(names) <= wanted.keys()
        and all(can_cast(field.type, wanted[field.name].type) for field in source)
    )


def cast(column: Array, kind: FieldType, unit: str = "") -> Array:
    """Cast a plain column to the Arrow type of `kind`.

    Raises:
        ArrowInvalid: a value would change.
        ValueError: a time is beyond the years 0 to 9999, or a member of a struct has no value.
    """
    if types.is_integer(column.type) and unit and kind in UNITS[unit]:
        return from_unit_count(column, kind, unit)
    wanted = arrow_type(kind)
    is_parsed = contains_type(kind, DecimalType) or contains_type(kind, Primitive.UUID)
    if not column.type.equals(wanted) and is_parsed:
        kinds = _leaf_kinds(column.type, kind)
        column = rebuilt(column, lambda leaf: _parsed(leaf, next(kinds)))
        column = column.cast(arrow_type(kind, widest_decimal))
    result = column if column.type.equals(wanted) else column.cast(wanted)
    result.validate(full=True)  # find invalid UTF-8, which would break readers
    for leaf in leaves(result):
        check_years(leaf)
    if contains_type(kind, StructType):
        _check_members(result, kind)
    return result


def _leaf_kinds(found: pa.DataType, kind: FieldType) -> Iterator[FieldType]:
    """Yield what the columns of single values in a column become, in the order of `leaves`."""
    match kind:
        case ListType(element=element) if isinstance(found, LISTS):
            yield from _leaf_kinds(found.value_type, element)
        case MapType(key=key, value=value) if isinstance(found, pa.MapType):
            yield from _leaf_kinds(found.key_type, key)
            yield from _leaf_kinds(found.item_type, value)
        case StructType(members=members) if isinstance(found, pa.StructType):
            wanted = {member.name: member.type for member in members}
            for field in found:
                yield from _leaf_kinds(field.type, wanted[field.name])
        case _:
            yield kind


def _parsed(leaf: Array, kind: FieldType) -> Array:
    """Return UUIDs and decimals of texts, and UUIDs of bytes; other columns as they are."""
    if _is_text(leaf.type) and kind is Primitive.UUID:
        return parse_uuids(leaf)
    if _is_text(leaf.type) and isinstance(kind, DecimalType):
        return parse_decimals(leaf.cast(pa.string()), kind)
    # within a struct, Arrow would check the bytes of null ones, too
    return leaf.cast(arrow_type(kind)) if kind is Primitive.UUID else leaf


def _check_members(cells: Array, kind: FieldType) -> None:
    """Check, at any depth, that struct members that must not be null
    have values. Raises ValueError.
    """
    match kind:
        case ListType(element=element):
            _check_members(cells.flatten(), element)  # type: ignore[attr-defined]  # a list
        case MapType(value=value):
            values = pa.ListArray.from_arrays(cells.offsets, cells.items)  # type: ignore[attr-defined]
            _check_members(values.flatten(), value)  # only those of a slice
        case StructType(members=members):
            present = cells.filter(cells.is_valid()).flatten()  # type: ignore[attr-defined]
            for member, values in zip(members, present, strict=True):
                if values.null_count and not member.nullable:
                    raise ValueError(f"{member.name!r} has no value in it, and cannot be null")
                _check_members(values, member.type)


def _has_no_zone(kind: pa.DataType) -> bool:
    return isinstance(kind, pa.TimestampType) and kind.tz is None


def _is_uuid_sized(kind: pa.DataType) -> bool:
    return bool(types.is_fixed_size_binary(kind)) and kind.byte_width == UUID_BYTES


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_narrow_float(kind: pa.DataType) -> bool:
    return bool(types.is_float16(kind) or types.is_float32(kind))


_EXTENSIONS: dict[str, tuple[Primitive, ...]] = {
    "arrow.uuid": (Primitive.UUID,),
    "arrow.json": (Primitive.STRING,),
    "arrow.bool8": (Primitive.BOOLEAN,),
}
"""The types that extension types of Arrow can become, by their storage."""
_DECIMALS = (pa.Decimal32Type, pa.Decimal64Type, pa.Decimal128Type, pa.Decimal256Type)
_INTEGERS = (types.is_integer,)
_ACCEPTED: dict[Primitive, tuple[Callable[[pa.DataType], bool], ...]] = {
    Primitive.INT: _INTEGERS,
    Primitive.LONG: _INTEGERS,
    Primitive.FLOAT: (types.is_integer, _is_narrow_float),
    Primitive.DOUBLE: (types.is_integer, types.is_floating),
    Primitive.BOOLEAN: (types.is_boolean,),
    Primitive.STRING: (_is_text,),
    Primitive.BYTES: (
        types.is_binary,
        types.is_large_binary,
        types.is_fixed_size_binary,
        types.is_binary_view,
    ),
    Primitive.TIMESTAMP: (types.is_timestamp,),
    Primitive.TIMESTAMP_NTZ: (_has_no_zone,),
    Primitive.TIMESTAMP_NS: (types.is_timestamp,),
    Primitive.TIMESTAMP_NTZ_NS: (_has_no_zone,),
    Primitive.TIME: (types.is_time,),
    Primitive.UUID: (
        _is_uuid_sized,
        _is_text,
        types.is_binary,
        types.is_large_binary,
        types.is_binary_view,  # Polars has no type of 16 bytes
    ),
    Primitive.DATE: (types.is_date,),
}


def _quoted(names: Sequence[str]) -> str:
    return ("column " if len(names) == 1 else "columns ") + ", ".join(map(repr, names))


def describe_without_values(error: BaseException, kind: FieldType) -> str:
    """Return the part of an error message that quotes no value, or
    else the expected form of a value.
    """
    if isinstance(error, pa.ArrowException):
        found = _QUOTES_NOTHING.match(str(error))
        if found:
            return str(next(filter(None, found.groups())))
        return f"expected: {form}" if (form := EXPECTED_FORMS.get(kind)) else ""
    text = str(error).partition("\n")[0]
    # msgspec quotes the member's name, which is text of the file
    return "a struct has an unknown member" if "unknown field" in text else text
