"""The items of a snapshot as rows: the columns of each, and how its entries are written in them.

Used by `codec` and `changes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from dormouse.model.disputes import Dispute, RowsTaken
from dormouse.model.partitions import Partition
from dormouse.model.shards import Job, Reference, Shard
from dormouse.model.source_segments import SourceSegment
from dormouse.model.state import TableState
from dormouse.schema.key_types import KeyTypes
from dormouse.schema.schema import Primitive
from dormouse.statestore.by_key.blocks import Facts
from dormouse.statestore.snapshot.columns import Column
from dormouse.stored.decoding import decode_json, raise_corrupt

_TAKINGS = pa.list_(
    pa.struct(
        [
            ("job", pa.string()),
            ("partition", pa.string()),
            ("rows", pa.int64()),
            ("low", pa.binary()),
            ("high", pa.binary()),
        ]
    )
)
COLUMNS: dict[str, pa.DataType] = {
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
    "takings": _TAKINGS,
    "reason": pa.string(),
    "version": pa.int64(),
}

# The columns of each item. References name partition and shard by their rows in those row groups.
# A job's time is when it was assigned, of the others when they were committed or, for the shards
# without references, lost the last; a source has the version it came with. What was remembered
# has a digest instead of an id where all ids are 32 hex digits.
_PARTITION = ("id", "min_key", "max_key", "parent", "children", "height")
_SHARD = ("id", "rows", "size_bytes", "min_key", "max_key")
REFERENCE = ("partition_row", "shard_row", "rows", "exact", "job")
_JOB = ("id", "partition", "inputs", "time_ms", "purge_id", "request_key")
_TIMED = ("id", "time_ms")
_VERSIONED = ("id", "version")
_TAKEN = ("id", "takings")
_DISPUTE = ("id", "reason", "time_ms", "inputs")  # these are the jobs that raised it
ITEMS = {
    "partition": _PARTITION,
    "shard": _SHARD,
    "reference": REFERENCE,
    "job": _JOB,
    "unreferenced": (*_TIMED, "digest"),
    "source": (*_VERSIONED, "digest"),
    "transaction": (*_TIMED, "digest"),
    "taken": _TAKEN,
    "dispute": _DISPUTE,
}


def facts_of(table_id: str, state: TableState) -> dict[str, str]:
    """Return what the footer says of a state: all of it that is not in rows."""
    return {
        "dormouse.table": table_id,
        "dormouse.version": str(state.version),
        "dormouse.generation": str(state.generation),
        "dormouse.key_types": " ".join(kind.value for kind in state.key_types),
        "dormouse.time_ms": str(state.time_ms),
        "dormouse.items": " ".join(ITEMS),
        "dormouse.sealed": encode_sealed(state).decode(),
    }


def types_of(facts: Mapping[str, str]) -> KeyTypes:
    """Return the types of row keys that the footer names. Raises ValueError: one is not known."""
    return tuple(map(Primitive, facts["dormouse.key_types"].split()))


def key_facts(facts: Mapping[str, str], after: int) -> Facts:
    """Return what a key index says of a state, from what the footer says (`facts_of`).

    An increment follows version `after`.
    """
    return Facts(
        after=after,
        version=int(facts["dormouse.version"]),
        time_ms=int(facts["dormouse.time_ms"]),
        generation=int(facts["dormouse.generation"]),
        key_types=types_of(facts),
    )


def partition_row(partition_id: str, partition: Partition) -> tuple[object, ...]:
    """Return a partition as a row."""
    span, place = partition.range, (partition.parent, partition.children, partition.height)
    return partition_id, span.low, span.high, *place


def shard_row(shard_id: str, shard: Shard) -> tuple[object, ...]:
    """Return a shard as a row."""
    return shard_id, shard.rows, shard.size_bytes, shard.low, shard.high


def job_row(job_id: str, job: Job) -> tuple[object, ...]:
    """Return a job as a row."""
    return job_id, job.partition, job.inputs, job.assigned_ms, job.purge_id, job.request_key


def marks_row(reference: Reference) -> tuple[object, ...]:
    """Return what a row says of a reference beside its partition and shard."""
    return reference.rows, reference.exact, reference.job


def number_row(name: str, number: int) -> tuple[object, ...]:
    """Return an id and its time or version as a row."""
    return name, number


def table_of(columns: Sequence[str], rows: Sequence[tuple[object, ...]]) -> pa.Table:
    """Return rows as a table of these columns."""
    return pa.table(columns_of(columns, rows))


def columns_of(names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> dict[str, Column]:
    """Return rows as these columns."""
    values = zip(*rows, strict=True) if rows else [()] * len(names)
    return {name: pa.array(cells, COLUMNS[name]) for name, cells in zip(names, values, strict=True)}


def sorted_by(rows: pa.Table, *names: str) -> pa.Table:
    """Return rows in order and in one piece."""
    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names])
    return rows.take(order).combine_chunks()


def row_group(item: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows of an item with all columns of a file; those it does not have are null."""
    size = len(rows)
    given = {"item": pa.repeat(pa.scalar(item), size)} | {n: rows[n] for n in rows.column_names}
    absent: dict[str, Column] = {
        name: pa.nulls(size, kind)  # type: ignore[call-overload]  # any type will do
        for name, kind in zip(schema.names, schema.types, strict=True)
        if name not in given
    }
    return pa.table({name: (given | absent)[name] for name in schema.names}, schema=schema)


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to which version sources are in segments, and which these are."""

    sealed_to: int
    segments: tuple[SourceSegment, ...]
    adopted: tuple[SourceSegment, ...]


def encode_sealed(state: TableState) -> bytes:
    """Return the stored form."""
    return msgspec.json.encode(
        Sealed(state.sealed_to, state.source_segments, state.adopted_segments)
    )


def decode_sealed(body: bytes, where: str) -> Sealed:
    """Return what `encode_sealed` stored; `where` names its place in errors.

    Raises:
        CorruptDataError: it is damaged.
    """
    with raise_corrupt(f"{where} does not say which sources are sealed"):
        return decode_json(body, Sealed)


def taken_row(shard_id: str, takings: tuple[RowsTaken, ...]) -> tuple[object, ...]:
    """Return what was taken of a shard as a row."""
    return shard_id, [_taking(taking) for taking in takings]


def _taking(taking: RowsTaken) -> tuple[object, ...]:
    return taking.job, taking.partition, taking.rows, taking.range.low, taking.range.high


def dispute_row(shard_id: str, dispute: Dispute) -> tuple[object, ...]:
    """Return a dispute as a row."""
    return shard_id, dispute.reason.value, dispute.since_ms, dispute.jobs
