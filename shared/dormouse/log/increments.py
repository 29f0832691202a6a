"""The items of a snapshot as rows: the columns of each, and how its entries are written in them.

Used by `codec` and `changes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from rpds import HashTrieMap

from dormouse.errors import CorruptDataError
from dormouse.log import key_index
from dormouse.log.columns import (
    Column,
    column,
    hand_back,
    in_one,
    open_file,
    packed,
    piece,
    places_among,
    unpacked,
    write_file,
)
from dormouse.schema.schema import KeyTypes
from dormouse.schema.types import KeyType, Primitive, parse_type_text, show_type
from dormouse.state.partitions import (
    TOMBSTONE,
    Job,
    OverlayMap,
    Partition,
    PartitionReferences,
    PartitionTree,
    Reference,
    Shard,
)
from dormouse.state.state import Deletion, Dispute, RowsTaken, SourceSegment, TableState
from dormouse.stored.decoding import decode_json

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
    "sequence": pa.int64(),
    "tags": pa.string(),
    "takes_all": pa.bool_(),
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
_SHARD = ("id", "rows", "size_bytes", "min_key", "max_key", "sequence", "tags", "version")
REFERENCE = ("partition_row", "shard_row", "rows", "exact", "job")
_JOB = ("id", "partition", "inputs", "time_ms", "purge_id", "request_key", "sequence", "takes_all")
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
    sealed = Sealed(state.sealed_to, state.source_segments, state.adopted_segments)
    return {
        "dormouse.table": table_id,
        "dormouse.version": str(state.version),
        "dormouse.generation": str(state.generation),
        "dormouse.key_types": " ".join(map(_type_name, state.key_types)),
        "dormouse.time_ms": str(state.time_ms),
        "dormouse.items": " ".join(ITEMS),
        "dormouse.sealed": msgspec.json.encode(sealed).decode(),
        "dormouse.deletions": msgspec.json.encode((state.deletions, state.last_number)).decode(),
    }


def types_of(facts: Mapping[str, str]) -> KeyTypes:
    """Return the types of row keys in the footer. Raises InvalidRequestError: one is not known."""
    return cast("KeyTypes", tuple(map(parse_type_text, facts["dormouse.key_types"].split())))


def _type_name(kind: KeyType) -> str:
    return kind.value if isinstance(kind, Primitive) else show_type(kind)


def key_facts(facts: Mapping[str, str], after: int) -> key_index.IndexFacts:
    """Return what a key index says of a state, from what the footer says (`facts_of`).

    An increment follows version `after`.
    """
    return key_index.IndexFacts(
        after=after,
        version=int(facts["dormouse.version"]),
        time_ms=int(facts["dormouse.time_ms"]),
        generation=int(facts["dormouse.generation"]),
        key_types=types_of(facts),
        deletions=deletions_of(facts)[0],
    )


def partition_row(partition_id: str, partition: Partition) -> tuple[object, ...]:
    """Return a partition as a row."""
    span, place = partition.range, (partition.parent, partition.children, partition.height)
    return partition_id, span.low, span.high, *place


def shard_row(shard_id: str, shard: Shard) -> tuple[object, ...]:
    """Return a shard as a row."""
    span = shard.low, shard.high
    facts = shard.sequence, shard.tags, shard.version
    return shard_id, shard.rows, shard.size_bytes, *span, *facts


def job_row(job_id: str, job: Job) -> tuple[object, ...]:
    """Return a job as a row."""
    cause = job.purge_id, job.request_key
    return job_id, job.partition, job.inputs, job.assigned_ms, *cause, job.sequence, job.takes_all


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
    present = {"item": pa.repeat(pa.scalar(item), size)} | {n: rows[n] for n in rows.column_names}
    absent: dict[str, Column] = {
        name: pa.nulls(size, kind)  # type: ignore[call-overload]  # any type will do
        for name, kind in zip(schema.names, schema.types, strict=True)
        if name not in present
    }
    return pa.table({name: (present | absent)[name] for name in schema.names}, schema=schema)


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Up to which version sources are in segments, and which these are."""

    sealed_to: int
    segments: tuple[SourceSegment, ...]
    adopted: tuple[SourceSegment, ...]


def sealed_of(facts: Mapping[str, str]) -> Sealed:
    """Return which sources are sealed. Raises ValueError: it is damaged."""
    return decode_json(facts["dormouse.sealed"], Sealed)


