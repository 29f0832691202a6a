"""Table schemas and columns as Arrow types."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import pyarrow as pa

from dormouse.errors import CorruptDataError, InvalidRequestError, UnavailableError
from dormouse.schema.evolution import becomes, is_same, parts_of
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import (
    TIMESTAMPS,
    UUID_BYTES,
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Primitive,
    StructType,
    show_type,
)

_PRIMITIVES: dict[Primitive, pa.DataType] = {
    Primitive.INT: pa.int32(),
    Primitive.LONG: pa.int64(),
    Primitive.FLOAT: pa.float32(),
    Primitive.DOUBLE: pa.float64(),
    Primitive.BOOLEAN: pa.bool_(),
    Primitive.STRING: pa.string(),
    Primitive.BYTES: pa.binary(),
    Primitive.TIMESTAMP: pa.timestamp("us", "UTC"),
    Primitive.TIMESTAMP_NTZ: pa.timestamp("us"),
    Primitive.TIMESTAMP_NS: pa.timestamp("ns", "UTC"),
    Primitive.TIMESTAMP_NTZ_NS: pa.timestamp("ns"),
    Primitive.DATE: pa.date32(),
    Primitive.TIME: pa.time64("us"),
    Primitive.UUID: pa.binary(UUID_BYTES),
    Primitive.DYNAMIC: pa.large_string(),  # no other type of a table is one
}
COUNTS: dict[FieldType, pa.DataType] = {
    Primitive.DATE: pa.int32(),
    Primitive.TIME: pa.int64(),
    **dict.fromkeys(TIMESTAMPS, pa.int64()),
}
"""The integers that times and dates are in memory. Arrow's range of years is larger than Python's,
so columns are converted to Python values by way of them."""
Array: TypeAlias = "pa.Array[Any]"
Scalar: TypeAlias = "pa.Scalar[Any]"


MAX_DECIMAL_DIGITS = 76
"""The digits of Arrow's widest decimal type."""


def widest_type(kind: Primitive | DecimalType) -> pa.DataType:
    """Return the intermediate type for casts to a decimal type with more digits after the point, or
    else the Arrow type of `kind`.

    Arrow checks the precision of the result, but not whether multiplying by a power of ten has
    overflowed (seen in 26.0: '11' as decimal(38, 38) becomes 0.79…). With 76 digits it does not
    overflow.
    """
    if isinstance(kind, DecimalType):
        return pa.decimal256(MAX_DECIMAL_DIGITS, kind.scale)
    return _PRIMITIVES[kind]


def _single_type(kind: Primitive | DecimalType) -> pa.DataType:
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return _PRIMITIVES[kind]


def arrow_type(
    kind: FieldType, of_single: Callable[[Primitive | DecimalType], pa.DataType] = _single_type
) -> pa.DataType:
    """Return the Arrow type that columns of type `kind` have in shards and batches.

    `of_single` returns the Arrow type of single values.
    """
    match kind:
        case ListType(element=element):
            return pa.list_(arrow_type(element, of_single))
        case MapType(key=key, value=value):
            return pa.map_(arrow_type(key, of_single), arrow_type(value, of_single))
        case StructType(members=members):
            # Nulls in members are checked at ingest, and not declared here: where a struct
            # is null, DataFusion leaves null members, which a Parquet writer would refuse.
            return pa.struct([pa.field(m.name, arrow_type(m.type, of_single)) for m in members])
    return of_single(kind)


@lru_cache(maxsize=64)
def arrow_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema of a table's batches: its columns in order, and which may be null."""
    return pa.schema(
        [pa.field(f.name, arrow_type(f.type), nullable=f.nullable) for f in schema.fields]
    )


@lru_cache(maxsize=256)
def columns_schema(schema: Schema, columns: tuple[str, ...]) -> pa.Schema:
    """Return the Arrow schema of some columns of a table, in their order."""
    return pa.schema([arrow_schema(schema).field(name) for name in columns])


@lru_cache(maxsize=64)
def frame_schema(stored: pa.Schema) -> pa.Schema:
    """Return the schema in which programs get columns of `stored` types.

    They differ for UUIDs, at any depth, and for JSON documents. Shards have 16 bytes, which the
    kernels of Arrow compare and sort; programs get Arrow's types of UUIDs and of JSON, which
    libraries know as such.
    """
    return json_schema(pa.schema([f.with_type(_with_uuids(f.type, pa.uuid())) for f in stored]))


def json_schema(stored: pa.Schema) -> pa.Schema:
    """Return a schema in which columns of JSON documents are marked as such, as in Parquet."""
    is_json = pa.types.is_large_string
    return pa.schema([f.with_type(pa.json_()) if is_json(f.type) else f for f in stored])


