"""The stored form of a whole state: one Parquet file, a row group for each sort of thing in it.

Every row says in `item` what it is; the version is in the footer, and the order of the row groups.
Each is sorted, so that what is read serves as the base of a state as it is (`maps`),
and what did not change since is written again without a look at it. Totals and counts that follow
from the rest are not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rpds import HashTrieMap

from dormouse.errors import CorruptDataError, InvariantError
from dormouse.log.columns import (
    Column,
    ReferenceMap,
    StoredIds,
    StoredMap,
    column,
    dispute_columns,
    hand_back,
    narrowed,
    number_columns,
    open_file,
    packed,
    partition_columns,
    piece,
    remembered_columns,
    shard_columns,
    taken_columns,
    unpacked,
    write_file,
)
from dormouse.log.increments import (
    COLUMNS,
    ITEMS,
    REFERENCE,
    ColumnOf,
    RowsOf,
    StateChanges,
    columns_of,
    counts_of,
    decode_sealed,
    deletions_of,
    dispute_row,
    facts_of,
    has_digests,
    job_row,
    key_facts,
    laid_over,
    marks_row,
    number_row,
    partition_row,
    row_group,
    shard_row,
    sorted_by,
    table_of,
    taken_row,
    types_of,
)
from dormouse.log.key_index import (
    blocks_of_snapshot,
    encode_key_index,
    with_key_index,
    without_key_index,
)
from dormouse.state.partitions import TOMBSTONE, Job, OverlayMap, PartitionReferences, PartitionTree
from dormouse.state.state import TableState

V = TypeVar("V")

KIND, FORMAT = "snapshot", 1

_SCHEMA = pa.schema(list(COLUMNS.items()))


def encode_snapshot(table_id: str, state: TableState, *, has_key_index: bool = False) -> bytes:
    """Return the stored form of `state`, the same bytes for equal states.

    With a key index, the part of it that holds a few keys can be read alone (`by_key`).
    """
    kept: dict[str, pa.Table] = {}

    def groups() -> Iterator[pa.Table]:
        for item, rows in _items(state):
            if has_key_index and item in ("partition", "shard", "reference"):
                kept[item] = rows
            yield row_group(item, rows, _SCHEMA)

    facts = facts_of(table_id, state)
    body = write_file(
        groups(), _SCHEMA, KIND, FORMAT, facts, repeating=["item"], ascending=["digest"]
    )
    if not has_key_index:
        return body
    blocks = blocks_of_snapshot(kept["partition"], kept["shard"], kept["reference"])
    return with_key_index(body, encode_key_index(table_id, key_facts(facts, 0), blocks))


def _items(state: TableState) -> Iterator[tuple[str, pa.Table]]:
    """Return the rows of each item when they are asked for, so that not all take memory at once."""
    rows = _merged(state.partitions.by_id, ITEMS["partition"], partition_row)
    yield "partition", rows
    partition_ids = column(rows, "id")
    rows = _merged(state.shards, ITEMS["shard"], shard_row)
    yield "shard", rows
    shard_ids = column(rows, "id")
    del rows
    yield "reference", _references(state.references, partition_ids, shard_ids)
    jobs = [job_row(*job) for job in state.jobs.items()]
    yield "job", sorted_by(table_of(ITEMS["job"], jobs), "id")
    yield "unreferenced", _remembered(state.unreferenced, "time_ms")
    yield "source", _remembered(state.sources, "version")
    yield "transaction", _remembered(state.transactions, "time_ms")
    yield "taken", _merged(state.taken, ITEMS["taken"], taken_row)
    yield "dispute", _merged(state.disputed, ITEMS["dispute"], dispute_row)


def decode_snapshot(
    table_id: str, body: bytes, where: str, changes: StateChanges | None = None
) -> TableState:
    """Return the state of a snapshot of this table, with the `changes` since applied.

    `where` names the snapshot in errors. The rows of `changes` are used up (`laid_over`).

    Raises:
        CorruptDataError: it is damaged, another table's, or from a later version of Dormouse; or
            the changes contradict it.
    """
    file, facts = open_file(without_key_index(body), KIND, FORMAT, where)
    if facts.get("dormouse.table") != table_id:
        raise CorruptDataError(f"{where} is not a snapshot of table {table_id}")
    try:
        column_of = _reader(file, facts)
        if changes is None:
            return state_of(_rows(column_of), facts)
        if changes.after != int(facts["dormouse.version"]):
            raise ValueError(f"what changed since is of version {changes.after}")
        state = state_of(laid_over(column_of, changes), changes.facts)
        if changes.counts != counts_of(state):
            raise ValueError("what changed since does not fit it")
        return state
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        raise CorruptDataError(f"{where} does not hold a whole state: {error!r}") from error


def _reader(file: pq.ParquetFile, facts: dict[str, str]) -> ColumnOf:
    groups = facts["dormouse.items"].split()

    def column_of(item: str, name: str) -> Column:
        group = groups.index(item)
        hand_back(file.metadata.row_group(group).num_rows)  # what the column before took besides
        # A thread of Arrow that still holds the body when Python ends would abort the process.
        return piece(file.read_row_group(group, [name], use_threads=False), name)

    return column_of


def _rows(column_of: ColumnOf) -> RowsOf:
    return lambda item: pa.table({name: column_of(item, name) for name in ITEMS[item]})


def state_of(rows_of: RowsOf, facts: Mapping[str, str]) -> TableState:
    """Return the state whose items have these rows, each asked for once, and these facts.

    Raises:
        ValueError, LookupError: the rows contradict one another.
    """
    # In this order, what takes most memory besides is done while few of the columns are there.
    partitions, shards = rows_of("partition"), rows_of("shard")
    sources = _numbers(rows_of("source"), "version")
    transactions = _numbers(rows_of("transaction"), "time_ms")
    unreferenced = _numbers(rows_of("unreferenced"), "time_ms")
    references = rows_of("reference")
    partition_ids, shard_ids = StoredIds(column(partitions, "id")), StoredIds(column(shards, "id"))
    counts = number_columns(_counted(references, len(shards)), shard_ids)
    job_cells = rows_of("job").select(ITEMS["job"]).columns
    job_rows = zip(*(cells.to_pylist() for cells in job_cells), strict=True)
    jobs = {job: Job(job, where, tuple(shards), *rest) for job, where, shards, *rest in job_rows}
    sealed = decode_sealed(facts["dormouse.sealed"].encode(), "it")
    deletions, last_number = deletions_of(facts)
    return TableState(
        version=int(facts["dormouse.version"]),
        time_ms=int(facts["dormouse.time_ms"]),
        generation=int(facts["dormouse.generation"]),
        key_types=types_of(facts),
        partitions=PartitionTree(OverlayMap(partition_columns(partitions, partition_ids))),
        shards=OverlayMap(shard_columns(shards, shard_ids)),
        references=OverlayMap(ReferenceMap(references, partition_ids, shard_ids)),
        rows=pc.sum(references["rows"]).as_py() or 0,
        reference_count=len(references),
        reference_counts=OverlayMap(counts),
        taken=OverlayMap(taken_columns(rows_of("taken"))),
        disputed=OverlayMap(dispute_columns(rows_of("dispute"))),
        unreferenced=unreferenced,
        jobs=HashTrieMap(jobs),
        sources=sources,
        sealed_to=sealed.sealed_to,
        source_segments=sealed.segments,
        adopted_segments=sealed.adopted,
        transactions=transactions,
        deletions=deletions,
        last_number=last_number,
    )


def _counted(references: pa.Table, shards: int) -> Column:
    """Count the references of each shard, in the order of the shards.

    Raises:
        ValueError: a reference is to a shard there is not.
    """
    rows = column(references, "shard_row")
    runs = pc.call_function("run_end_encode", [rows.take(pc.sort_indices(rows))])
    named, ends = runs.values, runs.run_ends
    if len(named) and not 0 <= named[0].as_py() <= named[-1].as_py() < shards:
        raise ValueError("there are references to shards which are not there")
    counts = pc.coalesce(pc.call_function("pairwise_diff", [ends]), ends)  # the first has none
    found: Column = pc.scatter(  # type: ignore[attr-defined]  # the stubs lack it
        counts, named, max_index=shards - 1
    )
    return found.fill_null(0)


def _numbers(rows: pa.Table, number: str) -> OverlayMap[str, int]:
    name = "digest" if has_digests(rows) else "id"
    kept = rows.select([name, number])
    if name == "digest":
        kept = pa.table({name: rows[name], number: narrowed(column(rows, number))})
    ids = StoredIds(column(kept, name))
    return OverlayMap(remembered_columns(kept, ids, number))


def _remembered(numbers: OverlayMap[str, int], number: str) -> pa.Table:
    rows = _merged(numbers, ("id", number), number_row)
    digests = packed(column(rows, "id"))
    if digests is None:
        return rows
    return pa.table({"digest": digests, number: rows[number]})


def _merged(
    entries: OverlayMap[str, V],
    columns: Sequence[str],
    row: Callable[[str, V], tuple[object, ...]],
) -> pa.Table:
    """Return all entries as rows sorted by id, taking those of the base as they are stored."""
    base = entries.base
    if not isinstance(base, StoredMap):
        return sorted_by(table_of(columns, [row(*entry) for entry in entries.items()]), "id")
    stored = base.rows
    if "digest" in stored.column_names:
        ids = unpacked(column(stored, "digest"))
        stored = pa.table({"id": ids, columns[1]: stored[columns[1]].cast(pa.int64())})
    if not entries.changes:
        return stored
    changed = pa.array(list(entries.changes), pa.string())
    kept = stored.filter(pc.invert(pc.is_in(stored["id"], changed)))
    fresh = [row(name, value) for name, value in entries.changes.items() if value is not TOMBSTONE]
    return sorted_by(pa.concat_tables([kept, table_of(columns, fresh)]), "id")


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
        held, kept = list(references.values()), table_of(REFERENCE, [])
    fresh = [reference for holding in held for reference in holding]
    added = {
        "partition_row": _rows_of([r.partition for r in fresh], partitions),
        "shard_row": _rows_of([r.shard for r in fresh], shards),
        **columns_of(REFERENCE[2:], [marks_row(r) for r in fresh]),
    }
    return sorted_by(pa.concat_tables([kept, pa.table(added)]), "partition_row", "shard_row")


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
        **{name: piece(kept, name) for name in REFERENCE[2:]},
    }
    return pa.table(moved)


def _rows_of(names: Sequence[str], ids: Column) -> Column:
    return _known(pc.index_in(pa.array(names, pa.string()), ids))


def _known(rows: Column) -> Column:
    if rows.null_count:
        raise InvariantError("there are references to shards or partitions which are not there")
    return rows
