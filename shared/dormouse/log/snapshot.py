"""The stored form of a whole state: one Parquet file, a row group for each sort of thing in it.

Every row says in `item` what it is; the version is in the footer, and the order of the row groups.
Each is sorted, so that what is read serves as the base of a state as it is (`maps`),
and what did not change since is written again without a look at it. Totals and counts that follow
from the rest are not stored.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rpds import HashTrieMap

from dormouse.errors import CorruptDataError, InvariantError
from dormouse.log import columns as cols
from dormouse.log import increments
from dormouse.log.blobs import Delta, read_entries
from dormouse.log.columns import open_file, write_file
from dormouse.log.key_index import (
    blocks_of_snapshot,
    encode_key_index,
    with_key_index,
    without_key_index,
)
from dormouse.state.partitions import TOMBSTONE, Job, OverlayMap, PartitionReferences, PartitionTree
from dormouse.state.state import TableState
from dormouse.stored.decoding import decode_json, raise_corrupt

# The stored form of many deltas: a Parquet file with a row for each, its id and its entries.
#
# The entries are JSON, so any reader of Parquet shows what happened to a table. Compressed together
# they take no more than MessagePack.


SEGMENT_KIND, SEGMENT_FORMAT = "segment", 1
OWNER = "dormouse.owner"
"""The fact that says to which state a segment belongs."""

_COLUMNS: dict[str, pa.DataType] = {"delta": pa.binary(16), "entries": pa.string()}
_SEGMENT_SCHEMA = pa.schema(list(_COLUMNS.items()))
_DELTAS_OF_A_GROUP = 8 * 48
"""How many deltas are in a row group, so that a reader who knows the first ones skips them. It is a
part of the format."""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment that was read; `where` names it in errors, and it should have so many deltas."""

    body: bytes
    where: str
    deltas: int


def encode_segment(deltas: Iterable[Delta], state_id: str) -> bytes:
    """Return the stored form of deltas of a table that follow one another."""
    rows = [
        (bytes.fromhex(delta.id), msgspec.json.encode(delta.entries).decode()) for delta in deltas
    ]
    cells = zip(*rows, strict=True) if rows else ((), ())
    columns = [
        pa.array(cell, kind) for cell, kind in zip(cells, _SEGMENT_SCHEMA.types, strict=True)
    ]
    return _encoded(pa.Table.from_arrays(columns, schema=_SEGMENT_SCHEMA), state_id)


def join_segments(parts: Sequence[StoredSegment], state_id: str) -> bytes:
    """Return the stored form of all deltas of some segments, the same as if they were encoded.

    No delta is decoded, so many take little time and memory.
    Raises CorruptDataError: one is damaged or foreign, lacks deltas, or is from a later version.
    """
    tables = [_read(part.body, state_id, part.where, 0) for part in parts]
    for part, rows in zip(parts, tables, strict=True):
        if len(rows) != part.deltas:
            raise CorruptDataError(f"{part.where} lacks deltas")
    return _encoded(pa.concat_tables(tables).combine_chunks(), state_id)


def decode_segment(body: bytes, state_id: str, where: str, *, without: int = 0) -> list[Delta]:
    """Return the deltas of a segment in order, `without` so many of the first ones.

    `where` names it in errors. Row groups that hold only such deltas are not read.
    Raises CorruptDataError: it is damaged or foreign, of another table, or from a later version of
    Dormouse.
    """
    skipped = without // _DELTAS_OF_A_GROUP
    rows = _read(body, state_id, where, skipped).slice(without - skipped * _DELTAS_OF_A_GROUP)
    with raise_corrupt(f"{where} has a delta that is no text"):
        ids, packed = (rows[name].to_pylist() for name in _SEGMENT_SCHEMA.names)
    cells: Iterable[tuple[Any, Any]] = zip(ids, packed, strict=True)  # none is null
    return [
        Delta(delta.hex(), read_entries(entries, f"delta {delta.hex()} of {where}", decode_json))
        for delta, entries in cells
    ]


