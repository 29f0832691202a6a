"""The stored form of a whole state: one Parquet file, a row group for each sort of thing in it.

Every row says in `item` what it is; the version is in the footer. Counts that follow from the rest
are not stored. Used by `follower` and `s3`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rpds import HashTrieMap

from dormouse.errors import CorruptDataError
from dormouse.model.keys import KeyRange, decode_key, encode_key
from dormouse.model.partitions import Partition, PartitionTree
from dormouse.model.shards import Job, Reference, Shard
from dormouse.model.state import TableState
from dormouse.statestore.codec_file import read_file, write_file

KIND, FORMAT = "snapshot", 1

_COLUMNS: dict[str, pa.DataType] = {
    "item": pa.string(),
    "id": pa.string(),
    "partition": pa.string(),
    "rows": pa.int64(),
    "exact": pa.bool_(),
    "size_bytes": pa.int64(),
    "min_key": pa.binary(),
    "max_key": pa.binary(),
    "parent": pa.string(),
    "children": pa.list_(pa.string()),
    "job": pa.string(),
    "inputs": pa.list_(pa.string()),
    "time_ms": pa.int64(),
}
_SCHEMA = pa.schema(list(_COLUMNS.items()))

# The columns of each item. A shard's time is when it lost its last reference, a job's when it was
# assigned, a source's or transaction's when it was committed.
_PARTITION = ("id", "min_key", "max_key", "parent", "children")
_SHARD = ("id", "rows", "size_bytes", "min_key", "max_key", "job", "time_ms")
_REFERENCE = ("partition", "id", "rows", "exact", "job")
_JOB = ("id", "partition", "inputs", "time_ms")
_REMEMBERED = ("id", "time_ms")


def encode_snapshot(table_id: str, state: TableState) -> bytes:
    """Give the stored form of `state`, the same bytes for equal states."""
    by_id = attrgetter("id")
    partitions = sorted(state.partitions.by_id.values(), key=by_id)
    shards = sorted(state.shards.values(), key=by_id)
    references = sorted(state.all_references(), key=attrgetter("partition", "shard"))
    jobs = sorted(state.jobs.values(), key=by_id)
    tables = (
        _table("partition", _PARTITION, [_partition_row(p) for p in partitions]),
        _table("shard", _SHARD, [_shard_row(s, state.unreferenced.get(s.id)) for s in shards]),
        _table(
            "reference",
            _REFERENCE,
            [(r.partition, r.shard, r.rows, r.exact, r.job) for r in references],
        ),
        _table("job", _JOB, [(j.id, j.partition, j.inputs, j.assigned_ms) for j in jobs]),
        _table("source", _REMEMBERED, sorted(state.sources.items())),
        _table("transaction", _REMEMBERED, sorted(state.transactions.items())),
    )
    facts = {
        "dormouse.table": table_id,
        "dormouse.version": str(state.version),
        "dormouse.generation": str(state.generation),
        "dormouse.time_ms": str(state.time_ms),
    }
    return write_file(tables, _SCHEMA, KIND, FORMAT, facts)


def decode_snapshot(table_id: str, body: bytes, where: str) -> TableState:
    """Give the state of a snapshot of this table; `where` names it in errors.

    Raises:
        CorruptDataError: it is damaged, another table's, or from a later version of Dormouse.
    """
    table, facts = read_file(body, KIND, FORMAT, where)
    if facts.get("dormouse.table") != table_id:
        raise CorruptDataError(f"{where} is not a snapshot of table {table_id}")
    try:
        return _state(table, facts)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"{where} does not hold a whole state: {error!r}") from error


def _state(table: pa.Table, facts: dict[str, str]) -> TableState:
    references: dict[str, dict[str, Reference]] = {}
    counts: Counter[str] = Counter()
    for partition, shard, rows, exact, job in _rows(table, "reference", _REFERENCE):
        references.setdefault(partition, {})[shard] = Reference(partition, shard, rows, exact, job)
        counts[shard] += 1
    shards: dict[str, Shard] = {}
    unreferenced: dict[str, int] = {}
    for shard_id, rows, size_bytes, low, high, job, time_ms in _rows(table, "shard", _SHARD):
        span = decode_key(low), decode_key(high)
        shards[shard_id] = Shard(shard_id, rows, size_bytes, *span, job)
        if time_ms is not None:
            unreferenced[shard_id] = time_ms
    jobs = {
        job_id: Job(job_id, partition, tuple(inputs), time_ms)
        for job_id, partition, inputs, time_ms in _rows(table, "job", _JOB)
    }
    return TableState(
        version=int(facts["dormouse.version"]),
        time_ms=int(facts["dormouse.time_ms"]),
        generation=int(facts["dormouse.generation"]),
        partitions=PartitionTree.of(_partitions(table)),
        shards=HashTrieMap(shards),
        references=HashTrieMap({p: HashTrieMap(held) for p, held in references.items()}),
        reference_counts=HashTrieMap({shard: counts[shard] for shard in shards}),
        unreferenced=HashTrieMap(unreferenced),
        jobs=HashTrieMap(jobs),
        sources=HashTrieMap(dict(_rows(table, "source", _REMEMBERED))),
        transactions=HashTrieMap(dict(_rows(table, "transaction", _REMEMBERED))),
    )


def _partition_row(partition: Partition) -> tuple[object, ...]:
    low, high = partition.range.min, partition.range.max
    end = None if high is None else encode_key(high)
    return partition.id, encode_key(low), end, partition.parent, partition.children


def _partitions(table: pa.Table) -> Iterator[Partition]:
    for partition_id, low, high, parent, children in _rows(table, "partition", _PARTITION):
        span = KeyRange(decode_key(low), None if high is None else decode_key(high))
        halves = None
        if children is not None:
            left, right = children
            halves = (left, right)
        yield Partition(partition_id, span, parent, halves)


def _shard_row(shard: Shard, unreferenced_ms: int | None) -> tuple[object, ...]:
    span = encode_key(shard.min_key), encode_key(shard.max_key)
    return shard.id, shard.rows, shard.size_bytes, *span, shard.job, unreferenced_ms


def _table(item: str, columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> pa.Table:
    values = dict(zip(columns, zip(*rows, strict=True), strict=True)) if rows else {}
    values["item"] = (item,) * len(rows)
    absent = (None,) * len(rows)
    arrays = [pa.array(values.get(name, absent), kind) for name, kind in _COLUMNS.items()]
    return pa.Table.from_arrays(arrays, schema=_SCHEMA)


def _rows(table: pa.Table, item: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Give the rows of one item; their types are the schema's, which `Any` stands for."""
    chosen = table.filter(pc.equal(table["item"], pa.scalar(item)))
    yield from zip(*(chosen[name].to_pylist() for name in columns), strict=True)
