"""What a query reads at once, and what it streams: the plan of reading, made as it goes on.

Look-ups read whole row groups, up to a budget, of as many ranges and shards as fit; what is larger
is scanned by the engine. A query with a limit begins with little and doubles it, for it may never
need more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dormouse.keys.ranges import KeyRange
from dormouse.readers.reading import RowGroups, narrow
from dormouse.schema.schema import Field, Schema

FIRST_BYTES = 256 * 1024
"""What a query with a limit reads first, in memory: about one row group."""

LeafRowGroups = list[RowGroups]
"""What is found of the rows in one range: the row groups of each shard that can hold some."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Row groups of parts in key order, few enough to be read at once."""

    found: list[RowGroups]


@dataclass(frozen=True, slots=True)
class Scan:
    """One part, to be merged as a stream."""

    found: list[RowGroups]


@dataclass
class _Pending:
    """Parts collected for the next look-up; a row group counts once, however many parts need it."""

    found: list[RowGroups] = field(default_factory=list)
    groups: set[tuple[str, int]] = field(default_factory=set)
    size_bytes: int = 0

    def takes(self, part: LeafRowGroups, fields: Collection[Field], budget: int) -> bool:
        """Add a part if the row groups it needs besides fit into the budget."""
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
    """Return the steps that read parts in key order, a window of parts after the other.

    A look-up takes up to `look_up_bytes` in memory.
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
                elif budget < look_up_bytes:
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
    """Return the beginning of a part, of about `budget` in memory, and the rest if there is any.

    It is cut where a row group begins, so rows of one key are never parted.
    """
    starts = sorted(
        (
            (g.index.spans[number][0], at, number)
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
