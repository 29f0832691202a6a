"""A partition tree of any size, in as many blocks as a picture bears."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from dormouse.model.partitions import ROOT
from dormouse.model.state import TableState


@dataclass(frozen=True, slots=True)
class Block:
    """A partition with all that lies in it and below it.

    `is_bottom` says that nothing below it is drawn; it stands for `leaves` leaves. `size_bytes` is
    an estimate where a shard lies in several partitions.
    """

    id: str
    parent: str
    range: str
    rows: int
    references: int
    size_bytes: int
    leaves: int
    is_bottom: bool

    @property
    def references_per_leaf(self) -> float:
        """How many shards a look-up in it may have to open, on average."""
        return self.references / self.leaves


@dataclass(slots=True)
class _Totals:
    rows: int = 0
    references: int = 0
    size_bytes: float = 0
    leaves: int = 0


def outline(state: TableState, most: int) -> list[Block]:
    """Return the tree from its root down, in key order, with at most `most` blocks at the bottom.

    What has most rows is drawn finest.
    """
    if not len(state.partitions):
        return []
    totals = _totals(state)
    open_ = _opened(state, totals, most)
    return [
        Block(
            partition,
            state.partitions.get(partition).parent or "",
            str(state.partitions.get(partition).range),
            totals[partition].rows,
            totals[partition].references,
            round(totals[partition].size_bytes),
            totals[partition].leaves,
            partition not in open_,
        )
        for partition in _walk(state, open_)
    ]


def _opened(state: TableState, totals: dict[str, _Totals], most: int) -> set[str]:
    """Return the partitions whose halves are drawn, the fullest first."""
    open_: set[str] = set()
    waiting = [(-totals[ROOT].rows, ROOT)]
    while waiting and len(open_) < most - 1:  # each one opened adds one block to the bottom
        _, partition = heapq.heappop(waiting)
        children = state.partitions.get(partition).children
        if children is not None:
            open_.add(partition)
            for child in children:
                heapq.heappush(waiting, (-totals[child].rows, child))
    return open_


def _walk(state: TableState, open_: set[str]) -> Iterator[str]:
    pending = [ROOT]
    while pending:
        partition = pending.pop()
        yield partition
        if partition in open_:
            left, right = state.partitions.get(partition).children or ("", "")
            pending += [right, left]


def _totals(state: TableState) -> dict[str, _Totals]:
    """Add up what lies in each partition and below it."""
    totals: dict[str, _Totals] = defaultdict(_Totals)
    for leaf in state.partitions.leaves():
        _add(state, totals, leaf.id, _Totals(leaves=1))
    for partition, held in state.references.items():
        size_bytes = 0.0
        for reference in held:
            shard = state.shards[reference.shard]
            size_bytes += shard.size_bytes * reference.rows / shard.rows if shard.rows else 0
        _add(state, totals, partition, _Totals(held.rows, len(held), size_bytes))
    return totals


def _add(state: TableState, totals: dict[str, _Totals], partition: str, found: _Totals) -> None:
    for each in (partition, *state.partitions.ancestors(partition)):
        total = totals[each]
        total.rows += found.rows
        total.references += found.references
        total.size_bytes += found.size_bytes
        total.leaves += found.leaves
