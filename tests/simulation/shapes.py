"""The schemas of simulated tables, drawn for each run, and how rows lie in their columns.

A row is known by five things (`rows.Row`); every other cell of it follows from these. So what is
read can be held against what was dropped, cell by cell and bit by bit, whatever the schema.
"""

from __future__ import annotations

import io
import json
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from dormouse.arrow.types import arrow_schema
from dormouse.key_codec import show_part
from dormouse.keys import Key, KeyPart, KeyRange
from dormouse.schema.schema import CHANGE, TOMBSTONE, Schema
from dormouse.schema.types import (
    DecimalType,
    FieldType,
    KeyType,
    Primitive,
    decimal_count,
    from_decimal_count,
    parse_type,
)
from dormouse.sql.conditions import Literal, leaf_sql
from tests.simulation.rows import LETTERS, Kind, Row, entombed, kinds_of

FILES_MARKED = 60
"""How many files can be distinguished in summed rows: each has a hexadecimal digit of its own."""
_DIGITS_A_COLUMN = 15
_MARKS = tuple(f"m{n}" for n in range(FILES_MARKED // _DIGITS_A_COLUMN))
_MASK = 16**_DIGITS_A_COLUMN - 1
_MOST_PLACES = 16
"""Rows of one file have numbers below this."""
_PLAIN = frozenset({Primitive.INT, Primitive.LONG, Primitive.STRING, Primitive.BOOLEAN})

Cell = Callable[[Row], Any]


@dataclass(frozen=True, slots=True)
class ShownKey:
    """A key, and its form in requests."""

    key: Key
    shown: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type in the form of schemas, and what a row has in it."""

    name: str
    type: object
    cell: Cell
    nullable: bool = False

    def to_json(self) -> dict[str, object]:
        """Return the field in the JSON form of schemas."""
        body: dict[str, object] = {"name": self.name, "type": self.type}
        return {**body, "nullable": True} if self.nullable else body


@dataclass(frozen=True)
class Shape:
    """A schema, and which kinds of tables can have it.

    The letter is a row key, of type `letter`. It `grows` if a number that only grows comes first:
    each file's keys lie behind those of all files before. What is classic can be summed.
    """

    letter: KeyType
    row_keys: tuple[Column, ...]
    sort_keys: tuple[Column, ...]
    values: tuple[Column, ...]
    grows: bool = False
    is_classic: bool = True

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns in their order."""
        return (*self.row_keys, *self.sort_keys, *self.values)

    @property
    def schema(self) -> Schema:
        """The schema of the tables."""
        names = ("rowKeyFields", "sortKeyFields", "valueFields")
        parts = (self.row_keys, self.sort_keys, self.values)
        body = {n: [c.to_json() for c in p] for n, p in zip(names, parts, strict=True)}
        return Schema.from_json(body)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of tables that can have this schema."""
        values = [column.name for column in self.values]
        return kinds_of(values, joins=not self.grows, sums=self.is_classic)

    def key(self, row: Row) -> Key:
        """Return the row key of a row."""
        return tuple(column.cell(row) for column in self.row_keys)

    def order(self, row: Row) -> Key:
        """Return the row and sort keys of a row."""
        return (*self.key(row), *(column.cell(row) for column in self.sort_keys))

    def file_of(self, rows: Iterable[Row], form: str = "parquet") -> bytes:
        """Return rows as a file of a format; those that are entombed delete what is there."""
        rows = list(rows)
        table = self._table(rows)
        if any(row == entombed(row) for row in rows):
            table = self._changes(rows, table)
        sink = io.BytesIO()
        if form == "csv":
            pyarrow.csv.write_csv(table, sink)
        elif form == "json":
            sink.writelines(json.dumps(row).encode() + b"\n" for row in table.to_pylist())
        else:
            pq.write_table(table, sink)
        return sink.getvalue()

    @property
    def forms(self) -> tuple[str, ...]:
        """The formats in which files of such rows can be dropped."""
        plain = [kind.value for kind in _PLAIN]
        is_plain = all(column.type in plain for column in self.columns)
        return ("parquet", "csv", "json") if is_plain else ("parquet",)

    def rows_of(self, table: pa.Table) -> list[Row]:
        """Return the rows of what was read; one with a cell that is not its own says so."""
        cells = {
            column.name: _cells(table.column(column.name), is_key=column not in self.values)
            for column in self.columns
        }
        since = [None] * table.num_rows
        if TOMBSTONE.name in table.column_names:
            since = table.column(TOMBSTONE.name).to_pylist()
        letters = {part_of(self.letter, n): letter for n, letter in enumerate(LETTERS)}
        found = []
        for n in range(table.num_rows):
            at = cells["at"][n]
            row = (
                letters.get(cells["letter"][n], "?"),
                at if self._at_type is Primitive.LONG else at // 1000,
                cells["note"][n],
                cells["n"][n],
                sum(cells[name][n] << (60 * i) for i, name in enumerate(_MARKS)),
            )
            is_row = since[n] is None
            row = row if is_row else entombed(row)
            wrong = [
                c.name
                for c in self.columns
                if not same(cells[c.name][n], c.cell(row) if is_row or not c.nullable else None)
            ]
            note = f"{row[2]} with another {wrong[0]}: {cells[wrong[0]][n]!r}" if wrong else row[2]
            found.append((row[0], row[1], note, row[3], row[4]))
        return found

    def rows_in_file(self, body: bytes) -> list[Row]:
        """Return the rows of a Parquet file."""
        names = [*(column.name for column in self.columns), TOMBSTONE.name]
        return self.rows_of(pq.ParquetFile(io.BytesIO(body)).read(columns=names))

    def drawn_range(self, random: Random, files: int) -> KeyRange:
        """Draw what a query asks for, of a run in which so many things were numbered."""
        drawn = random.random()
        if drawn < 0.4:
            return KeyRange()
        first, last = sorted(random.choices(range(self.places(files)), k=2))
        low = (part_of(self._first_type, first),)
        if drawn < 0.7:
            return KeyRange.exactly(low)
        return KeyRange(low, (part_of(self._first_type, last + 1),))

    def places(self, files: int) -> int:
        """Return how many first keys there are in a run in which so many things were numbered."""
        return (files + 1) * _MOST_PLACES if self.grows else len(LETTERS)

    def first_key(self, place: int) -> ShownKey:
        """Return the first part of the row key of that number."""
        kind = self._first_type
        return ShownKey((part_of(kind, place),), (self._shown(kind, place),))

    def split_points(self, letters: str) -> tuple[tuple[object, ...], ...]:
        """Return points between partitions, in the form of requests."""
        places = [LETTERS.index(letter) for letter in letters]
        if self.grows:
            places = [place * 3 * _MOST_PLACES for place in places]
        return tuple((self._shown(self._first_type, place),) for place in places)

    def letter_keys(self, letters: str) -> tuple[tuple[object, ...], ...]:
        """Return what names the rows of letters by their keys, in the form of requests."""
        return tuple((self._shown(self.letter, LETTERS.index(letter)),) for letter in letters)

    def letter_condition(self, letters: str) -> str:
        """Return a condition on the rows of letters."""
        parts: list[Any] = [part_of(self.letter, LETTERS.index(letter)) for letter in letters]
        if isinstance(self.letter, DecimalType):
            parts = [from_decimal_count(part, self.letter) for part in parts]
        return " OR ".join(f"letter = {leaf_sql(Literal(part, self.letter))}" for part in parts)

    @property
    def _first_type(self) -> FieldType:
        return parse_type(self.row_keys[0].type, "the first key")

    @property
    def _at_type(self) -> Primitive:
        return next(Primitive(c.type) for c in self.sort_keys if c.name == "at")

    @staticmethod
    def _shown(kind: FieldType, place: int) -> object:
        part = part_of(kind, place)
        return part if kind in _PLAIN else show_part(part, kind)

    def _table(self, rows: Sequence[Row]) -> pa.Table:
        schema = arrow_schema(self.schema)
        arrays = [
            _array([column.cell(row) for row in rows], field.type)
            for column, field in zip(self.columns, schema, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _changes(self, rows: Sequence[Row], table: pa.Table) -> pa.Table:
        """Return rows with a column that says which of them delete, and those without values."""
        deletes = pa.array([row == entombed(row) for row in rows])
        for column in self.values:
            if column.name != "note":
                cells = table.column(column.name)
                cells = pc.if_else(deletes, pa.scalar(None, cells.type), cells)
                place = table.column_names.index(column.name)
                table = table.set_column(place, column.name, cells)
        names = pc.if_else(deletes, pa.scalar("delete"), pa.scalar(None, pa.string()))
        return table.append_column(CHANGE.name, names)


def part_of(kind: FieldType, place: int) -> KeyPart:
    """Return the key part of a type for a number, in the order of numbers."""
    match kind:
        case DecimalType():  # of 64 bits and of more
            return (place - 3) * 4 * 10**18
        case Primitive.INT:
            return place - 3
        case Primitive.LONG | Primitive.TIMESTAMP:
            return (place - 3) * 3_600_000_000
        case Primitive.DATE:
            return place - 3
        case Primitive.BYTES:
            return place.to_bytes(2, "big") + b"\x00" * (place % 3)
        case _:
            return f"{place:05d}" + ("\U0001f400" if place % 2 else "é\x01")


def drawn_shape(random: Random) -> Shape:
    """Draw a schema: in half of the runs the plain one, which all kinds of tables can have."""
    if random.random() < 0.5:
        return CLASSIC
    grows = random.random() < 0.4
    kinds = list(_KEY_TYPES)
    letter, other, sort = random.choice(kinds), random.choice(kinds), random.choice(kinds)
    row_keys = [_key("letter", letter, lambda row: _place(row[0]))]
    if grows:
        row_keys.insert(0, _key("serial", other, serial))
    elif random.random() < 0.5:
        row_keys.append(_key("part", other, lambda row: _place(row[0]) % 3))
    sort_keys = [_at(random.choice((Primitive.LONG, Primitive.TIMESTAMP)))]
    if grows and random.random() < 0.5:
        sort_keys.append(_key("tie", sort, lambda row: serial(row) % 5))
    values = [*_VALUES, *random.sample(_EXTRAS, random.randint(1, 4))]
    return Shape(
        letter, tuple(row_keys), tuple(sort_keys), tuple(values), grows=grows, is_classic=False
    )


def serial(row: Row) -> int:
    """Return the number of a row, which is greater than those of all files before."""
    number, _, place = row[2].partition("-")
    return int(number) * _MOST_PLACES + int(place)


def mark_of(file: int) -> int:
    """Return the mark of the rows of the file of this number: marks of a few can be added up."""
    return 16 ** (file % FILES_MARKED)


def same(found: object, wanted: object) -> bool:
    """Return whether two cells are the same to the bit."""
    return _exact(found) == _exact(wanted)


def _exact(cell: Any) -> object:
    if isinstance(cell, float):
        return struct.pack("<d", cell)
    if isinstance(cell, dict):
        return [(key, _exact(value)) for key, value in cell.items()]
    if isinstance(cell, list | tuple):
        return [_exact(item) for item in cell]
    return cell


def _array(cells: list[Any], kind: pa.DataType) -> pa.Array[Any]:
    if pa.types.is_timestamp(kind):
        return pa.array(cells, pa.int64()).cast(kind)
    if pa.types.is_date32(kind):
        return pa.array(cells, pa.int32()).cast(kind)
    if isinstance(kind, pa.Decimal128Type):
        cells = [from_decimal_count(c, _decimal(kind)) if isinstance(c, int) else c for c in cells]
    return pa.array(cells, kind)


def _decimal(kind: pa.Decimal128Type[Any, Any]) -> DecimalType:
    return DecimalType(kind.precision, kind.scale)


def _cells(column: pa.ChunkedArray[Any], *, is_key: bool) -> list[Any]:
    if is_key and isinstance(column.type, pa.Decimal128Type):
        return [decimal_count(cell, _decimal(column.type)) for cell in column.to_pylist()]
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64()).to_pylist()
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32()).to_pylist()
    return column.to_pylist()


def _place(letter: str) -> int:
    return LETTERS.find(letter) + (letter == "?")


def _key(name: str, kind: KeyType, number: Callable[[Row], int]) -> Column:
    return Column(name, kind.to_json(), lambda row: part_of(kind, number(row)))


def _at(kind: Primitive) -> Column:
    factor = 1 if kind is Primitive.LONG else 1000
    return Column("at", kind.value, lambda row: row[1] * factor)


def _mark_column(number: int) -> Column:
    return Column(
        _MARKS[number], "LongType", lambda row: row[4] >> (60 * number) & _MASK, nullable=False
    )


def _extra(name: str, kind: object, cells: Sequence[object]) -> Column:
    """Return a column of odd cells, of which each row has that which its note says."""
    return Column(
        name, kind, lambda row: cells[crc32(f"{name} {row[2]}".encode()) % len(cells)], True
    )


_KEY_TYPES = (
    Primitive.INT,
    Primitive.LONG,
    Primitive.STRING,
    Primitive.BYTES,
    Primitive.TIMESTAMP,
    Primitive.DATE,
    DecimalType(25, 3),
)
_FLOATS = (None, math.nan, -0.0, 0.0, math.inf, -math.inf, 1.5, -(2.0**-130))
_PAIR = {"StructType": {"fields": [{"name": "x", "type": "LongType", "nullable": True}]}}
_STRUCT = {
    "StructType": {
        "fields": [
            {"name": "pair", "type": _PAIR, "nullable": True},
            {"name": "size", "type": "DoubleType", "nullable": True},
        ]
    }
}
_EXTRAS = (
    _extra("f", "FloatType", _FLOATS),
    _extra("d", "DoubleType", _FLOATS),
    _extra("truth", "BooleanType", (None, True, False)),
    _extra("text", "StringType", (None, "", "é\x00\U0001f400", "long " * 100)),
    _extra("raw", "ByteArrayType", (None, b"", b"\x00\xff", bytes(300))),
    _extra(
        "price",
        {"DecimalType": {"precision": 20, "scale": 4}},
        (None, Decimal("0.0000"), Decimal("-1234567890123456.7890")),
    ),
    _extra(
        "items", {"ListType": {"elementType": "LongType"}}, (None, [], [None], [1, None, -(2**63)])
    ),
    _extra(
        "weights",
        {"MapType": {"keyType": "StringType", "valueType": "DoubleType"}},
        (None, [], [("a", -0.0), ("", None)], [("b", math.nan)]),
    ),
    _extra(
        "nested",
        _STRUCT,
        (
            None,
            {"pair": None, "size": None},
            {"pair": {"x": None}, "size": -0.0},
            {"pair": {"x": 7}, "size": math.nan},
        ),
    ),
)
_VALUES = (
    Column("note", "StringType", lambda row: row[2]),
    Column("n", "LongType", lambda row: row[3]),
    *map(_mark_column, range(len(_MARKS))),
)
CLASSIC = Shape(
    Primitive.STRING,
    (Column("letter", "StringType", lambda row: part_of(Primitive.STRING, _place(row[0]))),),
    (_at(Primitive.LONG),),
    _VALUES,
)
