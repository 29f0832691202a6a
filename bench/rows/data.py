"""Rows to measure with, made fast, and files of them: those of the original's own benchmark, and
wide ones.

A key is 10 random lower-case letters and is sorted further by a random number below 10^10. Narrow
rows have 10 random letters besides, wide ones a text of 100 letters and 5 random numbers, huge ones
a text of a million letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.schema.schema import Schema

if TYPE_CHECKING:  # the functions have no numpy, and what measures them imports this module
    import numpy as np

LETTERS = 10
KEYS = ("key", "timestamp")
NUMBERS = tuple(f"number_{i}" for i in range(5))
CHUNK_ROWS = {"narrow": 500_000, "wide": 500_000, "huge": 8}
LETTERS_OF_VALUE = {"narrow": LETTERS, "wide": 100, "huge": 1_000_000}
_KEY_FIELDS = {
    "rowKeyFields": [{"name": "key", "type": "StringType"}],
    "sortKeyFields": [{"name": "timestamp", "type": "LongType"}],
}
_NARROW = Schema.from_json(
    {**_KEY_FIELDS, "valueFields": [{"name": "value", "type": "StringType"}]}
)
SCHEMAS = {
    "narrow": _NARROW,
    "huge": _NARROW,
    "wide": Schema.from_json(
        {
            **_KEY_FIELDS,
            "valueFields": [
                {"name": "value", "type": "StringType"},
                *({"name": name, "type": "LongType"} for name in NUMBERS),
            ],
        }
    ),
}


def row_bytes(kind: str) -> int:
    """Return what a row takes in memory as Arrow holds it."""
    numbers = 8 * len(NUMBERS) if kind == "wide" else 0
    return (LETTERS + 4) + 8 + (LETTERS_OF_VALUE[kind] + 4) + numbers


def kind_of(file: Path) -> str:
    """Return which rows are in a file."""
    return "wide" if NUMBERS[0] in pq.read_schema(file).names else "narrow"


def split_points(leaves: int) -> list[str]:
    """Return the keys that cut the space of keys into so many leaves alike."""
    return [_as_letters(26**LETTERS * i // leaves) for i in range(1, leaves)]


def key_at(fraction: float) -> str:
    """Return the key up to which this part of all random keys lies."""
    return _as_letters(int(26**LETTERS * fraction))


def write_source(path: Path, kind: str, rows: int, seed: int) -> None:
    """Write unsorted rows as people do: with pyarrow, as it is set."""
    import numpy as np

    chance = np.random.default_rng(seed)
    with pq.ParquetWriter(path, _schema(kind)) as writer:
        for batch in _batches(kind, rows, chance):
            writer.write_batch(batch)


def some_keys(path: Path, count: int) -> list[str]:
    """Return keys of rows that are in a source, spread over it."""
    column = pq.read_table(path, columns=["key"])["key"]
    return [column[i * len(column) // count].as_py() for i in range(count)]


def _schema(kind: str) -> pa.Schema:
    values = [("value", pa.string())]
    if kind == "wide":
        values += [(name, pa.int64()) for name in NUMBERS]
    return pa.schema([("key", pa.string()), ("timestamp", pa.int64()), *values])


def _batches(kind: str, rows: int, chance: np.random.Generator) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, CHUNK_ROWS[kind]):
        count = min(CHUNK_ROWS[kind], rows - start)
        columns = [texts(chance, count, LETTERS), numbers(chance, count)]
        columns.append(texts(chance, count, LETTERS_OF_VALUE[kind]))
        if kind == "wide":
            columns += [numbers(chance, count) for _ in NUMBERS]
        yield pa.RecordBatch.from_arrays(columns, schema=_schema(kind))


def texts(chance: np.random.Generator, count: int, length: int) -> pa.Array:
    """Return texts of so many random letters each."""
    import numpy as np

    letters = chance.integers(97, 123, count * length, dtype=np.uint8)
    ends = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(letters))


def numbers(chance: np.random.Generator, count: int) -> pa.Array:
    """Return random numbers below 10^10."""
    return pa.array(chance.integers(0, 10**10, count))


def _as_letters(number: int) -> str:
    letters = ""
    for _ in range(LETTERS):
        number, letter = divmod(number, 26)
        letters = chr(97 + letter) + letters
    return letters
