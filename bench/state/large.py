"""Measure a table of very many references once: load, plan of a key, commits, snapshot.

Called with the number of references, by default ten million; prints a JSON line for each figure,
and what breaks first. The state is made as columns, since objects would take 2 GB a million. Each
figure of memory is that of a process of its own, beyond what it had before.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.compute as pc

from bench.figures import emit, parsed, short
from bench.measure import elsewhere, kept
from bench.state.tables import cold_plans, show_plans, table_of
from bench.state.workload import KEYS, PER_PARTITION, TABLE, Clock, Ids, Mix, digest, key
from dormouse.items.blobs import MOST_PARTS, PART_BYTES
from dormouse.keys import KeyRange, encode_key
from dormouse.log.columns import Column, places_among
from dormouse.log.increments import COLUMNS, ITEMS, facts_of, sorted_by
from dormouse.log.log import fold_delta
from dormouse.log.snapshot import decode_snapshot, encode_snapshot, state_of
from dormouse.state.partitions import ROOT, partition_id_of
from dormouse.state.state import Entry, TableState

_AT_ONCE = 100_000
_BATCHES = 4


def _columns(names: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> pa.Table:
    """Return rows as columns; few of them are objects at a time."""
    schema = pa.schema([(name, COLUMNS[name]) for name in names])
    tables = [schema.empty_table()]
    while some := list(islice(rows, _AT_ONCE)):
        cells = dict(zip(names, zip(*some, strict=True), strict=True))
        tables.append(pa.table({name: pa.array(cells[name], COLUMNS[name]) for name in names}))
    return pa.concat_tables(tables)


def _bound(leaf: int, leaves: int) -> tuple[str] | None:
    return key(leaf * KEYS // leaves) if 0 < leaf < leaves else None


def _partitions(leaves: int) -> Iterator[tuple[object, ...]]:
    """Yield a balanced tree as rows; the leaves come in key order."""
    pending: list[tuple[int, int, str, str | None]] = [(0, leaves, ROOT, None)]
    while pending:
        low, high, name, parent = pending.pop()
        start, end = _bound(low, leaves), _bound(high, leaves)
        ends = encode_key(start or ()), None if end is None else encode_key(end)
        if high - low == 1:
            yield name, *ends, parent, None, 0
            continue
        middle = (low + high) // 2
        at = _bound(middle, leaves)
        assert at is not None
        halves = (low, middle, KeyRange(start or (), at)), (middle, high, KeyRange(at, end))
        named = [(a, b, partition_id_of(span), name) for a, b, span in halves]
        yield name, *ends, parent, [each[2] for each in named], (high - low - 1).bit_length()
        pending += reversed(named)


def _shards(leaves: int) -> Iterator[tuple[object, ...]]:
    """Yield the shards of each leaf, in key order of the leaves."""
    for leaf in range(leaves):
        low, high = leaf * KEYS // leaves, (leaf + 1) * KEYS // leaves - 1
        for i in range(PER_PARTITION):
            span = encode_key(key(low + i)), encode_key(key(high - i))
            yield f"{digest(f'{leaf}/{i}')}-0", 1000, 64_000, *span


def large_state(references: int) -> TableState:
    """Return a state of so many references, a tenth as many leaves, and no sources."""
    leaves = references // PER_PARTITION
    made = _columns(ITEMS["partition"], _partitions(leaves))
    of_leaves = made.filter(pc.is_null(made["children"]))["id"].combine_chunks()
    partitions = sorted_by(made, "id")
    made = _columns(ITEMS["shard"], _shards(leaves))
    ids: Column = made["id"].combine_chunks()
    shards = sorted_by(made, "id")
    held = places_among(of_leaves, partitions["id"].combine_chunks())
    numbers = pa.array(range(leaves), pa.int32())
    each = pa.concat_arrays([numbers] * PER_PARTITION).take(
        pc.sort_indices(pa.concat_arrays([numbers] * PER_PARTITION))
    )
    count = leaves * PER_PARTITION
    named = pa.table(
        {
            "partition_row": held.take(each),
            "shard_row": places_among(ids, shards["id"].combine_chunks()),
            "rows": pa.repeat(pa.scalar(1000, pa.int64()), count),
            "exact": pa.repeat(pa.scalar(True), count),
            "job": pa.nulls(count, pa.string()),
        }
    )
    del made, ids
    rows = {"partition": partitions, "shard": shards}
    rows["reference"] = sorted_by(named, "partition_row", "shard_row")
    for item, names in ITEMS.items():
        rows.setdefault(item, pa.table({name: pa.array([], COLUMNS[name]) for name in names}))
    return state_of(rows.pop, facts_of(TABLE, TableState()))


def make(references: int, snapshot: str) -> None:
    """Make a state, and measure its snapshot, as maintenance writes it."""
    state = large_state(references)
    body, figures = kept(lambda: encode_snapshot(TABLE, state, has_key_index=True))
    Path(snapshot).write_bytes(body)
    emit("large", "snapshot", references, **figures, size_bytes=len(body))


def load(references: int, snapshot: str) -> None:
    """Measure a load of the snapshot, and the fold of commits after it."""
    decode_snapshot(TABLE, encode_snapshot(TABLE, TableState()), "empty")  # what is loaded lazily
    body = [Path(snapshot).read_bytes()]
    state, figures = kept(lambda: decode_snapshot(TABLE, body[0], "a snapshot"))
    figures["peak_rss_bytes"] += len(body[0])
    emit("large", "load", references, **figures)
    body.clear()
    clock = Clock()
    deltas = Mix(state, Ids(clock, 3), 4).deltas()
    gc.disable()
    for number in range(_BATCHES):
        batch = [[Entry(one, clock.ms, 0) for one in delta] for delta in islice(deltas, 51)]
        began = time.process_time()
        for entries in batch:
            state, _ = fold_delta(state, entries)
        seconds = time.process_time() - began
        if number:
            emit("large", f"fold {number}", references, cpu_microseconds=seconds / 51 * 1e6)


def plan(references: int, snapshot: str) -> None:
    """Measure plans of one key by processes that begin."""
    show_plans("large", "plan", references, cold_plans(table_of(Path(snapshot).read_bytes())))


_FUNCTION = 130e6
"""What a function has in memory before it loads anything, in bytes, about."""
LIMITS = (
    ("plan_table, of 2,048 MB, writes the snapshot", "writing_bytes", 2048e6 - _FUNCTION),
    ("a function of 1,769 MB loads the state", "load_peak_rss_bytes", 1769e6 - _FUNCTION),
    ("a function of 10,240 MB loads the state", "load_peak_rss_bytes", 10_240e6 - _FUNCTION),
    ("ids of shards in one column of Arrow (2 GB)", "id_bytes", 2.0**31),
    ("a snapshot by one PUT (5 GB)", "snapshot_size_bytes", 5.0 * 2**30),
    ("a snapshot as items of DynamoDB", "snapshot_size_bytes", float(MOST_PARTS * PART_BYTES)),
)
"""What breaks, by which figure, and from which size of it on."""


def verdict(references: int, figures: dict[str, float]) -> Iterator[str]:
    """Yield at how many references each limit is met, if all grows with their number."""
    figures["id_bytes"] = 34 * references
    figures["writing_bytes"] = figures["load_state_rss_bytes"] + figures["snapshot_peak_rss_bytes"]
    for what, figure, most in LIMITS:
        yield f"{what}: up to {short(most / figures[figure] * references)} references"


def main() -> None:
    """Measure a size: by processes of their own, one for each part."""
    references = int(float(sys.argv[1])) if len(sys.argv) > 1 else 10**7
    figures: dict[str, float] = {}
    with TemporaryDirectory() as folder:
        for part in ("make", "load", "plan"):
            lines = elsewhere(f"state.large:{part}", references, f"{folder}/snapshot")
            print(lines, end="", flush=True)
            figures |= {f"{f.of}_{f.figure}": f.value for f in parsed(lines)}
    print("\n".join(verdict(references, figures)))


if __name__ == "__main__":
    main()
