"""What the steps of a compaction and an ingest cost, each done alone and its result thrown away.

Run as ``python -m bench.rows.parts PART STAGE ROUND KIND INPUT SCRATCH``; prints a JSON line
for each figure. In the stages merging and reading run beside writing, on another thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from bench.common.figures import emit
from bench.rows import instance as rows_instance
from bench.rows.data import SCHEMAS
from bench.rows.measure import run
from dormouse.arrow.order import OrderCheck
from dormouse.files.loader import SourceLoader
from dormouse.keys import KeyRange
from dormouse.rows.merging import merge_slices
from dormouse.schema.schema import Schema
from dormouse.settings import memory_bytes
from dormouse.shards.parquet import KeySampler, ParquetFileWriter
from dormouse.shards.reading import Slice, audit_shard
from dormouse.stored.paths import shard_path

T = TypeVar("T")


class Steps:
    """Measures one step after the other, over so many rows each."""

    def __init__(self, part: str, number: int, rows: int) -> None:
        """Print figures of `part` in this round."""
        self._part, self._number, self._rows = part, number, rows

    def run(self, name: str, work: Callable[[], T]) -> T:
        """Measure a step; return what it returns."""
        result: list[T] = []
        taken = run(lambda: result.append(work()))
        emit(
            self._part,
            name,
            self._number,
            rows_per_second=self._rows / taken["seconds"],
            cpu_seconds_per_million=taken["cpu_seconds"] / self._rows * 1e6,
        )
        return result[0]


def drain(batches: Iterable[pa.RecordBatch]) -> None:
    """Take all batches and keep none."""
    for _ in batches:
        pass


def compaction(part: str, number: int, kind: str, shards: Path, scratch: Path) -> None:
    """Prove, decode, merge, check and write the rows of all shards."""
    files = sorted(shards.resolve().glob("*/data/*.parquet"))
    storage = rows_instance.linked(files, scratch / "data")
    given = rows_instance.services(storage, scratch, memory_bytes(), seed=6)
    table = rows_instance.reopened(given, SCHEMAS[kind])
    slices = [Slice(shard, KeyRange()) for shard in given.store(table).current().shards.values()]
    steps = Steps(part, number, sum(slice.shard.rows for slice in slices))

    def merged() -> Iterable[pa.RecordBatch]:
        return merge_slices(
            storage, table.id, slices, table.schema, scratch=scratch, memory_bytes=memory_bytes()
        )

    def decode() -> None:
        for file in files:
            drain(pq.ParquetFile(file).iter_batches())

    def prove() -> None:
        for slice in slices:
            audit_shard(storage, shard_path(table.id, slice.shard.id), slice.shard.size_bytes)

    steps.run("read all bytes and check their CRCs", prove)
    steps.run("read and decode, with pyarrow", decode)
    steps.run("read, prove, decode and merge", lambda: drain(merged()))
    _output(steps, list(merged()), table.schema, scratch)


def ingest(part: str, number: int, kind: str, source: Path, scratch: Path) -> None:
    """Read and sort in pieces, merge those, check and write the rows of a file."""
    schema, steps = SCHEMAS[kind], Steps(part, number, pq.read_metadata(source).num_rows)
    loader = SourceLoader(schema, scratch, memory_bytes=memory_bytes())
    steps.run("read and sort in pieces", lambda: loader.add(source, source.name))
    held = steps.run("merge the pieces", lambda: list(loader.sorted_rows()))
    _output(steps, held, schema, scratch)


def _output(steps: Steps, held: list[pa.RecordBatch], schema: Schema, scratch: Path) -> None:
    order, sampler = OrderCheck(schema), KeySampler(schema)

    def look() -> None:
        for batch in held:
            order.see(batch)
            sampler.see(batch)

    def write() -> None:
        file = ParquetFileWriter(scratch / "rows.parquet", schema)
        for batch in held:
            file.write(batch)
        file.close({}, "t", "s")

    steps.run("check the order, sample keys", look)
    steps.run("encode and write", write)


def main() -> None:
    """Measure the steps of one stage."""
    part, stage, number, kind, given, out = sys.argv[1:]
    scratch = Path(out)
    steps = compaction if stage == "compaction" else ingest
    steps(part, int(number), kind, Path(given), scratch)


if __name__ == "__main__":
    main()
