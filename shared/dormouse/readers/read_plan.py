"""Decide what a query reads at once and what it streams, while it goes on.

A look-up reads whole row groups at once, of as many ranges and shards as fit into a memory budget.
Anything larger is scanned by DataFusion. A query with a limit starts with a small budget and
doubles it with each step, because it may not need more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dormouse.keys.ranges import KeyRange
from dormouse.readers.reading import RowGroups, narrow
from dormouse.schema.schema import Field, Schema

FIRST_BYTES = 256 * 1024
"""The first budget of a query with a limit, in memory: about one row group."""

LeafRowGroups = list[RowGroups]
"""What is read for one range of keys within one leaf: the row groups of each
shard that can hold rows of it.
"""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Row groups in key order, few enough to be read at once."""

    found: list[RowGroups]


@dataclass(frozen=True, slots=True)
class Scan:
    """The row groups of one range, to be merged as a stream."""

    found: list[RowGroups]


@dataclass
class _Pending:
    """Row groups collected for the next look-up; one that several ranges need counts once."""

    found: list[RowGroups] = field(default_factory=list)
    groups: set[tuple[str, int]] = field(default_factory=set)
    size_bytes: int = 0

    def takes(self, part: LeafRowGroups, fields: Collection[Field], budget: int) -> bool:
        """Add the row groups of a range if those not collected yet fit into the
        budget; return whether they do.
        """
        added: set[tuple[str, int]] = set()
        size_bytes = self.size_bytes
        for groups in part:
            shard = groups.slice.shard.id
            for number in groups.numbers:
                if (shard, number) not in self.groups:
                    added.add((shard, number))
                    size_bytes += groups.index.column_bytes(number, fields)
                    if size_bytes > budget:
                        return False
        self.found += part
        self.groups |= added
        self.size_bytes = size_bytes
        return True


def plan_reads(
    windows: Iterable[Sequence[LeafRowGroups]],
    schema: Schema,
    columns: Collection[str],
    *,
    look_up_bytes: int,
    is_limited: bool,
) -> Iterator[LookUp | Scan]:
    """Yield the steps that read all ranges in key order; `windows` are
    lists of ranges found together.

    A look-up needs at most `look_up_bytes` of memory. Ranges of which row groups are excluded are
    not scanned: a scan would read these, too.

    For example, with ranges that need 1, 1, 9 and 1 MB and a budget of 4 MB: the first two are one
    look-up, the third is a scan, the fourth is another look-up. With a limit, the budgets are 256
    KiB, 512 KiB, 1 MiB and so on: the first range is divided at the starts of its row groups, and
    its first row groups are the first look-up.
    """
    fields = [schema.field_named(name) for name in columns]
    budget = min(FIRST_BYTES, look_up_bytes) if is_limited else look_up_bytes
    for window in windows:
        pending = _Pending()
        for part in window:
            rest: LeafRowGroups | None = part
            while rest is not None and not pending.takes(rest, fields, budget):
                if pending.found:
                    yield LookUp(pending.found)
                    pending = _Pending()
                elif budget < look_up_bytes or any(groups.excluded for groups in rest):
                    head, rest = _cut(rest, schema, fields, budget)
                    yield LookUp(head)
                else:
                    yield Scan(rest)
                    rest = None
                budget = min(2 * budget, look_up_bytes)
        if pending.found:
            yield LookUp(pending.found)
            budget = min(2 * budget, look_up_bytes)


def _cut(
    part: LeafRowGroups, schema: Schema, fields: Collection[Field], budget: int
) -> tuple[LeafRowGroups, LeafRowGroups | None]:
    """Return the first row groups of a range, of about `budget` bytes in
    memory, and the rest if there is any.

    A range is divided where a row group begins, so all rows with one key are in one part.
    """
    starts = sorted(
        (
            (g.index.first_key(number), at, number)
            for at, g in enumerate(part)
            for number in g.numbers
        )
    )
    least = max(groups.slice.range.min for groups in part)
    taken_bytes = 0
    for low, at, number in starts:
        size_bytes = part[at].index.column_bytes(number, fields)
        if taken_bytes and taken_bytes + size_bytes > budget and low > least:
            head = [narrow(groups, KeyRange((), low), schema) for groups in part]
            rest = [narrow(groups, KeyRange(low, None), schema) for groups in part]
            return head, rest
        taken_bytes += size_bytes
    return part, None
