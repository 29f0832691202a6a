"""What a scan would read, from the state and the footers of shards alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dormouse.engine.predicates import Predicate
from dormouse.engine.pruning import ValueBounds
from dormouse.key_forms.codec import KeyCodec
from dormouse.query.planner import selected_ranges, slices_to_read
from dormouse.query.selection import Selection
from dormouse.readers.local_copies import MAX_GET_BYTES
from dormouse.readers.ranged_reads import coalesce
from dormouse.readers.reading import RowGroups, find_row_groups
from dormouse.statements.protocol import Reading, ScanRows
from dormouse.statements.scans import Tables
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

MAX_RANGES_SHOWN = 20


def explain(tables: Tables, asked: ScanRows) -> Reading:
    """Return what a scan would read of the rows; footers of shards are read for it."""
    visible, state = tables.references[asked.name]
    table = visible.table
    selection = tables.selection(asked.name, asked.scan)
    ranges = selected_ranges(table, selection)
    parts = list(slices_to_read(state, ranges))
    found: list[RowGroups] = []
    if asked.scan.columns or asked.scan.where:
        slices = [slice for part in parts for slice in part]
        storage, cache = tables.resources.storage, tables.resources.cache
        found = find_row_groups(storage, table.id, slices, table.schema, cache, footers=True)
        condition = selection.condition
        where = None if condition is None else Predicate(condition, table.schema)
        bounds = ValueBounds.of(where, table.schema)
        found = [groups for groups in bounds.pruned(found) if groups.numbers]
    requests = list(_requests(found, table, selection))
    codec = KeyCodec(table.schema)
    return Reading(
        table=table.name,
        version=state.version,
        ranges=tuple(map(codec.range_to_assignments, ranges[:MAX_RANGES_SHOWN])),
        partitions=len(parts),
        shards=len({groups.slice.shard.id for groups in found}),
        row_groups=len({(g.slice.shard.id, n) for g in found for n in g.numbers}),
        requests=len(requests),
        bytes=sum(requests),
    )


def _requests(found: Iterable[RowGroups], table: Table, selection: Selection) -> Iterator[int]:
    """Yield the bytes of each ranged read."""
    rules = row_rules(table.schema, table.properties)
    used = selection.condition.columns if selection.condition else ()
    names = {*rules.needed([*selection.columns, *used], table.schema)}
    names |= {field.name for field in table.schema.keys}
    fields = [field for field in table.schema.fields if field.name in names]
    numbers: dict[str, tuple[RowGroups, set[int]]] = {}
    for groups in found:
        numbers.setdefault(groups.slice.shard.id, (groups, set()))[1].update(groups.numbers)
    for groups, read in numbers.values():
        for together in coalesce(groups.index.sections(read, fields), MAX_GET_BYTES):
            yield together[-1].end - together[0].start
