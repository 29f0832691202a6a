"""Read frames as rows of a table: whatever has the Arrow C stream or array interface.

Frames of Polars, DuckDB, pyarrow, nanoarrow and others are read through that interface alone, so
none of these libraries is imported here. A frame of pandas has two things that Arrow does not: an
index, and Python objects, which are read by the type of their column in the table. A frame is in
the hands of the caller, so errors may name its columns; they never quote its values.

A stream is read once. pyarrow's own do not say that they were read before: such a reader has no
rows, without an error, and one that was refused midway has those after the refusal. So a stream
without rows is refused, and so is one that was begun here and not read to its end.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeGuard
from weakref import WeakValueDictionary

import pyarrow as pa
from pyarrow import types

from dormouse.arrow.values import infer_columns
from dormouse.errors import InvalidRequestError
from dormouse.files.casting import Converter, can_cast, check_columns, rows_after
from dormouse.files.cells import python_column, with_fitting_keys
from dormouse.files.parquet_files import arrow_converter, convert_arrow
from dormouse.schema.schema import Field, FoundColumn, Schema

_INDEX = re.compile(r"__index_level_\d+__")
_SIZES = ("__len__", "num_rows", "shape", "count")
"""What frames have that can be read again: they know, or find out, how many rows they have."""
_TELLING = ("adbc_driver_manager", "arro3", "dormouse", "nanoarrow")
"""The libraries whose streams raise an error if they are read again."""
_CANNOT_EXPORT = (
    *(pa.ArrowException, ArithmeticError, AssertionError, AttributeError, LookupError),
    *(OSError, RuntimeError, TypeError, ValueError),
)
"""What libraries raise for what they cannot export."""
_CALLS = (
    *("toArrow", "collect", "to_dataframe", "compute", "to_frame", "fetch_record_batch"),
    *("to_arrow_table", "to_pyarrow_table", "to_arrow", "to_table"),
)
"""What makes a frame of lazy ones, single columns, cursors and data sets, the best first."""
_OTHER_FORMS = ("toArrow", "to_frame", "to_wkb")
"""Those of frames of Spark, single columns and geometries: they speak Arrow, but not all types."""
_begun: WeakValueDictionary[int, object] = WeakValueDictionary()
"""Streams that were begun and not read to their end, by their ids."""
_begun_slotted: dict[int, object] = {}
"""Those of them that no weak reference can remember: their classes have but slots."""


class ArrowStream(Protocol):
    """Rows that can be exported as a stream of Arrow batches."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the stream by the Arrow C stream interface."""


class ArrowArray(Protocol):
    """Rows that can be exported as one Arrow batch."""

    def __arrow_c_array__(self, requested_schema: object | None = None) -> object:
        """Export the batch by the Arrow C data interface."""


Frame = ArrowStream | ArrowArray
"""Rows of any library that speaks Arrow."""


def is_frame(value: object) -> TypeGuard[Frame]:
    """Return whether `value` can be read as rows."""
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def frame_columns(value: object) -> list[FoundColumn]:
    """Return the columns of a frame, or of an Arrow schema; a stream is not read.
    Raises InvalidRequestError: it is neither, or its library cannot convert it to Arrow.
    """
    own = value if _is_schema(value) else _schema_of(value)
    if _is_schema(own):
        try:
            schema = pa.schema(own)  # type: ignore[arg-type]  # it has the C schema interface
        except _CANNOT_EXPORT as error:
            raise _unreadable(value, error) from error
    elif is_frame(value):
        schema = frame_reader(value).schema
    else:
        raise InvalidRequestError(
            f"{type(value).__name__} has no Arrow schema",
            hint=how_to_frame(value) or "give a frame, an Arrow schema, or the path of a file",
        )
    _check_no_objects(value, schema)
    if index := [name for name in schema.names if _INDEX.fullmatch(name)]:
        raise InvalidRequestError(f"the frame has a column {_listed(index)}", hint=_INDEX_HINT)
    return list(infer_columns(schema, as_written=isinstance(value, pa.Schema)))


def _is_schema(value: object) -> bool:
    return isinstance(value, pa.Schema) or hasattr(value, "__arrow_c_schema__")


def _schema_of(frame: object) -> object:
    """Return the schema that a frame has in its library; None if it has none, or has it no more."""
    try:
        for name in ("collect_schema", "get_schema"):  # of lazy frames, and of streams of nanoarrow
            if hasattr(type(frame), name):
                return getattr(frame, name)()
        return getattr(frame, "schema", None)
    except _CANNOT_EXPORT:  # a released stream, for one; to read it says so
        return None