def deletions_of(facts: Mapping[str, str]) -> tuple[tuple[Deletion, ...], int]:
    """Return the deletions that hide rows, and the number of the last one.
    Raises ValueError: it is damaged.
    """
    return decode_json(facts["dormouse.deletions"], tuple[tuple[Deletion, ...], int])


def taken_row(shard_id: str, takings: tuple[RowsTaken, ...]) -> tuple[object, ...]:
    """Return what was taken of a shard as a row."""
    rows = [(t.job, t.partition, t.rows, t.range.low, t.range.high) for t in takings]
    return shard_id, rows


def dispute_row(shard_id: str, dispute: Dispute) -> tuple[object, ...]:
    """Return a dispute as a row."""
    return shard_id, dispute.reason.value, dispute.since_ms, dispute.jobs


# What changed from one state to a later one: a row for each entry, removed ones marked as `gone`.
#
# It says what the fold made of the log, not how, so no rule is known here. References name
# partition and shard by their ids.
#
# **Increments** are the stored form of changes since a snapshot, or since the increment before. A
# snapshot of a large state is rarely due; in between, an increment saves a reader the fold of what
# was committed since. It is a Parquet file like a snapshot (`items`).
#
# **Laid over** the rows of a snapshot, changes replace them, a column at a time. A column of the
# snapshot is read when its turn comes, and is gone when the one that replaces it is made. So a load
# takes little more memory than the state that it makes.

GONE = "gone"
_REFERENCE = ("partition", "id", *REFERENCE[2:])
TYPES = {**COLUMNS, GONE: pa.bool_()}
COLUMNS_OF: dict[str, tuple[str, ...]] = {
    item: tuple(name for name in names if name != "digest")
    for item, names in {**ITEMS, "reference": _REFERENCE}.items()
}


@dataclass(frozen=True, slots=True)
class StateChanges:
    """What changed after version `after`: rows of each item, and all that is not in rows.

    `counts` are those of the state that it makes (`counts_of`). `by_key` are the rows of the key
    index (`log.key_index`), if it has one.
    """

    after: int
    facts: Mapping[str, str]
    counts: tuple[int, ...]
    rows: dict[str, pa.Table]
    by_key: pa.Table | None = None

    @property
    def version(self) -> int:
        """The version that it makes."""
        return int(self.facts["dormouse.version"])


def rebased(later: TableState, earlier: TableState) -> TableState | None:
    """Return a state laid over an earlier one, so that its changes are those since.

    None if the two do not lie over the same base, as after a reset.
    """
    maps = _maps(earlier)
    layers = {}
    for item, entries in _maps(later).items():
        if entries.base is not maps[item].base:
            return None
        layers[item] = _laid_over(maps[item], entries)
    return replace(
        later,
        partitions=PartitionTree(layers["partition"]),
        shards=layers["shard"],
        references=layers["reference"],
        reference_counts=_laid_over(earlier.reference_counts, later.reference_counts),
        unreferenced=layers["unreferenced"],
        sources=layers["source"],
        transactions=layers["transaction"],
        taken=layers["taken"],
        disputed=layers["dispute"],
    )


def _laid_over(earlier: OverlayMap[str, Any], later: OverlayMap[str, Any]) -> OverlayMap[str, Any]:
    before = earlier.changes
    changes = {k: v for k, v in later.changes.items() if before.get(k) is not v}
    changes |= dict.fromkeys((k for k in before if k not in later.changes), TOMBSTONE)
    return OverlayMap(earlier, HashTrieMap(changes), len(later))


def changes_between(
    table_id: str, earlier: TableState, later: TableState, *, by_key: bool = False
) -> StateChanges:
    """Return the changes of a state that is laid over an earlier one (`rebased`)."""
    rows = {item: _table(item, _item_rows(item, earlier, later)) for item in ITEMS}
    facts = facts_of(table_id, later)
    indexed = key_index.changed_rows(earlier, later) if by_key else None
    return StateChanges(earlier.version, facts, counts_of(later), rows, indexed)


def counts_of(state: TableState) -> tuple[int, ...]:
    """Return how many rows a state has, and how many entries of each item.

    Transactions are not counted: a snapshot lacks those that had expired.
    """
    entries = [len(each) for item, each in _maps(state).items() if item != "transaction"]
    return state.rows, state.reference_count, len(state.jobs), *entries


def _maps(state: TableState) -> dict[str, OverlayMap[str, Any]]:
    return {
        "partition": state.partitions.by_id,
        "shard": state.shards,
        "reference": state.references,
        "unreferenced": state.unreferenced,
        "source": state.sources,
        "transaction": state.transactions,
        "taken": state.taken,
        "dispute": state.disputed,
    }


