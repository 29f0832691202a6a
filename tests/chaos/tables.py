"""The tables of a run, unlike each other, and the files that are dropped for them, by a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from dormouse.schema.schema import Schema

Row = tuple[object, ...]
"""What identifies a row: the first part is its key, the last the file it came from."""

KEYS = 1_000_000
SHARED_KEYS = 200
MOST_SUMMED_FILES = 60
TEXTS = ("", "plain", "zwölf", 'with "quotes", commas\nand lines', "💤 asleep")


@dataclass(frozen=True, slots=True)
class DroppedFile:
    """A file for a table: its number there, its rows, and whether it is broken, to be refused."""

    table: str
    number: int
    name: str
    rows: tuple[Row, ...]
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """A table of a run. Rows of one that is summed become one where their keys are alike."""

    name: str
    properties: Mapping[str, object]
    split_points: tuple[int, ...] = ()
    is_summed: bool = False
    is_purged: bool = False

    @property
    def schema(self) -> Schema:
        """The schema: a key and, in a summed table, which files had it and how often it came."""
        if self.is_summed:
            values = [{"name": name, "type": "LongType"} for name in ("files", "times")]
            key = [{"name": "key", "type": "LongType"}]
            return Schema.from_json({"rowKeyFields": key, "valueFields": values})
        return Schema.from_json(
            {
                "rowKeyFields": [{"name": "key", "type": "LongType"}],
                "sortKeyFields": [{"name": "n", "type": "LongType"}],
                "valueFields": [
                    {"name": "text", "type": "StringType", "nullable": True},
                    {"name": "file", "type": "IntType"},
                ],
            }
        )

    def file(self, seed: int, number: int, rows: int, is_broken: bool = False) -> DroppedFile:
        """Make up the file of this number."""
        rng = random.Random(f"{seed}-{self.name}-{number}")
        found: list[Row] = []
        if self.is_summed:
            found = [(key, number) for key in rng.sample(range(SHARED_KEYS), min(rows, 100))]
        else:
            first = number * 1_000_000
            for n in range(first, first + rows):
                found.append((rng.randrange(KEYS), n, rng.choice((None, *TEXTS)), number))
        # Text that is null or empty is one and the same in CSV.
        kind = rng.choice(("parquet", "csv") if self.is_summed else ("parquet", "jsonl"))
        return DroppedFile(self.name, number, f"{number:04d}.{kind}", tuple(found), is_broken)

    def rows_of(self, found: pa.Table) -> list[Row]:
        """Return the rows of a query's result as those of files.

        A key of a summed table that came more often than from its files is given as from no file.
        """
        if not self.is_summed:
            columns = [found[name].to_pylist() for name in ("key", "n", "text", "file")]
            return list(zip(*columns, strict=True))
        rows: list[Row] = []
        sums = zip(*(found[name].to_pylist() for name in ("key", "files", "times")), strict=True)
        for key, files, times in sums:
            if files.bit_count() != times:
                rows.append((key, f"{times} times, of files {files:b}", -1))
            rows += [(key, number) for number in range(files.bit_length()) if files >> number & 1]
        return rows


def write_file(plan: Plan, file: DroppedFile, folder: Path) -> Path:
    """Write a file to be dropped."""
    if plan.is_summed:
        columns: Mapping[str, Sequence[object]] = {
            "key": [row[0] for row in file.rows],
            "files": [1 << file.number for _ in file.rows],
            "times": [1 for _ in file.rows],
        }
    else:
        names = ("key", "n", "text", "file")
        columns = {name: [row[i] for row in file.rows] for i, name in enumerate(names)}
    types = {"text": pa.string(), "file": pa.int32()}
    rows = pa.table({n: pa.array(c, types.get(n, pa.int64())) for n, c in columns.items()})
    path = folder / file.name
    if path.suffix == ".parquet":
        pq.write_table(rows, path)
    elif path.suffix == ".csv":
        pc.write_csv(rows, path)
    else:
        rows.to_pandas().to_json(path, orient="records", lines=True)
    if file.is_broken:
        body = path.read_bytes()
        path.write_bytes(body[: len(body) // 2] + b"\x00{")
    return path


GC_DELAY_SECONDS = 20
_SMALL: Mapping[str, object] = {
    "split_threshold_rows": 500,
    "compaction_strategy": "batch",
    "compaction_files": 3,
    "compaction_jobs_limit": 20,
    "gc_delay_seconds": GC_DELAY_SECONDS,
    "job_retry_seconds": 120,
    "orphan_age_seconds": 90,
}
"""Small numbers, so that a small table has all that a large one has, within minutes."""


def plans() -> list[Plan]:
    """Return the tables of a run."""

    def table(name: str, *, points: tuple[int, ...] = (), **changed: object) -> Plan:
        is_summed, is_purged = name == "summed", name.startswith("purged")
        return Plan(name, {**_SMALL, **changed}, points, is_summed, is_purged)

    quarters = (KEYS // 4, KEYS // 2, KEYS // 4 * 3)
    return [
        table("plain"),
        table("sized", compaction_strategy="size_ratio", compaction_files=4),
        table("items", state_store="dynamodb"),
        table(
            "spanning",
            points=quarters,
            ingest_file_strategy="one_reference_per_leaf",
            shard_target_bytes=6_000,
        ),
        table("purged", points=quarters[1:2]),
        table("purged-items", state_store="dynamodb"),
        table("summed", aggregations="sum(files), sum(times)", split_threshold_rows=60),
    ]
