"""The rows of a delta: one for each transaction, with its kind and what a transaction of it holds.

Deltas and segments hold these rows (`codec`, `segments`). What is stored does not follow the names
of classes. The golden files in ``tests/unit/statestore/golden`` hold each kind of row as it is
stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache

import msgspec

from dormouse.errors import CorruptDataError
from dormouse.key_forms.stored import decode_key, encode_key
from dormouse.keys.ranges import KeyRange
from dormouse.model.disputes import DisputeReason
from dormouse.model.partitions import Partition
from dormouse.model.shards import NewShard, Shard
from dormouse.model.source_segments import SourceSegment
from dormouse.model.transactions import (
    AddShards,
    AdoptSegments,
    AssignJob,
    DeleteShards,
    DisputeShards,
    Entry,
    ExtendTree,
    InitialisePartitions,
    RaiseRules,
    ReleaseJob,
    ReplaceShards,
    ResetTable,
    ResolveDisputes,
    RestoreVersion,
    SealSources,
    SplitPartition,
    Transaction,
)
from dormouse.schema.key_types import KeyTypes
from dormouse.schema.schema import Primitive
from dormouse.stored.decoding import convert_plain, raise_corrupt


class _Placed(msgspec.Struct):
    partition: str
    rows: int


class _ShardRows(msgspec.Struct):
    shard: str
    rows: int


class _Dispute(msgspec.Struct):
    shard: str
    since_ms: int


class _Shard(msgspec.Struct):
    id: str
    rows: int
    size_bytes: int
    min_key: bytes
    max_key: bytes
    placed: tuple[_Placed, ...]


class _Partition(msgspec.Struct):
    id: str
    min_key: bytes
    max_key: bytes | None
    parent: str | None
    children: tuple[str, str] | None
    height: int


class _Stored(msgspec.Struct, tag_field="kind", forbid_unknown_fields=True):
    time_ms: int
    generation: int


class _InitialisePartitions(_Stored, tag="initialise_partitions"):
    partitions: tuple[_Partition, ...]
    key_types: tuple[str, ...]
    rules: int


class _RaiseRules(_Stored, tag="raise_rules"):
    rules: int


class _AddShards(_Stored, tag="add_shards"):
    job: str
    sources: tuple[str, ...]
    shards: tuple[_Shard, ...]
    looked_up_to: int


class _AssignJob(_Stored, tag="assign_job"):
    job: str
    partition: str
    inputs: tuple[str, ...]
    purge_id: str | None = None
    request_key: str | None = None


class _ReleaseJob(_Stored, tag="release_job"):
    job: str


class _ReplaceShards(_Stored, tag="replace_shards"):
    job: str
    partition: str
    inputs: tuple[str, ...]
    shards: tuple[_Shard, ...]
    rows_taken: tuple[_ShardRows, ...]
    rows_removed: int


class _SplitPartition(_Stored, tag="split_partition"):
    partition: str
    at: bytes
    rows_left: tuple[_ShardRows, ...]


class _Split(msgspec.Struct):
    partition: str
    at: bytes


class _ExtendTree(_Stored, tag="extend_tree"):
    splits: tuple[_Split, ...]


class _DeleteShards(_Stored, tag="delete_shards"):
    deleted: tuple[str, ...]


class _DisputeShards(_Stored, tag="dispute_shards"):
    disputed: tuple[str, ...]
    reason: DisputeReason
    job: str


class _ResolveDisputes(_Stored, tag="resolve_disputes"):
    resolved: tuple[_Dispute, ...]


class _SealSources(_Stored, tag="seal_sources"):
    segments: tuple[SourceSegment]
    replaced: tuple[str, ...]


class _AdoptSegments(_Stored, tag="adopt_segments"):
    segments: tuple[SourceSegment, ...]


class _ResetTable(_Stored, tag="reset_table"):
    new_generation: int
    partitions: tuple[_Partition, ...]
    key_types: tuple[str, ...]


class _RestoreVersion(_Stored, tag="restore_version"):
    new_generation: int
    version: int


_Row = (
    _InitialisePartitions
    | _RaiseRules
    | _AddShards
    | _AssignJob
    | _ReleaseJob
    | _ReplaceShards
    | _SplitPartition
    | _ExtendTree
    | _DeleteShards
    | _DisputeShards
    | _ResolveDisputes
    | _SealSources
    | _AdoptSegments
    | _ResetTable
    | _RestoreVersion
)


def rows_of(entries: Sequence[Entry]) -> list[dict[str, object]]:
    """Return a row for each entry, with those of `COLUMNS` that its kind has."""
    return [msgspec.to_builtins(_row(entry), builtin_types=(bytes,)) for entry in entries]


def entries_of(rows: Sequence[Mapping[str, object]], where: str) -> tuple[Entry, ...]:
    """Return the entry of each row. Raises CorruptDataError; `where` names the file in it."""
    present = [{k: v for k, v in row.items() if v is not None} for row in rows]
    with _unknown_refused(where):
        return tuple(_entry(row) for row in convert_plain(present, list[_Row]))


def packed_rows(entries: Sequence[Entry]) -> bytes:
    """Return the rows of entries as MessagePack."""
    return msgspec.msgpack.encode([_row(entry) for entry in entries])


def unpacked_entries(packed: bytes | msgspec.Raw, where: str) -> tuple[Entry, ...]:
    """Return the entries of rows in MessagePack, decoded without a step between.

    Raises: as `entries_of`.
    """
    with _unknown_refused(where):
        return tuple(_entry(row) for row in _decoder().decode(packed))


@cache
def _decoder() -> msgspec.msgpack.Decoder[list[_Row]]:
    return msgspec.msgpack.Decoder(list[_Row])


@contextmanager
def _unknown_refused(where: str) -> Iterator[None]:
    try:
        yield
    except msgspec.ValidationError as error:
        raise CorruptDataError(
            f"{where} holds what no known transaction looks like: {error}",
            hint="if a later version of Dormouse wrote it, upgrade this one",
        ) from error


def _row(entry: Entry) -> _Row:  # noqa: C901  # a case a kind
    at = (entry.time_ms, entry.generation)
    match entry.transaction:
        case InitialisePartitions(partitions=partitions, key_types=key_types, rules=rules):
            stored = _stored_partitions(partitions)
            return _InitialisePartitions(*at, stored, stored_types(key_types), rules)
        case RaiseRules(rules=rules):
            return _RaiseRules(*at, rules)
        case AddShards(job=job, sources=sources, shards=shards, looked_up_to=looked_up_to):
            return _AddShards(*at, job, sources, _stored_shards(shards), looked_up_to)
        case AssignJob(job=job, partition=partition, inputs=inputs) as assigned:
            cause = assigned.purge_id, assigned.request_key
            return _AssignJob(*at, job, partition, inputs, *cause)
        case ReleaseJob(job=job):
            return _ReleaseJob(*at, job)
        case ReplaceShards(job=job, partition=partition, inputs=inputs, outputs=outputs) as done:
            taken, removed = _shard_rows(done.rows_taken), done.rows_removed
            added = _stored_shards(outputs)
            return _ReplaceShards(*at, job, partition, inputs, added, taken, removed)
        case SplitPartition(partition=partition, at=key, rows_left=rows_left):
            return _SplitPartition(*at, partition, encode_key(key), _shard_rows(rows_left))
        case ExtendTree(splits=splits):
            return _ExtendTree(*at, tuple(_Split(p, encode_key(key)) for p, key in splits))
        case DeleteShards(shards=shards):
            return _DeleteShards(*at, shards)
        case DisputeShards(shards=shards, reason=reason, job=job):
            return _DisputeShards(*at, shards, reason, job)
        case ResolveDisputes(disputes=disputes):
            return _ResolveDisputes(*at, tuple(_Dispute(*item) for item in disputes))
        case SealSources(segment=segment, replaced=replaced):
            return _SealSources(*at, (segment,), replaced)
        case AdoptSegments(segments=segments):
            return _AdoptSegments(*at, segments)
        case ResetTable(generation=generation, partitions=partitions, key_types=key_types):
            stored = _stored_partitions(partitions)
            return _ResetTable(*at, generation, stored, stored_types(key_types))
        case RestoreVersion(generation=generation, version=version):
            return _RestoreVersion(*at, generation, version)


def _entry(row: _Row) -> Entry:
    return Entry(_transaction(row), row.time_ms, row.generation)


def _transaction(row: _Row) -> Transaction:  # noqa: C901  # a case a kind
    match row:
        case _InitialisePartitions():
            types = types_of_stored(row.key_types)
            return InitialisePartitions(_partitions(row.partitions), types, row.rules)
        case _RaiseRules():
            return RaiseRules(row.rules)
        case _AddShards():
            return AddShards(row.job, row.sources, _shards(row.shards), row.looked_up_to)
        case _AssignJob():
            return AssignJob(row.job, row.partition, row.inputs, row.purge_id, row.request_key)
        case _ReleaseJob():
            return ReleaseJob(row.job)
        case _ReplaceShards():
            taken, removed = _counts(row.rows_taken), row.rows_removed
            added = _shards(row.shards)
            return ReplaceShards(row.job, row.partition, row.inputs, added, taken, removed)
        case _SplitPartition():
            return SplitPartition(row.partition, decode_key(row.at), _counts(row.rows_left))
        case _ExtendTree():
            return ExtendTree(tuple((item.partition, decode_key(item.at)) for item in row.splits))
        case _DeleteShards():
            return DeleteShards(row.deleted)
        case _DisputeShards():
            return DisputeShards(row.disputed, row.reason, row.job)
        case _ResolveDisputes():
            return ResolveDisputes(tuple((item.shard, item.since_ms) for item in row.resolved))
        case _SealSources():
            return SealSources(row.segments[0], row.replaced)
        case _AdoptSegments():
            return AdoptSegments(row.segments)
        case _ResetTable():
            types = types_of_stored(row.key_types)
            return ResetTable(row.new_generation, _partitions(row.partitions), types)
        case _RestoreVersion():
            return RestoreVersion(row.new_generation, row.version)


def _shard_rows(counts: tuple[tuple[str, int], ...]) -> tuple[_ShardRows, ...]:
    return tuple(_ShardRows(*item) for item in counts)


def _counts(stored: tuple[_ShardRows, ...]) -> tuple[tuple[str, int], ...]:
    return tuple((item.shard, item.rows) for item in stored)


def stored_types(types: KeyTypes) -> tuple[str, ...]:
    """Return the stored form of the types of row keys: their names in the JSON form of a schema."""
    return tuple(kind.value for kind in types)


def types_of_stored(names: Sequence[str]) -> KeyTypes:
    """Return the types of these names. Raises CorruptDataError if one is not known."""
    with raise_corrupt("the types of row keys cannot be read"):
        return tuple(Primitive(name) for name in names)


def _stored_shards(shards: tuple[NewShard, ...]) -> tuple[_Shard, ...]:
    return tuple(
        _Shard(
            id=new.shard.id,
            rows=new.shard.rows,
            size_bytes=new.shard.size_bytes,
            min_key=encode_key(new.shard.min_key),
            max_key=encode_key(new.shard.max_key),
            placed=tuple(_Placed(*item) for item in new.rows_by_partition),
        )
        for new in shards
    )


def _shards(stored: tuple[_Shard, ...]) -> tuple[NewShard, ...]:
    return tuple(
        NewShard(
            Shard(
                item.id,
                item.rows,
                item.size_bytes,
                decode_key(item.min_key),
                decode_key(item.max_key),
            ),
            tuple([(placed.partition, placed.rows) for placed in item.placed]),
        )
        for item in stored
    )


def _stored_partitions(partitions: tuple[Partition, ...]) -> tuple[_Partition, ...]:
    return tuple(
        _Partition(
            id=partition.id,
            min_key=encode_key(partition.range.min),
            max_key=None if partition.range.max is None else encode_key(partition.range.max),
            parent=partition.parent,
            children=partition.children,
            height=partition.height,
        )
        for partition in partitions
    )


def _partitions(stored: tuple[_Partition, ...]) -> tuple[Partition, ...]:
    return tuple(
        Partition(
            item.id,
            KeyRange(
                decode_key(item.min_key), None if item.max_key is None else decode_key(item.max_key)
            ),
            item.parent,
            item.children,
            item.height,
        )
        for item in stored
    )