def _encoded(rows: pa.Table, state_id: str) -> bytes:
    starts = range(0, len(rows), _DELTAS_OF_A_GROUP)
    groups = [rows.slice(start, _DELTAS_OF_A_GROUP) for start in starts]
    return write_file(
        groups or [rows], rows.schema, SEGMENT_KIND, SEGMENT_FORMAT, {OWNER: state_id}
    )


def _read(body: bytes, state_id: str, where: str, skipped: int) -> pa.Table:
    """Return the rows of a segment, without those of its first row groups."""
    file, facts = open_file(body, SEGMENT_KIND, SEGMENT_FORMAT, where)
    owner = facts.get(OWNER, "a file without an owner")
    if owner != state_id:
        raise CorruptDataError(
            f"{where} should hold {state_id} and holds {owner}",
            hint="a file was copied to the wrong place: restore the object that was there",
        )
    groups = range(min(skipped, file.num_row_groups), file.num_row_groups)
    try:
        # A thread of Arrow that still holds the body when Python ends would abort the process.
        rows = file.read_row_groups([*groups], use_threads=False)
        rows = rows.select(_SEGMENT_SCHEMA.names).cast(_SEGMENT_SCHEMA)
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise CorruptDataError(f"{where} is not a readable {SEGMENT_KIND}: {error}") from error
    if any(rows[name].null_count for name in _SEGMENT_SCHEMA.names):
        raise CorruptDataError(f"{where} lacks deltas")
    return rows


V = TypeVar("V")

KIND, FORMAT = "snapshot", 1

_SCHEMA = pa.schema(list(increments.COLUMNS.items()))


def encode_snapshot(table_id: str, state: TableState, *, has_key_index: bool = False) -> bytes:
    """Return the stored form of `state`, the same bytes for equal states.

    With a key index, the part of it that holds a few keys can be read alone (`by_key`).
    """
    indexed: dict[str, pa.Table] = {}

    def groups() -> Iterator[pa.Table]:
        for item, rows in _items(state):
            if has_key_index and item in ("partition", "shard", "reference"):
                indexed[item] = rows
            yield increments.row_group(item, rows, _SCHEMA)

    facts = increments.facts_of(table_id, state)
    body = cols.write_file(
        groups(), _SCHEMA, KIND, FORMAT, facts, repeating=["item"], ascending=["digest"]
    )
    if not has_key_index:
        return body
    blocks = blocks_of_snapshot(indexed["partition"], indexed["shard"], indexed["reference"])
    return with_key_index(body, encode_key_index(table_id, increments.key_facts(facts, 0), blocks))


def _items(state: TableState) -> Iterator[tuple[str, pa.Table]]:
    """Return the rows of each item when they are asked for, so that not all take memory at once."""
    rows = _merged(state.partitions.by_id, increments.ITEMS["partition"], increments.partition_row)
    yield "partition", rows
    partition_ids = cols.column(rows, "id")
    rows = _merged(state.shards, increments.ITEMS["shard"], increments.shard_row)
    yield "shard", rows
    shard_ids = cols.column(rows, "id")
    del rows
    yield "reference", _references(state.references, partition_ids, shard_ids)
    jobs = [increments.job_row(*job) for job in state.jobs.items()]
    yield "job", increments.sorted_by(increments.table_of(increments.ITEMS["job"], jobs), "id")
    yield "unreferenced", _remembered(state.unreferenced, "time_ms")
    yield "source", _remembered(state.sources, "version")
    yield "transaction", _remembered(state.transactions, "time_ms")
    yield "taken", _merged(state.taken, increments.ITEMS["taken"], increments.taken_row)
    yield "dispute", _merged(state.disputed, increments.ITEMS["dispute"], increments.dispute_row)


