"""A state as records with names, each kept as items of its own; used by `dynamodb_snapshots`.

A record says what one partition, shard, reference, running job, taking or dispute is. What became
of it at a version is one item, ``<name>@<version>``, which holds the record or says that it is
gone; the newest item at or before a version is what counts at that version. So a name's item is
removed at the version of the name's next item, and nothing is ever changed:

- references: ``<table>#R<lane>``, ``<partition>/<shard>@<version>``;
- shards: ``<table>#S<lane>``, ``<shard>@<version>``, with the count of their references;
- partitions: ``<table>#P``, ``<partition>@<version>``;
  ``<table>#J``, ``<job>/<part>@<version>``, a thousand of a job's inputs in each part;
  ``<table>#T``, ``<shard>/<number>@<version>``, what a job took of a shard; and
  ``<table>#D``, ``<shard>@<version>``, a dispute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar
from zlib import crc32

from rpds import HashTrieMap

from dormouse.errors import CorruptDataError
from dormouse.key_forms.stored import decode_key, encode_key
from dormouse.keys.ranges import KeyRange
from dormouse.model.overlay_map import OverlayMap
from dormouse.model.partitions import Partition
from dormouse.model.shards import Job, PartitionReferences, Reference, Shard
from dormouse.model.state import TableState
from dormouse.statestore.dynamodb_disputes import dispute_to, takings_to
from dormouse.statestore.items import Item, ItemKey, ItemTable, Value, Values
from dormouse.stored.decoding import raise_corrupt

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T", str, int, bytes)

Kind = Literal["reference", "shard", "partition", "job", "taking", "dispute"]
KINDS: tuple[Kind, ...] = ("partition", "shard", "reference", "job", "taking", "dispute")

NAMED_BY_TWO: tuple[Kind, ...] = ("reference", "taking")
"""What is found by the first part of its name, all of it at once."""

LANES = 8
"""Hash keys over which what is much written is spread. Part of the stored form: never change it."""
_PLACES: dict[Kind, tuple[ItemTable, str, bool]] = {
    "reference": ("references", "R", True),
    "shard": ("shards", "S", True),
    "partition": ("partitions", "P", False),
    "job": ("partitions", "J", False),
    "taking": ("partitions", "T", False),
    "dispute": ("partitions", "D", False),
}
_INPUTS_PER_PART = 1000
_GONE: Values = {"gone": True}


@dataclass(frozen=True, slots=True)
class Name:
    """What a record is called."""

    kind: Kind
    text: str

    def key(self, table_id: str, version: int) -> ItemKey:
        """Return the key of the item that says what became of it at a version."""
        table, letter, spread = _PLACES[self.kind]
        # The references of one partition share a lane, so that one query gives them all.
        hash_key = f"{table_id}#{letter}" + (lane(self.text.partition("/")[0]) if spread else "")
        return ItemKey(table, hash_key, f"{self.text}@{padded(version)}")


@dataclass(frozen=True, slots=True)
class Change:
    """A name's record from some version on, None if it is gone, and whether it had one before."""

    name: Name
    record: Values | None
    supersedes: bool

    def item(self, table_id: str, version: int) -> Item:
        """Return the item that says so of a version."""
        record = _GONE if self.record is None else self.record
        return Item(self.name.key(table_id, version), record)


@dataclass(frozen=True, slots=True)
class KeptShard:
    """A shard with what the state says of it."""

    shard: Shard
    references: int
    unreferenced_ms: int | None


def padded(version: int) -> str:
    """Return a version so that text sorts as versions do."""
    return f"{version:012d}"


def lane(text: str) -> str:
    """Return the lane of what is called so."""
    return str(crc32(text.encode()) % LANES)


def lanes(prefix: str) -> list[str]:
    """Return all hash keys over which what begins with `prefix` is spread."""
    return [f"{prefix}{number}" for number in range(LANES)]


def hashes(table_id: str, kind: Kind) -> tuple[ItemTable, list[str]]:
    """Return the table and the hash keys under which all items of a kind lie."""
    table, letter, spread = _PLACES[kind]
    prefix = f"{table_id}#{letter}"
    return table, lanes(prefix) if spread else [prefix]


def name_of(key: ItemKey) -> tuple[str, int]:
    """Return the name and the version in the key of a record's item."""
    text, _, version = key.range.rpartition("@")
    with raise_corrupt(f"item {key.range!r} of {key.hash!r} is that of no record"):
        return text, int(version)


def newest(items: Iterable[Item], version: int) -> dict[str, Values]:
    """Return the records there are at a version by name, of all items of their hash keys."""
    found: dict[str, Values] = {}
    for item in items:  # in order, so that of one name the newer come later
        text, since = name_of(item.key)
        if since <= version:
            found[text] = item.values
    return {text: record for text, record in found.items() if not is_gone(record)}


def is_gone(record: Values) -> bool:
    """Return whether an item says that what it names is gone."""
    return "gone" in record