_ROW: dict[str, Callable[[str, Any], tuple[object, ...]]] = {
    "partition": partition_row,
    "shard": shard_row,
    "job": job_row,
    "unreferenced": number_row,
    "source": number_row,
    "transaction": number_row,
    "taken": taken_row,
    "dispute": dispute_row,
}


def _item_rows(
    item: str, earlier: TableState, later: TableState
) -> Iterator[tuple[tuple[object, ...], bool]]:
    """Yield the rows of an item that changed, and whether each is gone."""
    if item == "reference":
        yield from _reference_rows(earlier, later)
        return
    changes: Iterable[tuple[str, Any]]
    if item == "job":
        changes = _job_changes(earlier.jobs, later.jobs)
    else:
        changes = _maps(later)[item].changes.items()
    for name, value in changes:
        if value is TOMBSTONE:
            yield (name, *[None] * (len(COLUMNS_OF[item]) - 1)), True
        else:
            yield _ROW[item](name, value), False


def _reference_rows(
    earlier: TableState, later: TableState
) -> Iterator[tuple[tuple[object, ...], bool]]:
    for partition, change in later.references.changes.items():
        references = PartitionReferences() if change is TOMBSTONE else change
        before = {r.shard: r for r in earlier.references.get(partition, PartitionReferences())}
        for reference in references:
            if before.pop(reference.shard, None) != reference:
                yield (partition, reference.shard, *marks_row(reference)), False
        for shard in before:
            yield (partition, shard, None, None, None), True


def _job_changes(
    earlier: HashTrieMap[str, Job], later: HashTrieMap[str, Job]
) -> Iterator[tuple[str, Any]]:
    for job, value in later.items():
        if earlier.get(job) is not value:
            yield job, value
    for job in earlier:
        if job not in later:
            yield job, TOMBSTONE


def joined(lower: StateChanges, upper: StateChanges) -> StateChanges:
    """Return an increment and the one that follows it as one."""
    rows = {item: _joined(item, lower.rows[item], upper.rows[item]) for item in ITEMS}
    by_key = None
    if lower.by_key is not None and upper.by_key is not None:
        by_key = key_index.joined_rows(lower.by_key, upper.by_key)
    return StateChanges(lower.after, upper.facts, upper.counts, rows, by_key)


def _joined(item: str, lower: pa.Table, upper: pa.Table) -> pa.Table:
    rest = lower.filter(pc.invert(pc.is_in(_names(item, lower), _names(item, upper))))
    return _in_order(item, pa.concat_tables([rest, upper]))


def _names(item: str, rows: pa.Table) -> Column:
    """Return what names each row: its id or, of a reference, its partition and shard."""
    if item != "reference":
        return column(rows, "id")
    pair = piece(rows, "partition"), piece(rows, "id")
    names: Column = pc.call_function("binary_join_element_wise", [*pair, pa.scalar("/")])
    return names


def _table(item: str, rows: Iterable[tuple[tuple[object, ...], bool]]) -> pa.Table:
    names = (*COLUMNS_OF[item], GONE)
    cells = list(zip(*((*row, gone) for row, gone in rows), strict=True)) or [()] * len(names)
    columns = (pa.array(cell, TYPES[name]) for name, cell in zip(names, cells, strict=True))
    return _in_order(item, pa.table(dict(zip(names, columns, strict=True))))


def _in_order(item: str, rows: pa.Table) -> pa.Table:
    return sorted_by(rows, *(("partition", "id") if item == "reference" else ("id",)))


ColumnOf: TypeAlias = Callable[[str, str], Column]
"""Returns a column of an item, by the names of both."""
RowsOf: TypeAlias = Callable[[str], pa.Table]
"""Returns the rows of an item."""


def laid_over(lower: ColumnOf, changes: StateChanges) -> RowsOf:
    """Return the rows of a snapshot with changes in their place.

    The rows of partitions and shards must be asked for before those of references, which name
    these by their places. The rows of an item leave `changes` when they are asked for, and memory
    when they are laid over: a cold load has a third of what changed in memory besides the state.
    Raises ValueError: a reference is to a shard or partition that is not there.
    """
    merges: dict[str, _Merge] = {}

    def rows_of(item: str) -> pa.Table:
        names, above = ITEMS[item], changes.rows.pop
        if item == "reference":
            return _references(lower, above(item), merges["partition"], merges["shard"])
        if "digest" in names:
            return _remembered(lower, item, above(item))
        merge = _Merge(lower(item, "id"), above(item), "id")
        if item in ("partition", "shard"):
            merges[item] = merge
        rest = {name: merge.replaced(lower(item, name), name) for name in names if name != "id"}
        return pa.table({"id": merge.names, **rest})

    return rows_of


