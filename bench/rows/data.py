"""Rows to measure with, and their digests: those of the original's own benchmark, and wide ones.

A key is 10 random lower-case letters and is sorted further by a random number below 10^10. Narrow
rows have 10 random letters besides, wide ones a text of 100 letters and 5 random numbers. Of rows
that are hard to compact, mixed ones have short and very long texts, others 500 numbers.

A digest is the number of rows and the sum of a hash of each, so it does not depend on their order,
on files, encodings or types of text. `make` and `hashing` need numpy, which the functions do not
have: where these are measured, another process takes the digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from bench.measure import elsewhere
from dormouse.schema.schema import Schema

LETTERS = 10
KEYS = ("key", "timestamp")
COLUMNS = 500
NUMBERS = {kind: [f"number_{i}" for i in range(n)] for kind, n in (("wide", 5), ("many", COLUMNS))}
LETTERS_OF_VALUE = {"narrow": LETTERS, "mixed": LETTERS, "wide": 100}
DIGESTS = "digests.json"
"""The digests of sources by their names; beside a table, that of all its rows."""
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


def row_bytes(kind: str) -> int:
    """Return what a row takes in memory as Arrow holds it."""
    numbers = 8 * len(NUMBERS.get(kind, ()))
    return (LETTERS + 4) + 8 + (LETTERS_OF_VALUE[kind] + 4) + numbers


def kind_of(file: Path) -> str:
    """Return whether narrow or wide rows are in a file."""
    return "wide" if NUMBERS["wide"][0] in pq.read_schema(file).names else "narrow"


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

    def plus(self, other: Digest) -> Digest:
        """Return the digest of these rows and those."""
        return Digest(self.rows + other.rows, (self.total + other.total) % 2**64)


def sum_of(digests: Iterable[Digest]) -> Digest:
    """Return the digest of all rows."""
    whole = Digest()
    for each in digests:
        whole = whole.plus(each)
    return whole


def digest_elsewhere(files: Iterable[Path], kind: str, *, in_order: bool) -> Digest:
    """Return the digest of all rows of some Parquet files; if they are to be `in_order`, of files
    in some order.

    Raises:
        ValueError: the rows are not in order, or cannot be hashed.
    """
    return Digest(*json.loads(elsewhere("rows.hashing:show", [*files], kind, in_order)))


def save(path: Path, digests: dict[str, Digest]) -> None:
    """Keep digests of what has these names."""
    path.write_text(json.dumps(digests))


def saved(path: Path) -> dict[str, Digest]:
    """Return the digests that `save` kept."""
    return {name: Digest(*found) for name, found in json.loads(path.read_text()).items()}


def expected_of(inputs: Path) -> Digest:
    """Return the digest of the rows of a source, of a folder of sources, or of a table's data."""
    if inputs.is_file():
        return saved(inputs.parent / DIGESTS)[inputs.name]
    if (inputs / DIGESTS).is_file():
        return sum_of(saved(inputs / DIGESTS).values())
    return saved(inputs.parent / DIGESTS)[ALL]
