"""Turn change data, as Debezium and AWS DMS write it, into lines of rows with a column `_change`.

The lines that come in are messages, one on each line; those that go out are objects as ``JSON
lines`` of the table have them, with `_change` (insert, update or delete), and with the position of
the change in the column that orders the rows of a key. A line that is no change becomes none; a
change of a row key becomes two, a delete of the old key and the row.

Example, for a table with the row key `id`, ordered by `position`:
``{"op":"u","before":null,"after":{"id":1,"n":9},"source":{"sequence":"["7","12"]"}}`` becomes
``{"_change":"update","position":"00000000000000000007-00000000000000000012-2","id":1,"n":9}``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from dormouse.arrow.types import Array, arrow_schema
from dormouse.errors import RefusedSourceError
from dormouse.files.casting import Place, cell_refusal
from dormouse.files.change_values import (
    NULL,
    Cells,
    Convert,
    UnfitError,
    ValueSchema,
    cells_of,
    debezium_converter,
    dms_converter,
    is_left_out,
    may_leave_out,
)
from dormouse.files.rejects import refuse_rows
from dormouse.rows.aggregation import entombed
from dormouse.schema.schema import CHANGE, TOMBSTONE, Field, Schema
from dormouse.schema.types import Primitive
from dormouse.tables.properties import Properties

_READ, _DELETED_ROW, _WRITTEN = range(3)
"""The order of changes at one position. The first change after a snapshot can have the position of
that; and delete and create of a key that changed have one, and may be of one key here."""
FULL_HINT = "ALTER TABLE … REPLICA IDENTITY FULL in the source, and a new snapshot of the row"
_WHOLE_HINT = (
    "drop columns from the table that the source does not have any more; if it got the column "
    "later, cut the file at this line, and ingest the lines before it before you add the column"
)
_NAME_HINT = "rename it in the stream or in the table; latest_by names the one for positions"
_text = msgspec.json.Decoder(str)
_encode = msgspec.json.encode


class _Change(msgspec.Struct, frozen=True):
    """One change. `row` are its new values, and of a delete all that is known; `before` are old
    values as far as they are known. `position` has the same width for all changes of a source.
    """

    operation: str
    row: Cells
    before: Cells = {}  # noqa: RUF012  # each struct gets a dict of its own
    position: str = ""
    converters: Mapping[str, Convert] = {}  # noqa: RUF012  # likewise
    is_read: bool = False
    """Whether it was read from the table (a snapshot), and not from the log."""


class _Form(Protocol):
    def read(self, line: bytes) -> _Change | None:
        """Return the change of a message; None if it is none.

        Raises:
            UnfitError: it cannot be read, and why.
            DecodeError: it has another form.
        """


@dataclass(frozen=True, slots=True, order=True)
class Emptied:
    """That a source emptied its table: gone are the rows before a `position`; or if changes have
    none, those before a row of the files, by its number.
    """

    position: str
    row: int


class ChangeData:
    """Reads the change data of one table. `latest_by` is the column for positions, of type string;
    if it is empty, there are none. `defaults` are columns that files may lack. `emptied` is called
    each time the source emptied its table.
    """

    def __init__(
        self,
        form: str,
        schema: Schema,
        latest_by: str = "",
        defaults: Collection[str] = (),
        emptied: Callable[[Emptied], None] = lambda _: None,
    ) -> None:
        """Read messages of a form: ``debezium`` or ``dms``."""
        self._emptied, self._yielded, self._is_placed = emptied, 0, bool(defaults)
        self._latest_by = latest_by
        self._filled = {CHANGE.name, latest_by} if latest_by else {CHANGE.name}
        fields = [f for f in schema.fields if f.name not in self._filled]
        self._names = {f.name: _prefix(f.name) for f in fields if f.name not in defaults}
        self._keys = [f.name for f in schema.row_keys]
        self._form: _Form = (
            _Debezium(fields, latest_by) if form == "debezium" else _Dms(fields, latest_by)
        )

    def lines(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """Yield rows as JSON, for lines of a file, each with the number of its line.
        Raises RefusedSourceError: a line cannot be read; the message says which and why.
        """
        for number, line in lines:
            for row in self._rows(number, line):
                self._yielded += 1
                yield number, row

    def _rows(self, number: int, line: bytes) -> list[bytes]:
        try:
            is_null = len(line) < 100 and line.strip() == NULL
            change = None if is_null else self._form.read(line)
            return [] if change is None else self._flat(change)
        except UnfitError as error:
            column = f", column {error.column!r}" if error.column else ""
            raise RefusedSourceError(f"line {number}{column}: {error}", hint=error.hint) from error
        except RecursionError as error:
            raise RefusedSourceError(f"line {number} is nested too deep") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RefusedSourceError(
                f"line {number} is no message of change data: {error}",
                hint="each line holds one message as a JSON object",
            ) from error

    def _flat(self, change: _Change) -> list[bytes]:
        if change.operation == "truncate" and self._is_placed:
            raise UnfitError(
                "the source emptied its table (TRUNCATE), and the file's folder gives columns, by "
                "which other sources may have rows here",
                hint="delete the rows of the source, and ingest the file without this line",
            )
        if change.operation == "truncate":
            # a delete of all rows: one that is written at its position is later, as after a delete
            position = f"{change.position}-{_DELETED_ROW}" if self._latest_by else ""
            self._emptied(Emptied(position, self._yielded))
            return []
        if change.operation == "delete":
            return [self._tombstone(change, change.row)]
        row = self._row(change)
        if not change.before:
            return [row]
        keys = {k: change.before[k] for k in self._keys if k in change.before}
        before = {k: value for k, value in keys.items() if bytes(value) != NULL}
        if all(bytes(value) == bytes(change.row.get(k, NULL)) for k, value in before.items()):
            return [row]
        return [self._tombstone(change, {**change.row, **before}), row]

    def _row(self, change: _Change) -> bytes:
        row, converters = change.row, change.converters
        if not self._names.keys() <= row.keys():
            name = next(name for name in self._names if name not in row)
            raise UnfitError("the change does not say its value", hint=_WHOLE_HINT, column=name)
        for name in self._filled & row.keys():
            raise UnfitError(
                "the source has a column of this name too", hint=_NAME_HINT, column=name
            )
        for name in self._keys:
            if name in self._names and bytes(row[name]) == NULL:
                raise UnfitError("there is no value, and it is a row key", column=name)
        converted = {
            name: _converted(name, convert, cell)
            for name, convert in converters.items()
            if (cell := bytes(row.get(name, NULL))) != NULL
        }
        cells = self._head(change, change.operation, _READ if change.is_read else _WRITTEN)
        for name, value in row.items():
            cells += self._names.get(name) or _prefix(name), converted.get(name, value)
        return b"{%b}" % b"".join(cells)

    def _tombstone(self, change: _Change, row: Cells) -> bytes:
        cells = self._head(change, "delete", _DELETED_ROW)
        for name in self._keys:
            cell = bytes(row.get(name, NULL))
            if cell == NULL and name in self._names:
                raise UnfitError(
                    "the delete does not say its value, and it is a row key",
                    hint="row keys are columns of the source's primary key; or else: " + FULL_HINT,
                    column=name,
                )
            if cell != NULL:  # or the name of a folder says it
                convert = change.converters.get(name)
                cells += _prefix(name), cell if convert is None else _converted(name, convert, cell)
        return b"{%b}" % b"".join(cells)

    def _head(self, change: _Change, operation: str, rank: int) -> list[bytes | msgspec.Raw]:
        """Return the names and values that each row begins with."""
        head: list[bytes | msgspec.Raw] = [f'"{CHANGE.name}":"{operation}"'.encode()]
        if self._latest_by:
            head += _prefix(self._latest_by), f'"{change.position}-{rank}"'.encode()
        return head


def _prefix(name: str) -> bytes:
    return b",%b:" % _encode(name)


def _converted(name: str, convert: Convert, cell: bytes) -> bytes:
    try:
        return convert(cell)
    except UnfitError as error:
        raise UnfitError(str(error), hint=error.hint, column=name) from error
    except (msgspec.DecodeError, ValueError) as error:
        raise UnfitError("the value has another form", column=name) from error


def _old_cells(body: bytes) -> Cells:
    return {} if body in (b"", NULL) else cells_of(body, "old values")


# Debezium: envelopes, with and without the schema part, and rows that ExtractNewRecordState
# flattened.

_OPERATIONS = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}
_DELETED = "__deleted"
_ABSENT = msgspec.Raw(b"")
_FILE_NUMBER = re.compile(r"\.([0-9]{1,10})\Z")
_PAIR = re.compile(r'\[ *(?:null|"?([0-9]{1,20})"?) *, *"?([0-9]{1,20})"? *\]')
_MOST_POSITION, _MOST_ROW = 2**64 - 1, 2**31 - 1
_FORM_HINT = (
    "each line is the value of a message: an envelope, or a row that ExtractNewRecordState "
    "flattened with delete.tombstone.handling.mode=rewrite"
)
_POSITION_HINT = (
    "add.fields=op,source.sequence for PostgreSQL and op,source.file,source.pos,source.row for "
    "MariaDB and MySQL; or set latest_by to nothing: then the order of commits counts"
)
_HEARTBEAT = {"ts_ms", "ts_us", "ts_ns"}
_TRANSACTION = {"status", "id", "event_count", "data_collections"}


class _Source(msgspec.Struct, frozen=True):
    """Where a change was in the log of its source."""

    sequence: str | None = None
    file: str | None = None
    pos: int | None = None
    row: int | None = None

    def position(self) -> str:
        """Return the position as text in the order of changes. Raises UnfitError: it has none."""
        if self.sequence:
            return _sequence_text(self.sequence)
        match = _FILE_NUMBER.search(self.file or "")
        row = self.row or 0
        if match is None or self.pos is None:
            raise UnfitError(
                "its source has no position: sequence, or file and pos", hint=_POSITION_HINT
            )
        if not (0 <= self.pos <= _MOST_POSITION and 0 <= row <= _MOST_ROW):
            raise UnfitError("the position in its source is no position of a log")
        return f"{int(match[1]):010d}-{self.pos:020d}-{row:010d}"


class _Message(msgspec.Struct, frozen=True):
    """What is read of a message, if it is there: an envelope, what is around it, or a row; and what
    else there is in an envelope.
    """

    schema: msgspec.Raw = _ABSENT
    payload: msgspec.Raw = _ABSENT
    before: msgspec.Raw = _ABSENT
    after: msgspec.Raw = _ABSENT
    source: msgspec.Raw = _ABSENT
    op: msgspec.Raw = _ABSENT
    deleted: msgspec.Raw = msgspec.field(name=_DELETED, default=_ABSENT)
    transaction: msgspec.Raw = _ABSENT
    ts_ms: msgspec.Raw = _ABSENT
    ts_us: msgspec.Raw = _ABSENT
    ts_ns: msgspec.Raw = _ABSENT

    def check_once(self, line: bytes) -> None:
        """Check that no name is in a line twice. Raises UnfitError: one is; or uses escapes.

        What was read has all bytes of most lines, but for the name, quotes, colon and comma of each
        part: then there is no other. To decode the names takes longer than all else here.
        """
        parts = structs.astuple(self)
        if 1 + sum(map(len, parts)) + sum(compress(_NAME_BYTES, parts)) != len(line.strip()):
            cells_of(line, "message")


_NAME_BYTES = [len(field.encode_name) + len('"":,') for field in structs.fields(_Message)]
_message = msgspec.json.Decoder(_Message)
_source = msgspec.json.Decoder(_Source)
_schema = msgspec.json.Decoder(ValueSchema)


def _sequence_text(text: str) -> str:
    """Return the order of a change in PostgreSQL: the commit before it, then its own place.

    Without a commit before it, as in a first snapshot, its own place is taken for that: 0 would put
    a snapshot that is taken again before all other changes.
    """
    match = _PAIR.fullmatch(text)
    if match is None:
        raise UnfitError("the sequence in its source is not a pair of numbers")
    committed, own = match.groups()
    return f"{committed or own:0>20}-{own:0>20}"


class _Debezium:
    def __init__(self, fields: Collection[Field], latest_by: str) -> None:
        self._fields, self._names = fields, {f.name for f in fields}
        self._is_ordered = bool(latest_by)
        converters: Mapping[str, Convert] = self._converters(None)
        self._plain = converters
        self._schema, self._of_schema = (b"", False), converters

    def read(self, line: bytes) -> _Change | None:
        message, converters = _message.decode(line), self._plain
        is_flat = message.deleted is not _ABSENT  # of a table that may have columns of these names
        if message.schema is not _ABSENT and message.payload is not _ABSENT and not is_flat:
            message.check_once(line)
            schema, line = bytes(message.schema), bytes(message.payload)
            if line == NULL:
                return None
            message = _message.decode(line)
            converters = self._described(schema, message.deleted is not _ABSENT)
        if message.deleted is not _ABSENT:
            return self._flattened(line, bytes(message.deleted), converters)
        if message.op is not _ABSENT and message.source is not _ABSENT:
            message.check_once(line)
            return self._envelope(message, converters)
        _check_no_change(cells_of(line, "message"))
        return None

    def _envelope(self, message: _Message, converters: Mapping[str, Convert]) -> _Change | None:
        op, source = _text.decode(message.op), _source.decode(message.source)
        if op == "m":
            return None
        if op == "t":
            return _Change("truncate", {}, position=source.position() if self._is_ordered else "")
        operation = _operation(op)
        if operation == "delete":
            row = cells_of(bytes(message.before), "values before the delete (before)")
        else:
            after = bytes(message.after)
            row = cells_of(after, "new values (after)")
            _check_whole(row, after)
        old = _old_cells(bytes(message.before)) if operation == "update" else {}
        position = source.position() if self._is_ordered else ""
        return _Change(operation, row, old, position, converters, is_read=op == "r")

    def _flattened(self, line: bytes, deleted: bytes, converters: Mapping[str, Convert]) -> _Change:
        row, added = {}, {}
        for name, value in cells_of(line, "row").items():
            if name in self._names or not name.startswith("__"):
                row[name] = value
            if name.startswith("__"):
                added[name.removeprefix("__").removeprefix("source_")] = value
        source = _source.decode(
            b"{%b}"
            % b",".join(
                b'"%b":%b' % (name.encode(), added[name])
                for name in _Source.__struct_fields__
                if name in added
            )
        )
        op = _text.decode(added.get("op", b'""'))
        operation = _operation(op)
        if deleted.strip(b'"') != (b"true" if operation == "delete" else b"false"):
            raise UnfitError(f"{_DELETED} and __op contradict each other")
        if operation != "delete":
            _check_whole(row, line)
        position = source.position() if self._is_ordered else ""
        return _Change(operation, row, {}, position, converters, is_read=op == "r")

    def _described(self, schema: bytes, is_flat: bool) -> Mapping[str, Convert]:
        """Return the converters of a schema part, which is mostly that of the line before."""
        if (schema, is_flat) != self._schema:
            part = None if schema == NULL else _schema.decode(schema)
            self._of_schema = self._converters(part if is_flat else part and part.member("after"))
            self._schema = schema, is_flat
        return self._of_schema

    def _converters(self, part: ValueSchema | None) -> dict[str, Convert]:
        converters = {
            f.name: debezium_converter(f, part and part.member(f.name)) for f in self._fields
        }
        return {name: convert for name, convert in converters.items() if convert is not None}


def _operation(op: str) -> str:
    if op not in _OPERATIONS:
        raise UnfitError("its operation (op) is none of c, r, u, d, t and m", hint="add.fields=op")
    return _OPERATIONS[op]


def _check_whole(row: Cells, line: bytes) -> None:
    """Check that the source left no value out. Raises UnfitError if it did."""
    if not may_leave_out(line):
        return
    for name, raw in row.items():
        if is_left_out(bytes(raw)):
            raise UnfitError(
                "the source left the value out, as the update did not change it",
                hint=FULL_HINT,
                column=name,
            )


def _check_no_change(values: Mapping[str, msgspec.Raw]) -> None:
    """Check that a message is one that Debezium writes beside changes: a heartbeat, the begin or
    end of a transaction, a change of schemas.
    Raises UnfitError: it is something else.
    """
    names = values.keys()
    if names and names <= _HEARTBEAT:
        return
    if _TRANSACTION <= names <= _TRANSACTION | _HEARTBEAT:
        return
    if "tableChanges" in names and "source" in names:
        return
    if {"data", "metadata"} <= names or {"control", "metadata"} <= names:
        raise UnfitError("it is a message of AWS DMS", hint="set change_data=dms")
    raise UnfitError("it is no message of Debezium", hint=_FORM_HINT)


# AWS DMS: messages for Kinesis and Kafka; rows of its CSV and Parquet files have a column `Op`.

OPERATION = "Op"
"""The column of files that AWS DMS writes to S3: I, U or D."""
_SEQUENCE = re.compile(r"[0-9]{35}")
FIRST = "0" * 35
"""The position of what a full load has."""
_DMS_OPERATIONS = {"load": "insert", "insert": "insert", "update": "update", "delete": "delete"}
_SEQUENCE_HINT = (
    "add a column of this name to the task by a transformation rule, with the expression "
    "$AR_H_CHANGE_SEQ; or set latest_by to nothing: then the order of commits counts"
)


class _Metadata(msgspec.Struct, frozen=True, rename="kebab"):
    record_type: str
    operation: str


_metadata = msgspec.json.Decoder(_Metadata)


class _Dms:
    def __init__(self, fields: Collection[Field], latest_by: str) -> None:
        self._latest_by = latest_by
        converters = {f.name: dms_converter(f) for f in fields}
        self._converters = {name: each for name, each in converters.items() if each is not None}

    def read(self, line: bytes) -> _Change | None:
        values = cells_of(line, "message")
        if "metadata" not in values:
            hint = "set change_data=debezium" if "payload" in values or "op" in values else ""
            raise UnfitError("it is no message of AWS DMS: it has no metadata", hint=hint)
        metadata = _metadata.decode(values["metadata"])
        if metadata.record_type == "control":
            return self._emptied() if metadata.operation == "truncate-table" else None
        if metadata.record_type != "data" or metadata.operation not in _DMS_OPERATIONS:
            raise UnfitError("its operation is unknown: none of load, insert, update and delete")
        row = cells_of(bytes(values.get("data", b"")), "values (data)")
        before = _old_cells(bytes(values.get("before-image", b"")))
        position = self._position(row, metadata.operation) if self._latest_by else ""
        return _Change(_DMS_OPERATIONS[metadata.operation], row, before, position, self._converters)

    def _emptied(self) -> _Change:
        if self._latest_by:
            raise UnfitError(
                "the source emptied its table (TRUNCATE), and the message has no position",
                hint="empty the table (dormouse table reinitialise), and ingest what follows it",
            )
        return _Change("truncate", {})

    def _position(self, row: dict[str, msgspec.Raw], operation: str) -> str:
        """Take the change sequence out of a row; that of a full load is before all others."""
        raw = bytes(row.pop(self._latest_by, NULL))
        text = "" if raw == NULL else _text.decode(raw)
        if operation == "load" and not text:
            return FIRST
        if not _SEQUENCE.fullmatch(text):
            raise UnfitError(
                "it is no change sequence of 35 digits", hint=_SEQUENCE_HINT, column=self._latest_by
            )
        return text


def operations(cells: Array, place: Place) -> Array:
    """Return a column `Op` of AWS DMS (I, U, D) as one of `_change`.
    Raises RefusedSourceError: a cell is another one, or null; the message says its `place`.
    """
    letters = pa.array(["I", "U", "D"])
    indexes: Any = pc.index_in(cells.cast(pa.string()), value_set=letters, skip_nulls=True)
    if indexes.null_count:
        row = pc.index(indexes.is_null(), True).as_py()
        column = Field(OPERATION, Primitive.STRING)
        raise cell_refusal(place(row), column, "the operation is unknown: none of I, U and D")
    names: Array = pc.take(pa.array(["insert", "update", "delete"]), indexes)
    return names


# What rows of files and frames do to a table that keeps the latest ones: insert, update, delete.
#
# A column `_change` says it, or the form of the file, as that of the messages of `change_data`.


CHANGES = ("insert", "update", "delete")
_NO_ORDER = "it is no value by which rows are ordered, as NaN; or no change sequence of 35 digits"


@dataclass(frozen=True, slots=True)
class FileChanges:
    """How files and frames say what becomes of rows, in a table with this schema; `by` is its
    column `latest_by`, if it has one, and `form` its property `change_data`. `emptied` is called
    each time a message says that the source emptied its table; `placed` are columns whose values
    the folders of a file say, also of rows that delete.
    """

    schema: Schema
    by: str = ""
    form: str = ""
    emptied: Callable[[Emptied], None] = lambda _: None
    placed: Collection[str] = ()

    @property
    def added(self) -> tuple[Field, ...]:
        """The columns that files and frames may have besides those of the table."""
        is_dms = self.form == "dms"
        return (Field(OPERATION, Primitive.STRING, nullable=True), CHANGE) if is_dms else (CHANGE,)

    @property
    def file_schema(self) -> Schema:
        """The columns that files may have: a row that deletes needs only the keys and `by`."""
        is_ordered = self.form != "dms"  # of which a full load has no order
        values = (
            f if f.name == self.by and is_ordered else replace(f, nullable=True)
            for f in self.schema.values
        )
        return replace(self.schema, values=(*values, *self.added))

    def stored(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file or frame with `TOMBSTONE` in place of `CHANGE`; one of 0 is
        since the commit of its row.
        Raises RefusedSourceError: as `checked`.
        """
        schema = arrow_schema(self.schema.with_values(TOMBSTONE))
        for batch in self.checked(batches):
            deletes = _deletes(batch)
            rows = batch.drop_columns([field.name for field in self.added])
            rows = rows.append_column(TOMBSTONE.name, pa.nulls(batch.num_rows, pa.int64()))
            columns = entombed(rows, deletes, self.schema, self.by, 0).columns
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of a file or frame as they are; of AWS DMS, with `CHANGE` for `OPERATION`.
        Raises RefusedSourceError: a row does none of `CHANGES`; one that deletes has other values
        than it needs; or one of another kind lacks some. The message says which row, and why.
        """
        before = 0
        for batch in batches:
            if self.form == "dms":
                batch = self._with_operations(batch, before)  # noqa: PLW2901
            for name, wrong, reason in self._faults(batch):
                _refuse(name, wrong, reason, before)
            before += batch.num_rows
            yield batch

    def _with_operations(self, batch: pa.RecordBatch, before: int) -> pa.RecordBatch:
        """Return rows of AWS DMS with `CHANGE`, and with positions as its messages have them: rows
        of files say an operation, and of rows that they delete also what they were.
        """
        operation, said = batch.column(OPERATION), batch.column(CHANGE.name)
        is_message = pc.is_valid(said)
        if operation.null_count == batch.num_rows:  # messages, a full load, or read a second time
            change = pc.coalesce(said, pa.scalar("insert"))
        else:
            change = operations(operation, lambda row: f"row {before + row + 1}")
            _refuse(CHANGE.name, is_message, "the column Op says what the row does", before)
        deletes = pc.equal(change, pa.scalar("delete"))

        def column(name: str, cells: Any) -> Any:
            if name in (CHANGE.name, OPERATION):
                return change if name == CHANGE.name else pa.nulls(len(cells), cells.type)
            if name == self.by:
                rank = pc.if_else(deletes, pa.scalar("-1"), pa.scalar("-2"))
                nothing = pa.scalar(None, cells.type)
                is_load = pc.equal(change, pa.scalar("insert"))
                at = pc.if_else(pc.equal(cells, pa.scalar("", cells.type)), nothing, cells)
                at = pc.coalesce(at, pc.if_else(is_load, pa.scalar(FIRST, cells.type), nothing))
                at = pc.if_else(pc.match_substring_regex(at, "^[0-9]{35}$"), at, nothing)
                placed = pc.binary_join_element_wise(at, rank, "")
                return pc.if_else(is_message, cells, placed)
            is_key = name in {field.name for field in self.schema.keys}
            return cells if is_key else pc.if_else(deletes, pa.scalar(None, cells.type), cells)

        columns = [column(*each) for each in zip(batch.schema.names, batch.columns, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _faults(self, batch: pa.RecordBatch) -> Iterator[tuple[str, Array, str]]:
        """Yield columns with the rows that are wrong there, and why."""
        deletes, change = _deletes(batch), batch.column(CHANGE.name)
        is_change = pc.or_(pc.is_null(change), pc.is_in(change, pa.array(CHANGES)))
        yield CHANGE.name, pc.invert(is_change), f"it is none of {', '.join(CHANGES)}"
        for field in self.schema.values:
            cells = batch.column(field.name)
            if field.name == self.by:
                yield field.name, pc.is_null(cells, nan_is_null=True), _NO_ORDER
            elif field.name not in self.placed:
                filled = pc.and_(deletes, pc.is_valid(cells))
                yield field.name, filled, "a row that deletes has only the keys and latest_by"
            if not field.nullable and cells.null_count:
                missing = pc.and_(pc.invert(deletes), pc.is_null(cells))
                yield field.name, missing, "there is no value, and the column cannot be null"


def changes_in_files(schema: Schema, properties: Properties) -> FileChanges | None:
    """Return how files say what becomes of rows of a table; None if it keeps all rows."""
    if properties.keep == "all":
        return None
    return FileChanges(schema.opened, properties.latest_by, properties.change_data)


def _deletes(batch: pa.RecordBatch) -> Array:
    flags = pc.equal(batch.column(CHANGE.name), pa.scalar("delete"))
    return flags.fill_null(False)


def _refuse(column: str, wrong: Any, reason: str, before: int) -> None:
    refuse_rows(
        pc.indices_nonzero(wrong).to_pylist(),
        lambda row: RefusedSourceError(f"row {before + row + 1}, column {column!r}: {reason}"),
    )