class _Merge:
    """Rows in the order of their names, and rows that replace some, come between or are gone."""

    def __init__(self, before: Column, above: pa.Table, name: str) -> None:
        """Find out where rows go that are named `before`; `name` is the column of the others'."""
        self._is_same = not len(above)
        if self._is_same:
            self.names = before
            return
        is_changed = pc.is_in(before, piece(above, name))
        self._added = above.filter(pc.invert(above[GONE]))
        del above
        fresh, self._added = piece(self._added, name), self._added.drop_columns([name])
        old = before.filter(is_changed)
        self._again = old.filter(pc.is_in(old, fresh))
        self._is_again = pc.is_in(before, self._again) if len(self._again) else None
        self._before, self._most = len(before), len(before) + len(fresh) - 1
        both, places = _with_added(before, pc.invert(is_changed), fresh)
        del before, old
        order = pc.sort_indices(both)
        hand_back(len(both))
        self.names, self._places = both.take(order), places.take(order)

    def replaced(self, before: Column, name: str) -> Column:
        """Return the column of that name of all rows, from those before."""
        return before if self._is_same else _taken(before, self._added, name, self._places)

    def moved(self, rows: Column) -> Column:
        """Return the present places of rows, by the places before; null for rows that are gone."""
        if self._is_same:
            return rows
        now = pc.inverse_permutation(  # type: ignore[attr-defined]  # the stubs lack it
            self._places, max_index=self._most
        )[: self._before]
        if self._is_again is not None:  # other rows of the same names are there instead
            now = pc.replace_with_mask(now, self._is_again, places_among(self._again, self.names))
        present: Column = now.take(rows)
        return present


def _with_added(before: Column, is_kept: Column, more: Column) -> tuple[Column, Column]:
    """Return values that are kept and those added, and the places of all, one after the other."""
    places = pc.indices_nonzero(is_kept).cast(pa.int32())
    fresh = pa.array(range(len(before), len(before) + len(more)), pa.int32())
    return pa.concat_arrays([before.take(places), more]), pa.concat_arrays([places, fresh])


def _taken(before: Column, more: pa.Table, name: str, places: Column) -> Column:
    """Return the values at places in a column with that of the rows added after it."""
    return in_one(pa.chunked_array([before, piece(more, name)], before.type).take(places))


def _remembered(lower: ColumnOf, item: str, above: pa.Table) -> pa.Table:
    """Return ids and numbers: digests in the place of ids if all have digests."""
    number = ITEMS[item][1]
    digests = lower(item, "digest")
    if digests.null_count:
        name, names = "id", lower(item, "id")
    else:
        more = packed(column(above, "id")) if len(above) else pa.array([], COLUMNS["digest"])
        if more is None:
            name, names = "id", unpacked(digests)
        else:
            name, names = "digest", digests
            above = pa.table({"digest": more, number: above[number], GONE: above[GONE]})
    merge = _Merge(names, above, name)
    return pa.table({name: merge.names, number: merge.replaced(lower(item, number), number)})


def _references(lower: ColumnOf, above: pa.Table, partitions: _Merge, shards: _Merge) -> pa.Table:
    """Return references that name partition and shard by their present places.

    One to a shard or partition that is gone is gone, too. If the changes do not say so, the counts
    that follow do not fit them.
    """
    before = _pairs(
        partitions.moved(lower("reference", "partition_row")),
        shards.moved(lower("reference", "shard_row")),
    )
    upper, is_present = _places(above, partitions, shards), pc.invert(piece(above, GONE))
    fresh, more = upper.filter(is_present), above.select(REFERENCE[2:]).filter(is_present)
    del above
    if fresh.null_count:
        raise ValueError("what changed has references to shards or partitions not there")
    hand_back(len(before))
    upper = upper.drop_null()
    is_kept = pc.and_(pc.is_valid(before), pc.invert(pc.is_in(before, upper)))
    pairs, places = _with_added(before, is_kept, fresh)
    del before
    order = pc.sort_indices(pairs)
    pairs, places = pairs.take(order), places.take(order)
    del order
    hand_back(len(pairs))
    marks = {n: _taken(lower("reference", n), more, n, places) for n in REFERENCE[2:]}
    low = pc.bit_wise_and(pairs, pa.scalar(_LOW, pa.int64())).cast(pa.int32())
    high = pc.shift_right(pairs, 32).cast(pa.int32())
    return pa.table({"partition_row": high, "shard_row": low, **marks})


