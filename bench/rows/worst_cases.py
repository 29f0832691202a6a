"""Compact rows of which the memory of a merge is hardest to bound, and measure its peak.

``python -m bench.rows.worst_cases make FOLDER CASE`` ingests the inputs, each in a job of its own;
``… PART CASE ROUND FOLDER OUT`` compacts them in a process that did not make them, and
prints a JSON line for each figure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from bench.common.figures import emit
from bench.rows import compaction as rows_compaction
from bench.rows import instance as rows_instance
from bench.rows.data import LETTERS, SCHEMAS, numbers, texts
from bench.rows.digest import digest_elsewhere
from bench.rows.measure import run, set_aside
from dormouse.arrow.types import arrow_schema
from dormouse.schema.schema import Schema
from dormouse.storage import FolderStorage

if TYPE_CHECKING:
    import numpy as np

MEMORY_BYTES = 1024**3
PART = "worst cases of memory"
LONG = 1_000_000
"""The letters of the longest values."""
COLUMNS = 500
_MANY = Schema.from_json(
    {
        "rowKeyFields": [{"name": "key", "type": "StringType"}],
        "sortKeyFields": [{"name": "timestamp", "type": "LongType"}],
        "valueFields": [{"name": f"number_{i}", "type": "LongType"} for i in range(COLUMNS)],
    }
)

Values: TypeAlias = "Callable[[np.random.Generator, int], list[pa.Array]]"


@dataclass(frozen=True, slots=True)
class Case:
    """So many inputs of so many rows, and what the value columns of an input hold, by key."""

    inputs: int
    rows: int
    values: Values
    schema: Schema = SCHEMAS["narrow"]


def _long_values(chance: np.random.Generator, rows: int) -> list[pa.Array]:
    return [texts(chance, rows, LONG)]


def _few_long_values(chance: np.random.Generator, rows: int) -> list[pa.Array]:
    """Return short values, and three neighbours that are long, at the same keys in each input."""
    at = rows * 9 // 10
    parts = [texts(chance, n, letters) for n, letters in ((at, LETTERS), (3, LONG))]
    return [pa.concat_arrays([*parts, texts(chance, rows - at - 3, LETTERS)])]


def _dozen_long_values(chance: np.random.Generator, rows: int) -> list[pa.Array]:
    """Return short values, and a dozen that are long, four at each of three places."""
    parts = []
    for _ in range(3):
        parts += [texts(chance, rows // 3 - 4, LETTERS), texts(chance, 4, LONG)]
    return [pa.concat_arrays([*parts, texts(chance, rows - rows // 3 * 3, LETTERS)])]


def _repeated_values(chance: np.random.Generator, rows: int) -> list[pa.Array]:
    """Return texts that lie in dictionaries."""
    import numpy as np

    choice = texts(np.random.default_rng(7), 20, 10_000)
    return [choice.take(pa.array(chance.integers(0, len(choice), rows)))]


def _many_columns(chance: np.random.Generator, rows: int) -> list[pa.Array]:
    return [numbers(chance, rows) for _ in range(COLUMNS)]


CASES = {
    "50 inputs with values of a megabyte": Case(50, 12, _long_values),
    "50 inputs with some values of a megabyte": Case(50, 30_000, _few_long_values),
    "50 inputs with a dozen values of a megabyte": Case(50, 30_000, _dozen_long_values),
    "50 inputs with long texts in dictionaries": Case(50, 4000, _repeated_values),
    "10 inputs of 500 columns": Case(10, 10_000, _many_columns, _MANY),
}


def make(folder: Path, case: Case) -> None:
    """Ingest the inputs."""
    import numpy as np

    folder.mkdir(parents=True)
    storage, scratch = FolderStorage(folder / "data"), folder / "scratch"
    given = rows_instance.services(storage, scratch, MEMORY_BYTES, seed=1)
    rows_instance.create(given, case.schema)
    columns = arrow_schema(case.schema)
    for seed in range(case.inputs):
        chance = np.random.default_rng(seed)
        keys = texts(chance, case.rows, LETTERS)
        given_rows = [keys.take(pa.compute.sort_indices(keys)), numbers(chance, case.rows)]
        rows = pa.Table.from_arrays([*given_rows, *case.values(chance, case.rows)], schema=columns)
        source = folder / f"{seed:03d}.parquet"
        pq.write_table(rows, source, row_group_size=max(1, rows.num_rows // 8))
        rows_instance.ingest_files(given, [source])
        source.unlink()


def measure(part: str, name: str, number: int, folder: Path, out: Path) -> None:
    """Compact the inputs.

    Raises:
        ValueError: the outputs have more or fewer rows, or others, or not in order.
    """
    case = CASES[name]
    files = sorted(folder.resolve().glob("data/*/data/*.parquet"))
    work = rows_compaction.of_schema(files, case.schema, out)
    set_aside()
    taken = run(work)
    rows = sum(pq.read_metadata(file).num_rows for file in out.rglob("*.parquet"))
    if rows != case.inputs * case.rows:
        raise ValueError(f"{rows} rows were written of {case.inputs * case.rows}")
    found = digest_elsewhere(out.rglob("*.parquet"), in_order=True, many_lengths=True)
    if found != digest_elsewhere(files, in_order=False, many_lengths=True):
        raise ValueError("as many rows were written, but others")
    emit(
        part,
        name,
        number,
        stored_mb=sum(file.stat().st_size for file in files) / 1e6,
        peak_rss_mb=taken["peak_rss_bytes"] / 1e6,
        cpu_seconds=taken["cpu_seconds"],
    )


def main() -> None:
    """Make or measure."""
    if sys.argv[1] == "make":
        _, folder, name = sys.argv[1:]
        make(Path(folder), CASES[name])
    else:
        part, name, number, folder, out = sys.argv[1:]
        measure(part, name, int(number), Path(folder), Path(out))


if __name__ == "__main__":
    main()
