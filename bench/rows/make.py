"""Make what is measured: unsorted sources, tables of their rows, and those that are hardest to
compact.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.rows import instance as rows_instance
from bench.rows.data import (
    ALL,
    DIGESTS,
    LETTERS,
    LETTERS_OF_VALUE,
    NUMBERS,
    SCHEMAS,
    digest_of,
    save,
    saved,
    split_points,
    sum_of,
)
from dormouse.arrow.types import arrow_schema
from dormouse.ports import Services
from dormouse.storage import FolderStorage

Chance = np.random.Generator
CHUNK_ROWS = 500_000
KEYS_KEPT = 4000
MEMORY_BYTES = 4 * 1024**3


def sources(folder: str, kind: str, files: int, rows: int) -> None:
    """Write unsorted files of so many rows each, their digests, and some keys of theirs."""
    root = Path(folder)
    root.mkdir(parents=True)
    digests = {}
    for seed in range(files):
        file = root / f"{seed:03d}.parquet"
        write_source(file, kind, rows, seed)
        digests[file.name] = digest_of([file])
    save(root / DIGESTS, digests)
    column = pq.read_table(root / "000.parquet", columns=["key"])["key"]
    count = min(KEYS_KEPT, rows)
    keys = [column[i * len(column) // count].as_py() for i in range(count)]
    random.Random(1).shuffle(keys)
    (root / "keys.json").write_text(json.dumps(keys))


def table(folder: str, kind: str, of: str, leaves: int, jobs: int) -> None:
    """Ingest all sources below `of` into a table of so many leaves, in so many jobs."""
    files = sorted(Path(of).resolve().glob("*.parquet"))
    services = _services(Path(folder))
    rows_instance.create(services, SCHEMAS[kind], split_points(leaves))
    for job in range(jobs):
        rows_instance.ingest_files(services, files[job::jobs])
    save(Path(folder) / DIGESTS, {ALL: sum_of(saved(Path(of) / DIGESTS).values())})


def _services(folder: Path) -> Services:
    folder.mkdir(parents=True, exist_ok=True)
    storage = FolderStorage(folder / "data")
    return rows_instance.services(storage, folder / "scratch", MEMORY_BYTES, seed=1)


def write_source(path: Path, kind: str, rows: int, seed: int) -> None:
    """Write unsorted rows as people do: with pyarrow, as it is set."""
    chance, schema = np.random.default_rng(seed), arrow_schema(SCHEMAS[kind])
    nullable = pa.schema([(field.name, field.type) for field in schema])
    with pq.ParquetWriter(path, nullable) as writer:
        for start in range(0, rows, CHUNK_ROWS):
            count = min(CHUNK_ROWS, rows - start)
            columns = [texts(chance, count, LETTERS), numbers(chance, count)]
            columns.append(texts(chance, count, LETTERS_OF_VALUE[kind]))
            columns += [numbers(chance, count) for _ in NUMBERS.get(kind, ())]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=nullable))


def texts(chance: Chance, count: int, length: int) -> pa.Array[Any]:
    letters = chance.integers(97, 123, count * length, dtype=np.uint8)
    ends = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends.data), pa.py_buffer(letters.data))


def numbers(chance: Chance, count: int) -> pa.Array[Any]:
    return pa.array(chance.integers(0, 10**10, count))


LONG = 1_000_000
"""The letters of the longest values."""


@dataclass(frozen=True, slots=True)
class Case:
    """So many inputs of so many rows, and what the value columns of an input hold, by key."""

    inputs: int
    rows: int
    values: Callable[[Chance, int], list[pa.Array[Any]]]
    kind: str = "mixed"


def _few_long_values(chance: Chance, rows: int) -> list[pa.Array[Any]]:
    at = rows * 9 // 10
    parts = [texts(chance, n, letters) for n, letters in ((at, LETTERS), (3, LONG))]
    return [pa.concat_arrays([*parts, texts(chance, rows - at - 3, LETTERS)])]


def _dozen_long_values(chance: Chance, rows: int) -> list[pa.Array[Any]]:
    """Return short values, and a dozen that are long, four at each of three places."""
    parts = []
    for _ in range(3):
        parts += [texts(chance, rows // 3 - 4, LETTERS), texts(chance, 4, LONG)]
    return [pa.concat_arrays([*parts, texts(chance, rows - rows // 3 * 3, LETTERS)])]


def _repeated_values(chance: Chance, rows: int) -> list[pa.Array[Any]]:
    choice = texts(np.random.default_rng(7), 20, 10_000)
    return [choice.take(pa.array(chance.integers(0, len(choice), rows), pa.int64()))]


def _many_columns(chance: Chance, rows: int) -> list[pa.Array[Any]]:
    return [numbers(chance, rows) for _ in NUMBERS["many"]]


CASES = {
    "50 inputs with values of a megabyte": Case(50, 12, lambda c, n: [texts(c, n, LONG)]),
    "50 inputs with some values of a megabyte": Case(50, 30_000, _few_long_values),
    "50 inputs with a dozen values of a megabyte": Case(50, 30_000, _dozen_long_values),
    "50 inputs with long texts in dictionaries": Case(50, 4000, _repeated_values),
    "10 inputs of 500 columns": Case(10, 10_000, _many_columns, "many"),
}
"""Rows of which the memory of a merge is hardest to bound."""


def worst_case(folder: str, name: str) -> None:
    case, root = CASES[name], Path(folder)
    services, digests = _services(root), []
    rows_instance.create(services, SCHEMAS[case.kind])
    for seed in range(case.inputs):
        chance = np.random.default_rng(seed)
        keys = texts(chance, case.rows, LETTERS)
        columns = [keys.take(pa.compute.sort_indices(keys)), numbers(chance, case.rows)]
        columns += case.values(chance, case.rows)
        rows = pa.Table.from_arrays(columns, schema=arrow_schema(SCHEMAS[case.kind]))
        digests.append(digest_of(rows))
        source = root / f"{seed:03d}.parquet"
        pq.write_table(rows, source, row_group_size=max(1, rows.num_rows // 8))
        rows_instance.ingest_files(services, [source])
        source.unlink()
    save(root / DIGESTS, {ALL: sum_of(digests)})