_LOW = 2**32 - 1


def _places(references: pa.Table, partitions: _Merge, shards: _Merge) -> Column:
    """Return the places of references among the ids; those that are not there have none."""
    return _pairs(
        places_among(piece(references, "partition"), partitions.names),
        places_among(piece(references, "id"), shards.names),
    )


def _pairs(partition_rows: Column, shard_rows: Column) -> Column:
    high = pc.shift_left(partition_rows.cast(pa.int64()), 32)
    return pc.add(high, shard_rows.cast(pa.int64()))


KIND, FORMAT = "increment", 1

_AFTER, _COUNTS = "dormouse.after", "dormouse.counts"
_SCHEMA = pa.schema(list(TYPES.items()))


def encode_increment(
    increment: StateChanges, before: Mapping[str, key_index.KeyIndex] | None = None
) -> bytes:
    """Return the stored form of an increment; `before` are the key indexes of those before it."""
    rows = {**increment.rows, "reference": _placed(increment.rows)}
    groups = (row_group(item, rows[item], _SCHEMA) for item in ITEMS)
    counts = msgspec.json.encode(increment.counts).decode()
    facts = {**increment.facts, _AFTER: str(increment.after), _COUNTS: counts}
    body = write_file(groups, _SCHEMA, KIND, FORMAT, facts, repeating=["item", "partition", "job"])
    if increment.by_key is None:
        return body
    blocks = key_index.blocks_of_changes(increment.by_key)
    of_state = key_facts(facts, increment.after)
    indexed = key_index.encode_key_index(facts["dormouse.table"], of_state, blocks, before)
    return key_index.with_key_index(body, indexed)


def _known_ids(rows: Mapping[str, pa.Table]) -> Column:
    """Return the ids of shards that the rows of other items have."""
    return pa.concat_arrays([column(rows[item], "id") for item in ("shard", "unreferenced")])


def _placed(rows: Mapping[str, pa.Table]) -> pa.Table:
    """Return the references with the places of shards in other items: 2 bytes instead of 17.

    Only a shard that is in none keeps its id.
    """
    references = rows["reference"]
    places = pc.index_in(piece(references, "id"), _known_ids(rows))
    ids = pc.if_else(pc.is_valid(places), pa.scalar(None, pa.string()), piece(references, "id"))
    return (
        references.drop_columns(["id"]).append_column("shard_row", places).append_column("id", ids)
    )


def _named(references: pa.Table, shards: Column) -> pa.Table:
    """Return the references of `_placed` with the ids of all shards."""
    ids = pc.coalesce(piece(references, "id"), shards.take(piece(references, "shard_row")))
    rows = references.drop_columns(["shard_row", "id"]).append_column("id", ids)
    return rows.select([*COLUMNS_OF["reference"], GONE])


def decode_increment(
    table_id: str, body: bytes, where: str, *, by_key: bool = False
) -> StateChanges:
    """Return an increment of this table, with the rows of its key index if they are wanted.

    `where` names it in errors.
    Raises CorruptDataError: it is damaged, another table's, or from a later version of Dormouse.
    """
    file, facts = open_file(key_index.without_key_index(body), KIND, FORMAT, where)
    if facts.get("dormouse.table") != table_id:
        raise CorruptDataError(f"{where} is not an increment of table {table_id}")
    try:
        groups = facts["dormouse.items"].split()
        rows = {}
        for item, names in COLUMNS_OF.items():
            # A thread of Arrow that still holds the body when Python ends would abort the process.
            columns = [*names, GONE, *(["shard_row"] if item == "reference" else [])]
            group = file.read_row_group(groups.index(item), columns, use_threads=False)
            rows[item] = group.select(columns).combine_chunks()
        rows["reference"] = _named(rows["reference"], _known_ids(rows))
        counts = decode_json(facts[_COUNTS].encode(), tuple[int, ...])
        indexed = key_index.all_rows(table_id, body, where) if by_key else None
        increment = StateChanges(int(facts[_AFTER]), facts, counts, rows, indexed)
        if increment.version <= increment.after:
            raise ValueError(f"version {increment.version} does not follow {increment.after}")
        return increment
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        raise CorruptDataError(f"{where} does not hold what changed: {error!r}") from error