def how_to_frame(value: object, calls: Sequence[str] = _CALLS) -> str:
    """Return a hint at the call that makes a frame of an object; empty if none is known."""
    call = next((call for call in calls if hasattr(type(value), call)), "")
    return f"it becomes a frame by its {call}()" if call else ""


def frame_reader(frame: Frame, schema: Schema | None = None) -> pa.RecordBatchReader:
    """Return the rows of a frame as a stream of batches.

    With the `schema` of a table, Python objects of pandas become what it says where they can.

    Raises:
        InvalidRequestError: its library cannot convert it to Arrow, or it is no table.
        RefusedSourceError: Python objects are no values of their column; the message has the row.
    """
    if isinstance(frame, pa.RecordBatchReader):
        return frame
    pandas = sys.modules.get("pandas")
    try:
        if pandas is not None and isinstance(frame, pandas.DataFrame):
            reader = _pandas_table(frame, schema).to_reader()
        elif hasattr(frame, "__arrow_c_stream__"):
            reader = pa.RecordBatchReader.from_stream(frame)  # type: ignore[arg-type]
        else:
            batch = pa.record_batch(frame)
            reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except _CANNOT_EXPORT as error:
        raise _unreadable(frame, error) from error
    _check_no_objects(frame, reader.schema)
    return reader


def _unreadable(frame: object, error: Exception) -> InvalidRequestError:
    return InvalidRequestError(
        f"the {type(frame).__name__} cannot be read as Arrow batches{_reason(frame, error)}",
        hint=how_to_frame(frame, _OTHER_FORMS)
        or "a column holds values of one type, and a stream is read once; pyarrow.table(…) shows "
        "what it becomes",
    )


def _pandas_table(frame: Any, schema: Schema | None) -> pa.Table:
    """Return a frame of pandas with its index; an index of numbers without a name counts rows.

    pandas itself hands over whatever index is no range, so that it depended on the rows that a
    filter left.
    """
    index = frame.index
    counts_rows = index.nlevels == 1 and index.name is None and index.dtype.kind in "iu"
    objects = {name: column for name, column in frame.items() if column.dtype == object}
    if schema is None or not frame.columns.is_unique:
        table = pa.Table.from_pandas(frame, preserve_index=not counts_rows)
        if names := [str(name) for name, each in objects.items() if _guessed(each) is None]:
            raise InvalidRequestError(
                f"the frame has Python objects in column {_listed(names)}, which pandas would "
                "hand over as other values",
                hint="convert the column to a type of its own, such as datetime64[ns]",
            )
        return table
    fields = {field.name: field for field in schema.fields}
    objects = {name: _objects(objects[name], fields[name]) for name in objects.keys() & fields}
    others = frame.drop(columns=list(objects))
    table = pa.Table.from_pandas(others, preserve_index=not counts_rows)
    columns = dict(zip(table.column_names, table.columns, strict=True))
    return pa.table({**columns, **objects} if others.columns.is_unique else table)


def _objects(values: Any, field: Field) -> Any:
    """Return Python objects as Arrow takes them if that fits, and else as values of rows are read.

    Arrow knows no map by its values, no bytes that are UUIDs, and no integers of 65 bits.
    """
    try:
        column = _guessed(values)
    except _CANNOT_EXPORT:
        column = None  # what a row cannot have either is refused by its place
    if column is not None and can_cast(column.type, field.type, field.unit):
        return column
    return python_column(values.where(values.notna(), None).tolist(), field, rows_after(0))


def _guessed(values: Any) -> Any:
    """Return Python objects as Arrow takes them; None if it would change one.

    It cuts the clock of a time beside dates, drops zones and nanoseconds, and makes bytes of texts.
    """
    column = pa.array(values, from_pandas=True)
    if _is_exact(column.type) or all(map(_is_same, values, column.to_pylist())):
        return column
    return None


def _is_exact(kind: pa.DataType) -> bool:
    if kind.num_fields:
        return all(_is_exact(kind.field(at).type) for at in range(kind.num_fields))
    plain = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal)
    return any(is_one(kind) for is_one in (*plain, types.is_string, types.is_null))


def _is_same(original: Any, copy: object) -> bool:
    if isinstance(copy, list):
        is_typed = str(getattr(original, "dtype", "object")) != "object"  # an array of numpy
        return is_typed or all(map(_is_same, original, copy))
    if isinstance(copy, dict):
        return all(_is_same(original.get(name), value) for name, value in copy.items())
    return copy is None or bool(original == copy)


