"""Rows to measure with, and their digests: those of the original's own benchmark, and wide ones.

A key is 10 random lower-case letters and is sorted further by a random number below 10^10. Narrow
rows have 10 random letters besides, wide ones a text of 100 letters and 5 random numbers. Of rows
that are hard to compact, mixed ones have short and very long texts, others 500 numbers.

A digest is the number of rows and the sum of a hash of each, so it does not depend on their order,
on files, encodings or types of text. DuckDB hashes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dormouse.schema.schema import Schema

LETTERS = 10
KEYS = ("key", "timestamp")
COLUMNS = 500
NUMBERS = {kind: [f"number_{i}" for i in range(n)] for kind, n in (("wide", 5), ("many", COLUMNS))}
LETTERS_OF_VALUE = {"narrow": LETTERS, "mixed": LETTERS, "wide": 100}
DIGESTS = "digests.json"
"""The digests of sources by their names; beside a table, that of all its rows as `ALL`."""
ALL = "all"


def _schema(kind: str) -> Schema:
    texts = [{"name": "value", "type": "StringType"}] if kind in LETTERS_OF_VALUE else []
    numbers = [{"name": name, "type": "LongType"} for name in NUMBERS.get(kind, ())]
    return Schema.from_json(
        {
            "rowKeyFields": [{"name": "key", "type": "StringType"}],
            "sortKeyFields": [{"name": "timestamp", "type": "LongType"}],
            "valueFields": [*texts, *numbers],
        }
    )


SCHEMAS = {kind: _schema(kind) for kind in ("narrow", "mixed", "wide", "many")}


def split_points(leaves: int) -> list[str]:
    """Return the keys that cut the space of keys into so many leaves alike."""
    return [_as_letters(26**LETTERS * i // leaves) for i in range(1, leaves)]


def leaf_ranges(leaves: int) -> list[tuple[str, str]]:
    """Return the bounds of so many leaves; all keys lie from the first to the last."""
    points = ["", *split_points(leaves), "~"]
    return list(zip(points, points[1:], strict=False))


def key_at(fraction: float) -> str:
    """Return the key up to which this part of all random keys lies."""
    return _as_letters(int(26**LETTERS * fraction))


def _as_letters(number: int) -> str:
    letters = ""
    for _ in range(LETTERS):
        number, letter = divmod(number, 26)
        letters = chr(97 + letter) + letters
    return letters


class Digest(NamedTuple):
    """The number of rows, and the sum of their hashes modulo 2^64."""

    rows: int = 0
    total: int = 0


def digest_of(rows: pa.Table | Iterable[Path], where: str = "true") -> Digest:
    """Return the digest of the rows of a table, or of Parquet files, that meet a condition."""
    import duckdb  # not in a function that is measured before it is done

    if isinstance(rows, pa.Table):
        source, names = "rows", rows.column_names
    else:
        files = [str(file) for file in rows]
        source, names = f"read_parquet({files})", pq.read_schema(files[0]).names
    columns = ", ".join(f'"{name}"' for name in sorted(names))
    total = f"coalesce(sum(hash({columns})) % {2**64}::HUGEINT, 0)"
    query = f"SELECT count(*), {total} FROM {source} WHERE {where}"
    return Digest(*cast(Any, duckdb.sql(query)).fetchall()[0])


def sum_of(digests: Iterable[Digest]) -> Digest:
    counts, totals = zip(*digests, strict=True)
    return Digest(sum(counts), sum(totals) % 2**64)


def are_in_order(files: Iterable[Path], batch_rows: int = 131_072) -> bool:
    """Return whether the rows of Parquet files are in key order, in some order of the files."""
    ends = []
    for file in files:
        first: Any = None
        last: Any = None
        for batch in pq.ParquetFile(file).iter_batches(batch_rows, columns=[*KEYS]):
            if not batch.num_rows:
                continue
            begins = tuple(column[0].as_py() for column in batch.columns)
            if (last is not None and last > begins) or _falls(*batch.columns):
                return False
            first, last = first or begins, tuple(column[-1].as_py() for column in batch.columns)
        if first is not None:
            ends.append((first, last))
    ends.sort()
    return all(last <= first for (_, last), (first, _) in pairwise(ends))


def _falls(keys: Any, times: Any) -> bool:
    same = pc.equal(keys[:-1], keys[1:])
    later = pc.and_(same, pc.greater(times[:-1], times[1:]))
    return pc.any(pc.or_(pc.greater(keys[:-1], keys[1:]), later)).as_py() or False


def save(path: Path, digests: dict[str, Digest]) -> None:
    path.write_text(json.dumps(digests))


def saved(path: Path) -> dict[str, Digest]:
    return {name: Digest(*found) for name, found in json.loads(path.read_text()).items()}


def expected_of(inputs: Path) -> Digest:
    """Return the digest of the rows of a source, of a folder of sources, or of a table's data."""
    if inputs.is_file():
        return saved(inputs.parent / DIGESTS)[inputs.name]
    if (inputs / DIGESTS).is_file():
        return sum_of(saved(inputs / DIGESTS).values())
    return saved(inputs.parent / DIGESTS)[ALL]