def decode_snapshot(
    table_id: str, body: bytes, where: str, changes: increments.StateChanges | None = None
) -> TableState:
    """Return the state of a snapshot of this table, with the `changes` since applied.

    `where` names the snapshot in errors. The rows of `changes` are used up (`laid_over`).
    Raises CorruptDataError: it is damaged, another table's, or from a later version of Dormouse; or
    the changes contradict it.
    """
    file, facts = cols.open_file(without_key_index(body), KIND, FORMAT, where)
    if facts.get("dormouse.table") != table_id:
        raise CorruptDataError(f"{where} is not a snapshot of table {table_id}")
    try:
        column_of = _reader(file, facts)
        if changes is None:
            return state_of(_rows(column_of), facts)
        if changes.after != int(facts["dormouse.version"]):
            raise ValueError(f"what changed since is of version {changes.after}")
        state = state_of(increments.laid_over(column_of, changes), changes.facts)
        if changes.counts != increments.counts_of(state):
            raise ValueError("what changed since does not fit it")
        return state
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        raise CorruptDataError(f"{where} does not hold a whole state: {error!r}") from error


def _reader(file: pq.ParquetFile, facts: dict[str, str]) -> increments.ColumnOf:
    groups = facts["dormouse.items"].split()

    def column_of(item: str, name: str) -> cols.Column:
        group = groups.index(item)
        cols.hand_back(
            file.metadata.row_group(group).num_rows
        )  # what the column before took besides
        # A thread of Arrow that still holds the body when Python ends would abort the process.
        return cols.piece(file.read_row_group(group, [name], use_threads=False), name)

    return column_of


def _rows(column_of: increments.ColumnOf) -> increments.RowsOf:
    return lambda item: pa.table({name: column_of(item, name) for name in increments.ITEMS[item]})