def read_frame(frame: Frame, schema: Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a frame as batches of the table; columns may have narrower types.

    Raises:
        RefusedSourceError: its columns or values do not fit the table; the message says which.
        InvalidRequestError: it cannot be read as Arrow, or is a stream that was read before.
    """
    reader = frame_reader(frame, schema)
    names = reader.schema.names
    hint = _INDEX_HINT if any(map(_INDEX.fullmatch, names)) else ""
    check_columns(names, schema, of="the frame", quotes_all=True, hint=hint)
    converter = arrow_converter(reader.schema, schema, of="the frame")
    return with_fitting_keys(_converted(_whole(frame, reader), schema, converter), schema)


def _is_silent_stream(frame: Frame) -> bool:
    """Return whether a frame may be a stream that says nothing when it is read again in part."""
    return (
        hasattr(frame, "__arrow_c_stream__")
        and type(frame).__module__.partition(".")[0] not in _TELLING
        and not any(hasattr(type(frame), size) for size in _SIZES)
    )


def _whole(frame: Frame, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a frame; a stream of which only some are taken counts as begun.
    Raises InvalidRequestError: it is a stream that was begun before or has no rows, or it fails.
    """
    is_silent = _is_silent_stream(frame)
    rows = 0
    if is_silent:
        _begin(frame)
    try:
        for batch in reader:
            rows += batch.num_rows
            yield batch
    except _CANNOT_EXPORT as error:
        raise InvalidRequestError(
            f"the {type(frame).__name__} failed after row {rows:,} with {type(error).__name__}; "
            "nothing of it was written",
            hint=how_to_frame(frame, _OTHER_FORMS)
            or "the error that caused this says why; a stream is read once: make it again",
        ) from error
    if is_silent:
        _begun.pop(id(frame), None)
        _begun_slotted.pop(id(frame), None)
        if not rows:
            raise _read_before(frame, "has no rows: it was read before, or is empty")


def _begin(frame: Frame) -> None:
    if _begun.get(id(frame), _begun_slotted.get(id(frame))) is frame:
        raise _read_before(frame, "was begun, and not read to its end")
    try:
        _begun[id(frame)] = frame
    except TypeError:
        _begun_slotted[id(frame)] = frame


def _read_before(frame: Frame, how: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the {type(frame).__name__} {how}",
        hint="a stream is read once: make it again, or read it into a table, which can be ingested "
        "as often as needed, and with no rows",
    )


def _check_no_objects(frame: object, schema: pa.Schema) -> None:
    """Refuse Python objects of Polars, which it exports as 8 bytes that are not their value."""
    addresses = [field.name for field in schema if field.type == pa.binary(8)]
    if not addresses:
        return
    own = frame if isinstance(frame, Mapping) else _schema_of(frame)
    if not isinstance(own, Mapping):
        return
    if objects := [name for name in addresses if str(own.get(name)) == "Object"]:
        raise InvalidRequestError(
            f"the frame has Python objects in column {_listed(objects)}, which Polars cannot "
            "hand over",
            hint="make texts or bytes of them: [str(value) for value in …] of UUIDs",
        )


def _converted(
    batches: Iterable[pa.RecordBatch], schema: Schema, converter: Converter
) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in batches:
        yield convert_arrow(batch, schema, rows_after(first), converter)
        first += batch.num_rows


_INDEX_HINT = (
    "that is the index of the frame: name it after a column with rename_axis, or drop it with "
    "reset_index(drop=True)"
)


def _listed(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:10]))
    return shown + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def _reason(frame: Any, error: Exception) -> str:
    """Return the columns that cannot be read, as far as they are known, and why; no value."""
    if re.search("_pl[iu]128", str(error)):
        own = frame if isinstance(frame, Mapping) else _schema_of(frame)
        kinds = own.items() if isinstance(own, Mapping) else ()
        wide = [name for name, kind in kinds if re.search(r"\bU?Int128\b", str(kind))]
        return (
            f": column {_listed(wide)} has integers of 128 bits, which Arrow does not have; cast "
            "them to Decimal(38, 0) or text"
        )
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(frame, pandas.DataFrame):
        return ""
    if twice := sorted({str(name) for name in frame.columns[frame.columns.duplicated()]}):
        return f": it has columns of one name: {_listed(twice)}"
    bad = [f"{name!r} of type {column.dtype}" for name, column in frame.items() if _fails(column)]
    return f": column {', '.join(bad[:10])}" if bad else ""


def _fails(column: Any) -> bool:
    try:
        pa.Table.from_pandas(column.to_frame(), preserve_index=False)
    except _CANNOT_EXPORT:
        return True
    return False
