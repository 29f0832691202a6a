"""Sort a stream of rows of any length in bounded memory: sorted runs in scratch, then a merge.

`ingest` calls this. What fits the memory is sorted there and touches no disk.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.model.keys import KeyRange
from dormouse.model.schema import Schema
from dormouse.shards import engine
from dormouse.shards.arrow import arrow_schema, conform
from dormouse.shards.steps import steps

SORT_COPIES = 4
"""How often rows are in memory at once while they are sorted: read, keyed, ordered, given on."""
PIECE_ROWS = 256 * 1024
RUN_ROW_GROUP_BYTES = 1024 * 1024


def sort_rows(
    batches: Iterable[pa.RecordBatch], schema: Schema, *, memory_bytes: int, scratch: Path
) -> Iterator[pa.RecordBatch]:
    """Give the rows of `batches` sorted by the keys of `schema`, in about `memory_bytes` of memory.

    What does not fit goes to `scratch`, and is gone from there when the last row was given. Rows
    of equal keys come in no particular order.
    """
    with tempfile.TemporaryDirectory(prefix="sort-", dir=scratch) as folder:
        runs: list[Path] = []
        held: list[pa.RecordBatch] = []
        widest = 1.0
        for chunk in _chunks(batches, max(1, memory_bytes // SORT_COPIES)):
            if held:
                runs.append(_write_run(held, schema, Path(folder) / f"run-{len(runs)}.parquet"))
            held = chunk
            widest = max(widest, sum(b.nbytes for b in held) / sum(b.num_rows for b in held))
        if not runs:
            yield from _sorted(held, schema)
            return
        runs.append(_write_run(held, schema, Path(folder) / f"run-{len(runs)}.parquet"))
        held = []
        batch_rows = engine.batch_rows(memory_bytes, len(runs), widest)
        for step in steps([pq.read_metadata(run) for run in runs], schema, memory_bytes):
            yield from _merged(runs, schema, step, batch_rows)


def _chunks(batches: Iterable[pa.RecordBatch], size_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Give lists of batches which take about `size_bytes` each."""
    chunk: list[pa.RecordBatch] = []
    taken = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if chunk and taken + batch.nbytes > size_bytes:
            yield chunk
            chunk, taken = [], 0
        chunk.append(batch)
        taken += batch.nbytes
    if chunk:
        yield chunk


def _sorted(chunk: list[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Sort rows in memory: pieces of them each for itself, then merged, is fastest."""
    if not chunk:
        return
    pieces: list[list[pa.RecordBatch]] = []
    rows = PIECE_ROWS
    for batch in chunk:
        if rows >= PIECE_ROWS:
            pieces.append([])
            rows = 0
        pieces[-1].append(batch)
        rows += batch.num_rows
    frame = engine.session().create_dataframe(pieces, schema=arrow_schema(schema))
    for batch in engine.stream(frame.sort(*engine.key_order(schema))):
        yield conform(batch, arrow_schema(schema))


def _write_run(chunk: list[pa.RecordBatch], schema: Schema, local: Path) -> Path:
    """Sort rows into a file that only this process will read: quick to write, not small."""
    wanted = arrow_schema(schema)
    with pq.ParquetWriter(str(local), wanted, compression="lz4", use_dictionary=False) as writer:
        for group in _chunks(_sorted(chunk, schema), RUN_ROW_GROUP_BYTES):
            writer.write_table(pa.Table.from_batches(group, wanted))
    return local


def _merged(
    runs: list[Path], schema: Schema, step: KeyRange, batch_rows: int
) -> Iterator[pa.RecordBatch]:
    context = engine.session(batch_rows)
    frames = [engine.sorted_file(context, run.as_uri(), schema, step) for run in runs]
    for batch in engine.stream(engine.merge(frames, schema)):
        yield conform(batch, arrow_schema(schema))
