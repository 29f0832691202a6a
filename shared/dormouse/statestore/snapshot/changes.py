"""What changed from one state to a later one: a row for each entry, removed ones marked as `gone`.

It says what the fold made of the log, not how, so no rule is known here. References name partition
and shard by their ids. `increments` has the stored form; `applying` lays the rows over those of a
snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rpds import HashTrieMap

from dormouse.model.overlay_map import TOMBSTONE, OverlayMap
from dormouse.model.partitions import PartitionTree
from dormouse.model.shards import Job, PartitionReferences
from dormouse.model.state import TableState
from dormouse.statestore.by_key.rows import changed_rows, joined_rows
from dormouse.statestore.snapshot.columns import Column, column, piece
from dormouse.statestore.snapshot.disputes import dispute_row, taken_row
from dormouse.statestore.snapshot.items import (
    COLUMNS,
    ITEMS,
    REFERENCE,
    facts_of,
    job_row,
    marks_row,
    number_row,
    partition_row,
    shard_row,
    sorted_by,
)

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
    index (`by_key.rows`), if it has one.
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
    for item, held in _maps(later).items():
        if held.base is not maps[item].base:
            return None
        layers[item] = _laid_over(maps[item], held)
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
    indexed = changed_rows(earlier, later) if by_key else None
    return StateChanges(earlier.version, facts, counts_of(later), rows, indexed)


def counts_of(state: TableState) -> tuple[int, ...]:
    """Return how many rows a state has, and how many entries of each item.

    Transactions are not counted: a snapshot lacks those that had expired.
    """
    entries = [len(held) for item, held in _maps(state).items() if item != "transaction"]
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
        held = PartitionReferences() if change is TOMBSTONE else change
        before = {r.shard: r for r in earlier.references.get(partition, PartitionReferences())}
        for reference in held:
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
        by_key = joined_rows(lower.by_key, upper.by_key)
    return StateChanges(lower.after, upper.facts, upper.counts, rows, by_key)


def _joined(item: str, lower: pa.Table, upper: pa.Table) -> pa.Table:
    kept = lower.filter(pc.invert(pc.is_in(_names(item, lower), _names(item, upper))))
    return _in_order(item, pa.concat_tables([kept, upper]))


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