def pandas_schema(stored: pa.Schema) -> pa.Schema:
    """Return the schema in which Arrow converts columns of `stored` types to pandas.

    UUIDs within lists, maps and structs are plain bytes: it cannot convert lists of any other type
    of UUIDs (seen in 26.0). JSON documents are text.
    """
    schema = frame_schema(stored)
    flat = (pa.uuid() if f.type == pa.uuid() else _with_uuids(f.type, pa.binary()) for f in schema)
    plain = (pa.string() if isinstance(kind, pa.JsonType) else kind for kind in flat)
    return pa.schema([f.with_type(kind) for f, kind in zip(schema, plain, strict=True)])


def _with_uuids(kind: pa.DataType, uuid: pa.DataType) -> pa.DataType:
    """Return a type with `uuid` in place of each type of UUIDs in it."""
    is_uuid = pa.types.is_fixed_size_binary
    return with_leaves(kind, lambda k: uuid if is_uuid(k) or isinstance(k, pa.UuidType) else k)


def with_leaves(kind: pa.DataType, of: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type of the same lists, maps and structs, of what `of` makes of other types."""
    if isinstance(kind, pa.MapType):
        return pa.map_(with_leaves(kind.key_type, of), with_leaves(kind.item_type, of))
    if isinstance(kind, pa.ListType):
        return pa.list_(with_leaves(kind.value_type, of))
    if isinstance(kind, pa.StructType):
        return pa.struct([part.with_type(with_leaves(part.type, of)) for part in kind])
    return of(kind)


def nulls(rows: int, kind: FieldType) -> Array:
    """Return a column of `rows` nulls."""
    column: Array = pa.nulls(rows, arrow_type(kind))  # type: ignore[call-overload]  # any type will do
    return column


def of_shard(
    batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, int | str | None]
) -> pa.RecordBatch:
    """Return the columns of `schema` from a batch of a shard (`conform`); one that the shard does
    not have is one of its `constants`, if that is known.
    """
    for name in set(schema.names).difference(batch.schema.names) & constants.keys():
        same = pa.scalar(constants[name], schema.field(name).type)
        batch = batch.append_column(name, pa.repeat(same, batch.num_rows))
    return conform(batch, schema)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of `schema` from a batch that may have an older
    schema; a missing column is null.

    Its schema is exactly that, without ids of fields and with the names that Arrow has for parts of
    nested columns: DataFusion takes no batches whose schemas differ in these.
    Raises CorruptDataError: a missing column cannot be null.
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    arrays = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at >= 0:
            column = batch.column(at)
            is_same = column.type.equals(field.type, check_metadata=True)
            arrays.append(column if is_same else column.cast(field.type))
        elif field.nullable:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            raise CorruptDataError(f"a shard lacks the column {field.name!r}")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def halved(batch: pa.RecordBatch, size_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch in slices of at most `size_bytes`, or of one row."""
    if batch.num_rows > 1 and batch.nbytes > size_bytes:
        middle = batch.num_rows // 2
        yield from halved(batch.slice(0, middle), size_bytes)
        yield from halved(batch.slice(middle), size_bytes)
    else:
        yield batch


def gathered(
    batches: Iterable[pa.RecordBatch], rows: int, size_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in longer batches: each but the last has at least `rows`, or takes at
    least `size_bytes`.

    A batch costs Python as much time as copying thousands of rows.
    """
    pending: list[pa.RecordBatch] = []
    pending_rows = pending_bytes = 0
    for batch in batches:
        pending.append(batch)
        pending_rows += batch.num_rows
        pending_bytes += batch.nbytes
        if pending_rows >= rows or pending_bytes >= size_bytes:
            yield from _joined(pending)
            pending, pending_rows, pending_bytes = [], 0, 0
    if pending:
        yield from _joined(pending)


def _joined(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """Return the rows of several batches in one, or in as few as their texts can be in."""
    if len(batches) == 1:
        return batches
    return pa.Table.from_batches(batches).combine_chunks().to_batches()


# Find the columns of a shard by the ids of the table's fields, because the
# schema may have changed since.
#
# A shard has the columns that the table had when the shard was written, with the names of that
# time. The ids of the fields are stored in the file as Parquet field ids. Names do not identify a
# column: a name may have been dropped and used again for another column.

_FIELD_ID = b"PARQUET:field_id"


@lru_cache(maxsize=64)
def stored_schema(schema: Schema, *, plain: bool = False) -> pa.Schema:
    """Return ``arrow_schema(schema)`` with the field ids that are stored in Parquet files, for
    nested fields too; documents are marked as JSON, unless all is to be `plain`.
    """
    marked = arrow_schema(schema) if plain else json_schema(arrow_schema(schema))
    return pa.schema(
        [
            _with_ids(column, iter((field.id, *field.nested_ids)))
            for column, field in zip(marked, schema.fields, strict=True)
        ]
    )


def _with_ids(field: pa.Field[Any], ids: Iterator[int]) -> pa.Field[Any]:
    """Return an Arrow field with the next id as its own, and the ids after it for its parts."""
    own: dict[bytes | str, bytes | str] = {_FIELD_ID: str(next(ids)).encode()}
    kind = field.type
    if pa.types.is_list(kind):
        kind = pa.list_(_with_ids(kind.value_field, ids))
    elif pa.types.is_map(kind):
        key = _with_ids(kind.key_field, ids)
        kind = pa.map_(key, _with_ids(kind.item_field, ids))
    elif pa.types.is_struct(kind):
        kind = pa.struct([_with_ids(member, ids) for member in kind])
    return field.with_type(kind).with_metadata(own)


def present_fields(ids: Container[int], fields: Iterable[Field]) -> list[Field]:
    """Return the `fields` that a shard has, whose columns are of the fields `ids`.

    A field that the shard lacks was added to the table later: it is null in all rows of the shard.
    Raises UnavailableError: the shard lacks a field that cannot be null: it was dropped from the
    table after the schema was read.
    """
    present = []
    for field in fields:
        if field.id in ids:
            present.append(field)
        elif not field.nullable:
            raise UnavailableError(
                f"column {field.name!r} (id {field.id}) was dropped while the table was read",
                hint="try again; the table's current schema is used then",
            )
    return present


@dataclass
class Tally:
    """The number of rows that a step removed from a stream, counted by that step."""

    rows: int = 0


class RowCounter:
    """An iterator over batches that counts the rows returned so far in `rows`."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self.rows = 0
        self._batches = iter(batches)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.rows += batch.num_rows
        return batch


# The columns of a shard as the table has them now: a shard keeps the types of its time.
#
# Types have widened since, and members of structs were added, dropped and renamed
# (`schema.evolution`). Parts are found by their ids: what was added later is null.


def becoming(stored: Field, current: Field) -> Field:
    """Return a field as a shard has it, whose values become those of the same field in the table.
    Raises UnavailableError: they do not: the shard was written by a later schema.
    """
    if not becomes(stored, current):
        raise UnavailableError(
            f"column {current.name!r} became {show_type(stored.type)} while the table was read",
            hint="try again; the table's current schema is used then",
        )
    return stored


def evolved_rows(
    batch: pa.RecordBatch, stored: Mapping[str, Field], fields: Sequence[Field]
) -> pa.RecordBatch:
    """Return those of `fields` that a batch of a shard has, under their present names and in their
    present types. The columns of the batch are `stored`, in this order, by their present names.
    """
    by_name = {field.name: field for field in fields}
    if all(by_name[name] == then for name, then in stored.items()):
        return batch
    columns = [
        evolved(column, then, by_name[name])
        for column, (name, then) in zip(batch.columns, stored.items(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(stored))


def evolved(column: Array, stored: Field, current: Field) -> Array:
    """Return a column of a shard in its field's type now. Raises InvalidRequestError."""
    if is_same(stored, current):
        return column
    match current.type:
        case ListType() | MapType():
            return _evolved_entries(column, stored, current)
        case StructType():
            return _evolved_struct(column, stored, current)
    try:
        return column.cast(arrow_type(current.type))
    except pa.ArrowInvalid:  # the message quotes the value
        raise unfit_time() from None


def unfit_time() -> InvalidRequestError:
    """Return the error that nanoseconds cannot hold a time of an earlier type."""
    return InvalidRequestError(
        "a stored time is not in the years 1677 to 2262, which the nanoseconds that its column has "
        "now can hold",
        hint="it is of a version from before the alteration, or was ingested during it: restore "
        "the version before, or read other columns",
    )


def _evolved_entries(column: Any, stored: Field, current: Field) -> Array:
    """Return a column of lists or maps with other entries, which stay where they are."""
    pairs = zip(parts_of(stored), parts_of(current), strict=True)
    if isinstance(current.type, ListType):
        ((then, now),) = pairs
        entries = evolved(column.values, then, now)
        kind: pa.DataType = pa.list_(entries.type)
    else:
        both = zip((column.keys, column.items), pairs, strict=True)
        keys, items = (evolved(cells, then, now) for cells, (then, now) in both)
        fields = [pa.field("key", keys.type, nullable=False), pa.field("value", items.type)]
        entries = pa.StructArray.from_arrays([keys, items], fields=fields)
        kind = pa.map_(keys.type, items.type)
    result: Array = pa.Array.from_buffers(
        kind, len(column), column.buffers()[:2], column.null_count, column.offset, [entries]
    )
    return result


def _evolved_struct(column: Any, stored: Field, current: Field) -> Array:
    parts_by_id = {part.id: (place, part) for place, part in enumerate(parts_of(stored))}
    cells, parts = [], parts_of(current)
    for part in parts:
        if part.id in parts_by_id:
            place, then = parts_by_id[part.id]
            cells.append(evolved(column.field(place), then, part))
        else:
            cells.append(nulls(len(column), part.type))
    fields = [pa.field(part.name, each.type) for part, each in zip(parts, cells, strict=True)]
    mask = column.is_null() if column.null_count else None
    result: Array = pa.StructArray.from_arrays(cells, fields=fields, mask=mask)
    return result
