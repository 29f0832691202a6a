"""The stored form of a whole state: one Parquet file, a row group for each sort of thing in it.

Every row says in `item` what it is; the version is in the footer, and the order of the row groups.
Each is sorted, so that what is read serves as the base of a state as it is (`snapshot_columns`),
and what did not change since is written again without a look at it. Totals and counts that follow
from the rest are not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rpds import HashTrieMap

from dormouse.errors import CorruptDataError, InvariantError
from dormouse.key_forms.stored import encode_key
from dormouse.model.overlay_map import TOMBSTONE, OverlayMap
from dormouse.model.partitions import Partition, PartitionTree
from dormouse.model.shards import Job, PartitionReferences, Shard
from dormouse.model.state import TableState
from dormouse.statestore.delta.rows import stored_types, types_of_stored
from dormouse.statestore.parquet_file import open_file, write_file
from dormouse.statestore.snapshot.columns import (
    Column,
    ReferenceMap,
    StoredIds,
    StoredMap,
    column,
    number_columns,
    partition_columns,
    piece,
    remembered_columns,
    shard_columns,
)
from dormouse.statestore.snapshot.digests import packed, unpacked
from dormouse.statestore.snapshot.disputes import (
    DISPUTE,
    TAKEN,
    TAKINGS,
    dispute_columns,
    dispute_row,
    taken_columns,
    taken_row,
)
from dormouse.statestore.snapshot.sealed import decode_sealed, encode_sealed

V = TypeVar("V")

KIND, FORMAT = "snapshot", 4

_COLUMNS: dict[str, pa.DataType] = {
    "item": pa.string(),
    "id": pa.string(),
    "digest": pa.binary(16),
    "partition": pa.string(),
    "partition_row": pa.int32(),
    "shard_row": pa.int32(),
    "rows": pa.int64(),
    "exact": pa.bool_(),
    "size_bytes": pa.int64(),
    "min_key": pa.binary(),
    "max_key": pa.binary(),
    "parent": pa.string(),
    "children": pa.list_(pa.string()),
    "height": pa.int64(),
    "job": pa.string(),
    "inputs": pa.list_(pa.string()),
    "purge_id": pa.string(),
    "request_key": pa.string(),
    "time_ms": pa.int64(),
    "takings": TAKINGS,
    "reason": pa.string(),
    "version": pa.int64(),
}
_SCHEMA = pa.schema(list(_COLUMNS.items()))

# The columns of each item. References name partition and shard by their rows in those row groups.
# A job's time is when it was assigned, of the others when they were committed or, for the shards
# without references, lost the last; a source has the version it came with. What was remembered
# has a digest instead of an id where all ids are 32 hex digits.
_PARTITION = ("id", "min_key", "max_key", "parent", "children", "height")
_SHARD = ("id", "rows", "size_bytes", "min_key", "max_key")
_REFERENCE = ("partition_row", "shard_row", "rows", "exact", "job")
_JOB = ("id", "partition", "inputs", "time_ms", "purge_id", "request_key")
_TIMED = ("id", "time_ms")
_VERSIONED = ("id", "version")
_ITEMS = {
    "partition": _PARTITION,
    "shard": _SHARD,
    "reference": _REFERENCE,
    "job": _JOB,
    "unreferenced": (*_TIMED, "digest"),
    "source": (*_VERSIONED, "digest"),
    "transaction": (*_TIMED, "digest"),
    "taken": TAKEN,
    "dispute": DISPUTE,
}


def encode_snapshot(table_id: str, state: TableState) -> bytes:
    """Return the stored form of `state`, the same bytes for equal states."""
    facts = {
        "dormouse.table": table_id,
        "dormouse.version": str(state.version),
        "dormouse.generation": str(state.generation),
        "dormouse.rules": str(state.rules),
        "dormouse.key_types": " ".join(stored_types(state.key_types)),
        "dormouse.time_ms": str(state.time_ms),
        "dormouse.items": " ".join(_ITEMS),
        "dormouse.sealed": encode_sealed(state).decode(),
    }
    groups = (_row_group(item, rows) for item, rows in _items(state))
    return write_file(groups, _SCHEMA, KIND, FORMAT, facts, repeating=["item"])


def _items(state: TableState) -> Iterator[tuple[str, pa.Table]]:
    """Return the rows of each item when they are asked for, so that not all take memory at once."""
    rows = _merged(state.partitions.by_id, _PARTITION, _partition_row)
    yield "partition", rows
    partition_ids = column(rows, "id")
    rows = _merged(state.shards, _SHARD, _shard_row)
    yield "shard", rows
    shard_ids = column(rows, "id")
    del rows
    yield "reference", _references(state.references, partition_ids, shard_ids)
    jobs = [
        (j.id, j.partition, j.inputs, j.assigned_ms, j.purge_id, j.request_key)
        for j in state.jobs.values()
    ]
    yield "job", _sorted(_table(_JOB, jobs), "id")
    yield "unreferenced", _remembered(state.unreferenced, _TIMED)
    yield "source", _remembered(state.sources, _VERSIONED)
    yield "transaction", _remembered(state.transactions, _TIMED)
    yield "taken", _merged(state.taken, TAKEN, taken_row)
    yield "dispute", _merged(state.disputed, DISPUTE, dispute_row)


def decode_snapshot(table_id: str, body: bytes, where: str) -> TableState:
    """Return the state of a snapshot of this table; `where` names it in errors.

    Raises:
        CorruptDataError: it is damaged, another table's, or from a later version of Dormouse.
    """
    file, facts = open_file(body, KIND, FORMAT, where)
    if facts.get("dormouse.table") != table_id:
        raise CorruptDataError(f"{where} is not a snapshot of table {table_id}")
    try:
        return _state(file, facts)
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        raise CorruptDataError(f"{where} does not hold a whole state: {error!r}") from error


def _state(file: pq.ParquetFile, facts: dict[str, str]) -> TableState:
    groups = facts["dormouse.items"].split()

    def rows_of(item: str) -> pa.Table:
        columns = list(_ITEMS[item])
        # A thread of Arrow that still holds the body when Python ends would abort the process.
        found = file.read_row_group(groups.index(item), columns, use_threads=False)
        return found.select(_ITEMS[item]).combine_chunks()

    partitions, shards, references = rows_of("partition"), rows_of("shard"), rows_of("reference")
    partition_ids, shard_ids = StoredIds(column(partitions, "id")), StoredIds(column(shards, "id"))
    counts = number_columns(_counted(references, len(shards)), shard_ids)
    job_rows = zip(*(rows_of("job")[name].to_pylist() for name in _JOB), strict=True)
    jobs = {job: Job(job, where, tuple(shards), *rest) for job, where, shards, *rest in job_rows}
    sealed = decode_sealed(facts["dormouse.sealed"].encode(), "it")
    return TableState(
        version=int(facts["dormouse.version"]),
        time_ms=int(facts["dormouse.time_ms"]),
        generation=int(facts["dormouse.generation"]),
        rules=int(facts["dormouse.rules"]),
        key_types=types_of_stored(facts["dormouse.key_types"].split()),
        partitions=PartitionTree(OverlayMap(partition_columns(partitions, partition_ids))),
        shards=OverlayMap(shard_columns(shards, shard_ids)),
        references=OverlayMap(ReferenceMap(references, partition_ids, shard_ids)),
        rows=pc.sum(references["rows"]).as_py() or 0,
        reference_count=len(references),
        reference_counts=OverlayMap(counts),
        taken=OverlayMap(taken_columns(rows_of("taken"))),
        disputed=OverlayMap(dispute_columns(rows_of("dispute"))),
        unreferenced=_numbers(rows_of("unreferenced"), "time_ms"),
        jobs=HashTrieMap(jobs),
        sources=_numbers(rows_of("source"), "version"),
        sealed_to=sealed.sealed_to,
        source_segments=sealed.segments,
        adopted_segments=sealed.adopted,
        transactions=_numbers(rows_of("transaction"), "time_ms"),
    )


def _counted(references: pa.Table, shards: int) -> Column:
    """Count the references of each shard, in the order of the shards.

    Raises:
        ValueError: a reference is to a shard there is not.
    """
    every = pa.array(range(shards), pa.int32())  # each is counted once too often, so none is missed
    named = pa.concat_arrays([every, column(references, "shard_row")])
    counted = _sorted(pa.Table.from_struct_array(pc.value_counts(named)), "values")
    if len(counted) != shards:
        raise ValueError("there are references to shards which are not there")
    return pc.subtract(column(counted, "counts"), 1)


def _numbers(rows: pa.Table, number: str) -> OverlayMap[str, int]:
    name = "id" if rows["digest"].null_count else "digest"
    kept = rows.select([name, number])
    ids = StoredIds(column(kept, name))
    return OverlayMap(remembered_columns(kept, ids, number))


def _remembered(numbers: OverlayMap[str, int], columns: tuple[str, str]) -> pa.Table:
    rows = _merged(numbers, columns, lambda name, at: (name, at))
    digests = packed(column(rows, "id"))
    if digests is None:
        return rows
    return pa.table({"digest": digests, columns[1]: rows[columns[1]]})


def _merged(
    entries: OverlayMap[str, V],
    columns: Sequence[str],
    row: Callable[[str, V], tuple[object, ...]],
) -> pa.Table:
    """Return all entries as rows sorted by id, taking those of the base as they are stored."""
    base = entries.base
    if not isinstance(base, StoredMap):
        return _sorted(_table(columns, [row(*entry) for entry in entries.items()]), "id")
    stored = base.rows
    if "digest" in stored.column_names:
        ids = unpacked(column(stored, "digest"))
        stored = pa.table({"id": ids, columns[1]: stored[columns[1]]})
    if not entries.changes:
        return stored
    changed = pa.array(list(entries.changes), pa.string())
    kept = stored.filter(pc.invert(pc.is_in(stored["id"], changed)))
    fresh = [row(name, value) for name, value in entries.changes.items() if value is not TOMBSTONE]
    return _sorted(pa.concat_tables([kept, _table(columns, fresh)]), "id")


def _references(
    references: OverlayMap[str, PartitionReferences], partitions: Column, shards: Column
) -> pa.Table:
    """Return all references as rows, which name partition and shard by their places in those
    ids."""
    base, changes = references.base, references.changes
    if isinstance(base, ReferenceMap):
        held = [held for held in changes.values() if held is not TOMBSTONE]
        kept = _moved(base, changes, partitions, shards)
    else:
        held, kept = list(references.values()), _table(_REFERENCE, [])
    fresh = [reference for holding in held for reference in holding]
    added = {
        "partition_row": _rows_of([r.partition for r in fresh], partitions),
        "shard_row": _rows_of([r.shard for r in fresh], shards),
        **_columns(_REFERENCE[2:], [(r.rows, r.exact, r.job) for r in fresh]),
    }
    return _sorted(pa.concat_tables([kept, pa.table(added)]), "partition_row", "shard_row")


def _moved(
    base: ReferenceMap, changed: Iterable[str], partitions: Column, shards: Column
) -> pa.Table:
    """Return the stored references of unchanged partitions, by their places in the present ids."""
    names = pa.array(list(changed), pa.string())
    places = pc.index_in(names, base.partitions.column).drop_null()
    kept = base.rows.filter(pc.invert(pc.is_in(base.rows["partition_row"], places)))
    to_partition = pc.index_in(base.partitions.column, partitions)
    to_shard = pc.index_in(base.shards.column, shards)
    moved = {
        "partition_row": _known(to_partition.take(column(kept, "partition_row"))),
        "shard_row": _known(to_shard.take(column(kept, "shard_row"))),
        **{name: piece(kept, name) for name in _REFERENCE[2:]},
    }
    return pa.table(moved)


def _rows_of(names: Sequence[str], ids: Column) -> Column:
    return _known(pc.index_in(pa.array(names, pa.string()), ids))


def _known(rows: Column) -> Column:
    if rows.null_count:
        raise InvariantError("there are references to shards or partitions which are not there")
    return rows


def _partition_row(partition_id: str, partition: Partition) -> tuple[object, ...]:
    low, high = partition.range.min, partition.range.max
    end = None if high is None else encode_key(high)
    place = partition.parent, partition.children, partition.height
    return partition_id, encode_key(low), end, *place


def _shard_row(shard_id: str, shard: Shard) -> tuple[object, ...]:
    span = encode_key(shard.min_key), encode_key(shard.max_key)
    return shard_id, shard.rows, shard.size_bytes, *span


def _table(columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> pa.Table:
    return pa.table(_columns(columns, rows))


def _columns(names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> dict[str, Column]:
    values = zip(*rows, strict=True) if rows else [()] * len(names)
    return {
        name: pa.array(cells, _COLUMNS[name]) for name, cells in zip(names, values, strict=True)
    }


def _sorted(rows: pa.Table, *names: str) -> pa.Table:
    """Return rows in order and in one piece."""
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])
    return rows.take(order).combine_chunks()


def _row_group(item: str, rows: pa.Table) -> pa.Table:
    size = len(rows)
    given = {"item": pa.repeat(pa.scalar(item), size)} | {n: rows[n] for n in rows.column_names}
    absent: dict[str, Column] = {
        name: pa.nulls(size, kind)  # type: ignore[call-overload]  # any type will do
        for name, kind in _COLUMNS.items()
        if name not in given
    }
    return pa.table({name: (given | absent)[name] for name in _COLUMNS}, schema=_SCHEMA)
