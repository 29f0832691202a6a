"""What a scan would read, from the state and the footers of shards alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from dormouse.engine.predicates import Predicate
from dormouse.engine.pruning import ValueBounds
from dormouse.key_forms.codec import KeyCodec
from dormouse.query.planner import selected_ranges, slices_to_read
from dormouse.readers.local_copies import MAX_GET_BYTES
from dormouse.readers.ranged_reads import coalesce
from dormouse.readers.reading import RowGroups, find_row_groups
from dormouse.schema.schema import Field
from dormouse.statements.tables import Scan, Tables
from dormouse.tables.table import Table

MAX_RANGES_SHOWN = 20
_TEXTS = ("step", "plan")
_NUMBERS = ("version", "partitions", "shards", "row_groups", "requests", "bytes")
EXPLANATION = pa.schema(dict.fromkeys(_TEXTS, pa.string()) | dict.fromkeys(_NUMBERS, pa.int64()))
"""The columns of the rows that EXPLAIN returns."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a scan would read. `size_bytes` counts those of column chunks, as they are stored."""

    table: str
    version: int
    ranges: tuple[str, ...]
    partitions: int
    shards: int
    row_groups: int
    requests: int
    size_bytes: int

    def row(self, scan: Scan) -> dict[str, object]:
        """Return it as a row of an explanation."""
        condition = "" if scan.condition is None else scan.condition.sql
        lines = [f"columns {', '.join(scan.columns)}", f"ranges: {' '.join(self.ranges)}"]
        lines += [f"condition {condition}"] if condition else []
        return {
            "step": f"read {self.table}",
            "plan": "\n".join(lines),
            "version": self.version,
            "partitions": self.partitions,
            "shards": self.shards,
            "row_groups": self.row_groups,
            "requests": self.requests,
            "bytes": self.size_bytes,
        }


def reading(tables: Tables, name: str, scan: Scan) -> Reading:
    """Return what a scan would read of the rows; footers of shards are read for it."""
    visible, state = tables.references[name]
    table = visible.table
    selection = tables.selection(name, scan)
    ranges = selected_ranges(table, selection)
    parts = list(slices_to_read(state, ranges))
    slices = [slice for part in parts for slice in part]
    storage, cache = tables.resources.storage, tables.resources.cache
    found = find_row_groups(storage, table.id, slices, table.schema, cache, footers=True)
    condition = selection.condition
    where = None if condition is None else Predicate(condition, table.schema)
    pruned = ValueBounds.of(where, table.schema).pruned(found)
    found = [groups for groups in pruned if groups.numbers]
    used = {*scan.columns, *scan.tested}
    requests = list(_requests(found, table, [f for f in table.schema.fields if f.name in used]))
    codec = KeyCodec(table.schema)
    return Reading(
        table=table.name,
        version=state.version,
        ranges=tuple(map(codec.range_to_assignments, ranges[:MAX_RANGES_SHOWN])),
        partitions=len(parts),
        shards=len({groups.slice.shard.id for groups in found}),
        row_groups=len({(g.slice.shard.id, n) for g in found for n in g.numbers}),
        requests=len(requests),
        size_bytes=sum(requests),
    )


def _requests(found: Iterable[RowGroups], table: Table, fields: Sequence[Field]) -> Iterator[int]:
    """Yield the bytes of each ranged read."""
    keys = table.schema.row_keys
    read = [*keys, *(field for field in fields if field not in keys)]
    numbers: dict[str, tuple[RowGroups, set[int]]] = {}
    for groups in found:
        numbers.setdefault(groups.slice.shard.id, (groups, set()))[1].update(groups.numbers)
    for groups, each in numbers.values():
        for together in coalesce(groups.index.sections(each, read), MAX_GET_BYTES):
            yield together[-1].end - together[0].start