def state_of(rows_of: increments.RowsOf, facts: Mapping[str, str]) -> TableState:
    """Return the state whose items have these rows, each asked for once, and these facts.
    Raises ValueError, LookupError: the rows contradict one another.
    """
    # In this order, what takes most memory besides is done while few of the columns are there.
    partitions, shards = rows_of("partition"), rows_of("shard")
    sources = _numbers(rows_of("source"), "version")
    transactions = _numbers(rows_of("transaction"), "time_ms")
    unreferenced = _numbers(rows_of("unreferenced"), "time_ms")
    references = rows_of("reference")
    partition_ids, shard_ids = (
        cols.StoredIds(cols.column(partitions, "id")),
        cols.StoredIds(cols.column(shards, "id")),
    )
    counts = cols.integers(_counted(references, len(shards)))
    job_cells = rows_of("job").select(increments.ITEMS["job"]).columns
    job_rows = zip(*(cells.to_pylist() for cells in job_cells), strict=True)
    jobs = {job: Job(job, where, tuple(shards), *rest) for job, where, shards, *rest in job_rows}
    sealed = increments.sealed_of(facts)
    deletions, last_number = increments.deletions_of(facts)
    return TableState(
        version=int(facts["dormouse.version"]),
        time_ms=int(facts["dormouse.time_ms"]),
        generation=int(facts["dormouse.generation"]),
        key_types=increments.types_of(facts),
        partitions=PartitionTree(OverlayMap(cols.partition_columns(partitions, partition_ids))),
        shards=OverlayMap(cols.shard_columns(shards, shard_ids)),
        references=OverlayMap(cols.ReferenceMap(references, partition_ids, shard_ids)),
        rows=pc.sum(references["rows"]).as_py() or 0,
        reference_count=len(references),
        reference_counts=OverlayMap(cols.ColumnMap(shard_ids, counts.__getitem__)),
        taken=OverlayMap(cols.taken_columns(rows_of("taken"))),
        disputed=OverlayMap(cols.dispute_columns(rows_of("dispute"))),
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


def _counted(references: pa.Table, shards: int) -> cols.Column:
    """Count the references of each shard, in order. Raises ValueError: one is to none of them."""
    rows = cols.column(references, "shard_row")
    runs = pc.call_function("run_end_encode", [rows.take(pc.sort_indices(rows))])
    places, ends = runs.values, runs.run_ends
    if len(places) and not 0 <= places[0].as_py() <= places[-1].as_py() < shards:
        raise ValueError("there are references to shards which are not there")
    counts = pc.coalesce(pc.call_function("pairwise_diff", [ends]), ends)  # the first has none
    totals: cols.Column = pc.scatter(  # type: ignore[attr-defined]  # the stubs lack it
        counts, places, max_index=shards - 1
    )
    return totals.fill_null(0)


def _numbers(rows: pa.Table, number: str) -> OverlayMap[str, int]:
    name, numbers = "id", cols.column(rows, number)
    if "digest" in rows.column_names and not rows["digest"].null_count:
        name, numbers = "digest", cols.narrowed(numbers)
    columns = pa.table({name: rows[name], number: numbers})
    ids = cols.StoredIds(cols.column(columns, name))
    return OverlayMap(cols.StoredMap(ids, cols.integers(numbers).__getitem__, columns))


def _remembered(numbers: OverlayMap[str, int], number: str) -> pa.Table:
    rows = _merged(numbers, ("id", number), increments.number_row)
    digests = cols.packed(cols.column(rows, "id"))
    if digests is None:
        return rows
    return pa.table({"digest": digests, number: rows[number]})


def _merged(
    entries: OverlayMap[str, V], columns: Sequence[str], row: Callable[[str, V], tuple[object, ...]]
) -> pa.Table:
    """Return all entries as rows sorted by id, taking those of the base as they are stored."""
    base = entries.base
    if not isinstance(base, cols.StoredMap):
        return increments.sorted_by(
            increments.table_of(columns, [row(*entry) for entry in entries.items()]), "id"
        )
    below = base.rows
    if "digest" in below.column_names:
        ids = cols.unpacked(cols.column(below, "digest"))
        below = pa.table({"id": ids, columns[1]: below[columns[1]].cast(pa.int64())})
    if not entries.changes:
        return below
    names = pa.array(list(entries.changes), pa.string())
    rest = below.filter(pc.invert(pc.is_in(below["id"], names)))
    fresh = [row(name, value) for name, value in entries.changes.items() if value is not TOMBSTONE]
    return increments.sorted_by(pa.concat_tables([rest, increments.table_of(columns, fresh)]), "id")


def _references(
    references: OverlayMap[str, PartitionReferences], partitions: cols.Column, shards: cols.Column
) -> pa.Table:
    """Return all references as rows, which name partition and shard by their places there."""
    base, changes = references.base, references.changes
    if isinstance(base, cols.ReferenceMap):
        holdings = [holdings for holdings in changes.values() if holdings is not TOMBSTONE]
        rest = _moved(base, changes, partitions, shards)
    else:
        holdings, rest = list(references.values()), increments.table_of(increments.REFERENCE, [])
    fresh = [reference for holding in holdings for reference in holding]
    columns = {
        "partition_row": _rows_of([r.partition for r in fresh], partitions),
        "shard_row": _rows_of([r.shard for r in fresh], shards),
        **increments.columns_of(increments.REFERENCE[2:], [increments.marks_row(r) for r in fresh]),
    }
    return increments.sorted_by(
        pa.concat_tables([rest, pa.table(columns)]), "partition_row", "shard_row"
    )


def _moved(
    base: cols.ReferenceMap,
    partition_ids: Iterable[str],
    partitions: cols.Column,
    shards: cols.Column,
) -> pa.Table:
    """Return the stored references of unchanged partitions, by their places in the present ids."""
    names = pa.array(list(partition_ids), pa.string())
    places = pc.index_in(names, base.partitions.column).drop_null()
    rest = base.rows.filter(pc.invert(pc.is_in(base.rows["partition_row"], places)))
    to_partition = pc.index_in(base.partitions.column, partitions)
    to_shard = pc.index_in(base.shards.column, shards)
    columns = {
        "partition_row": _known(to_partition.take(cols.column(rest, "partition_row"))),
        "shard_row": _known(to_shard.take(cols.column(rest, "shard_row"))),
        **{name: cols.piece(rest, name) for name in increments.REFERENCE[2:]},
    }
    return pa.table(columns)


def _rows_of(names: Sequence[str], ids: cols.Column) -> cols.Column:
    return _known(pc.index_in(pa.array(names, pa.string()), ids))


def _known(rows: cols.Column) -> cols.Column:
    if rows.null_count:
        raise InvariantError("there are references to shards or partitions which are not there")
    return rows