def changes(before: TableState, after: TableState) -> Iterator[Change]:
    """Return what became of each record that is not the same in both, in an order of their own."""
    for partition in sorted(changed(before.partitions.by_id, after.partitions.by_id)):
        records = (_partition(s.partitions.by_id.get(partition)) for s in (before, after))
        yield from _change(Name("partition", partition), *records)
    shards = changed(before.shards, after.shards)
    shards |= changed(before.reference_counts, after.reference_counts)
    for shard in sorted(shards | changed(before.unreferenced, after.unreferenced)):
        yield from _change(Name("shard", shard), *(_shard(s, shard) for s in (before, after)))
    for partition in sorted(changed(before.references, after.references)):
        old, new = (
            s.references.get(partition, PartitionReferences()).by_shard for s in (before, after)
        )
        for shard in sorted(changed(old, new)):
            name = Name("reference", f"{partition}/{shard}")
            yield from _change(name, *(_reference(held.get(shard)) for held in (old, new)))
    were, are = _job_parts(before), _job_parts(after)
    for part in sorted({*were, *are}):
        yield from _change(Name("job", part), were.get(part), are.get(part))
    for shard in sorted(changed(before.taken, after.taken)):
        were, are = (takings_to(shard, s.taken.get(shard, ())) for s in (before, after))
        for text in sorted({*were, *are}):
            yield from _change(Name("taking", text), were.get(text), are.get(text))
    for shard in sorted(changed(before.disputed, after.disputed)):
        records = (dispute_to(s.disputed.get(shard)) for s in (before, after))
        yield from _change(Name("dispute", shard), *records)


def changed(before: OverlayMap[K, V], after: OverlayMap[K, V]) -> set[K]:
    """Return the keys whose entries may differ: few if both lie over one base."""
    if before.base is after.base:
        return {*before.changes, *after.changes}
    return {*before, *after}


def partition_of(partition_id: str, record: Values) -> Partition:
    """Return the partition of a record."""
    high, parent, left = record.get("high"), record.get("parent"), record.get("left")
    with raise_corrupt(f"the record of partition {partition_id} cannot be read"):
        low = decode_key(_field(record, "low", bytes))
        return Partition(
            partition_id,
            KeyRange(low, decode_key(high) if isinstance(high, bytes) else None),
            parent if isinstance(parent, str) else None,
            (left, _field(record, "right", str)) if isinstance(left, str) else None,
            _field(record, "height", int),
        )


def shard_of(shard_id: str, record: Values) -> KeptShard:
    """Return the shard of a record."""
    with raise_corrupt(f"the record of shard {shard_id} cannot be read"):
        shard = Shard(
            shard_id,
            _field(record, "rows", int),
            _field(record, "size_bytes", int),
            decode_key(_field(record, "low", bytes)),
            decode_key(_field(record, "high", bytes)),
        )
    since = record.get("unreferenced_ms")
    return KeptShard(
        shard, _field(record, "references", int), since if isinstance(since, int) else None
    )


def holding_of(references: Iterable[Reference]) -> PartitionReferences:
    """Return the holding of one partition's references, as a base without changes."""
    by_shard = {reference.shard: reference for reference in references}
    held = by_shard.values()
    rows, free = sum(r.rows for r in held), sum(r.job is None for r in held)
    return PartitionReferences(OverlayMap(HashTrieMap(by_shard)), rows, free)


def references_of(records: Mapping[str, Values]) -> Iterator[Reference]:
    """Return the references of records."""
    for text, record in records.items():
        partition, _, shard = text.partition("/")
        job, exact = record.get("job"), "estimate" not in record
        rows = _field(record, "rows", int)
        yield Reference(partition, shard, rows, exact, job if isinstance(job, str) else None)


def jobs_of(records: Mapping[str, Values]) -> dict[str, Job]:
    """Return jobs by id, of all their parts."""
    jobs: dict[str, Job] = {}
    for text in sorted(records):
        record, job_id = records[text], text.rpartition("/")[0]
        inputs = record.get("inputs")
        if not isinstance(inputs, tuple):
            raise CorruptDataError(f"the record of job {job_id} has no inputs")
        earlier = jobs[job_id].inputs if job_id in jobs else ()
        partition, assigned_ms = _field(record, "partition", str), _field(record, "time_ms", int)
        jobs[job_id] = Job(job_id, partition, earlier + inputs, assigned_ms)
    return jobs


def _change(name: Name, before: Values | None, after: Values | None) -> Iterator[Change]:
    if before != after:
        yield Change(name, after, supersedes=before is not None)


def _partition(partition: Partition | None) -> Values | None:
    if partition is None:
        return None
    record: dict[str, Value] = {
        "low": encode_key(partition.range.min),
        "height": partition.height,
    }
    if partition.range.max is not None:
        record["high"] = encode_key(partition.range.max)
    if partition.parent is not None:
        record["parent"] = partition.parent
    if partition.children is not None:
        record["left"], record["right"] = partition.children
    return record


def _shard(state: TableState, shard_id: str) -> Values | None:
    shard = state.shards.get(shard_id)
    if shard is None:
        return None
    since = state.unreferenced.get(shard_id)
    return {
        "rows": shard.rows,
        "size_bytes": shard.size_bytes,
        "low": encode_key(shard.min_key),
        "high": encode_key(shard.max_key),
        "references": state.reference_counts.get(shard_id, 0),
        **({} if since is None else {"unreferenced_ms": since}),
    }


def _reference(reference: Reference | None) -> Values | None:
    if reference is None:
        return None
    return {
        "rows": reference.rows,
        **({} if reference.exact else {"estimate": True}),
        **({} if reference.job is None else {"job": reference.job}),
    }


def _job_parts(state: TableState) -> dict[str, Values]:
    return {
        f"{job.id}/{number:06d}": {
            "partition": job.partition,
            "time_ms": job.assigned_ms,
            "inputs": job.inputs[start : start + _INPUTS_PER_PART],
        }
        for job in state.jobs.values()
        for number, start in enumerate(range(0, len(job.inputs), _INPUTS_PER_PART))
    }


def _field(record: Values, field: str, kind: type[T]) -> T:
    value = record.get(field)
    if not isinstance(value, kind):
        raise CorruptDataError(f"a record of the state lacks {field}: it has {', '.join(record)}")
    return value
