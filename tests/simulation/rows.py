"""The rows of simulated tables, and what their rules make of them, said in Python."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.model.schema import Schema

Row = tuple[str, int, str, int]
"""Letter, at, note, n. Each row that is ever dropped has a note of its own."""
COLUMNS = ("letter", "at", "note", "n")
LETTERS = "abcdefgh"
AGE_MS = 6 * 3600 * 1000

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "letter", "type": "StringType"}],
        "sortKeyFields": [{"name": "at", "type": "LongType"}],
        "valueFields": [
            {"name": "note", "type": "StringType"},
            {"name": "n", "type": "LongType"},
        ],
    }
)
_ARROW = pa.schema(
    [("letter", pa.string()), ("at", pa.int64()), ("note", pa.string()), ("n", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of table: the properties that are its rules."""

    name: str
    properties: Mapping[str, object]

    @property
    def ages(self) -> bool:
        """Tell whether its rows age off."""
        return self.name == "ages"

    @property
    def joins(self) -> bool:
        """Tell whether several rows become one."""
        return self.name in ("sum", "last")

    def answer(self, rows: Iterable[Row]) -> Counter[Row]:
        """Give what a query gives of these rows, or of parts of them made before; age aside."""
        if self.name == "sum":
            groups: dict[tuple[str, int], list[Row]] = {}
            for row in rows:
                groups.setdefault(row[:2], []).append(row)
            return Counter(
                (letter, at, max(r[2] for r in found), sum(r[3] for r in found))
                for (letter, at), found in groups.items()
            )
        if self.name == "last":
            newest: dict[str, Row] = {}
            for row in rows:
                newest[row[0]] = max(row, newest.get(row[0], row), key=lambda r: r[1:])
            return Counter(newest.values())
        return Counter(rows)


KINDS = (
    Kind("plain", {}),
    Kind("ages", {"filters": f"ageOff(at, {AGE_MS})"}),
    Kind("sum", {"aggregations": "max(note), sum(n)"}),
    Kind("last", {"aggregations": "last(note), last(n)"}),
)


def file_of(rows: Iterable[Row]) -> bytes:
    """Give rows as a Parquet file."""
    columns = list(zip(*rows, strict=True))
    sink = io.BytesIO()
    pq.write_table(pa.table([list(c) for c in columns], schema=_ARROW), sink)
    return sink.getvalue()


def rows_of(table: pa.Table) -> list[Row]:
    """Give the rows of what was read."""
    columns = [table.column(name).to_pylist() for name in COLUMNS]
    return list(zip(*columns, strict=True))


def rows_in_file(body: bytes) -> list[Row]:
    """Give the rows of a Parquet file."""
    return rows_of(pq.ParquetFile(io.BytesIO(body)).read(columns=list(COLUMNS)))
