"""Whether the times of a table can become nanoseconds, which only have the years 1677 to 2262: what
its shards have says so.

An ingest that began with microseconds may commit other times after that was looked up. So first a
mark in the registry keeps ingests from beginning, for some minutes at most; then the sources of the
state are sealed. A commit whose sources were searched for before is refused from then on: its
ingest begins again (`features.ingest`), which reads the registry after it has searched. What is
committed by then is looked through. The change of the schema takes the mark away.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from dormouse.arrow.order import column_span
from dormouse.errors import InvalidRequestError
from dormouse.features.seal_sources import seal_sources
from dormouse.features.versions import read_version
from dormouse.jobs import new_run
from dormouse.ports import Cache, Services
from dormouse.schema.evolution import loses_range, parts_of
from dormouse.schema.schema import Field, whole_numbers
from dormouse.shards.footer import ShardIndex
from dormouse.shards.reading import read_indexes
from dormouse.state.state import AddShards
from dormouse.tables.properties import Properties
from dormouse.tables.table import Alteration, Table, apply_alteration

SHARDS_AT_ONCE = 64
"""So many footers are in memory at a time."""
HELD_MS = 15 * 60 * 1000
"""For how long ingests wait at most: that of a process that died meanwhile is over then."""


@contextmanager
def checked_times(services: Services, table: Table, alteration: Alteration) -> Iterator[int]:
    """Check that what is stored of columns that are to get nanoseconds is in the years that these
    have, by the statistics of all shards. Yield until when ingests wait for the change that the
    block makes: 0 if they need not. They go on when the block ends, however it does.
    Raises InvalidRequestError: it is not, or statistics do not say so; or a deletion is not applied
    yet that names the column.
    """
    before = {field.id: field for field in table.schema.fields}
    # what the properties allow is checked when it is made
    after = apply_alteration(table.schema, alteration, Properties()).fields
    finer = [
        field for field in after if field.id in before and loses_range(before[field.id], field)
    ]
    if not finer:
        yield 0
        return
    until_ms = services.clock.now_ms() + HELD_MS
    services.tables.change(table.id, lambda current: replace(current, finer_until_ms=until_ms))

    def without_mark(current: Table) -> Table:
        is_own = current.finer_until_ms == until_ms
        return replace(current, finer_until_ms=0) if is_own else current

    try:
        _refuse_begun(services, table)
        _check(services, table, finer)
        yield until_ms
    finally:
        services.tables.change(table.id, without_mark)


def _refuse_begun(services: Services, table: Table) -> None:
    """Seal the sources of the state: what is to be committed after an earlier search is refused."""
    store = services.store(table)
    state = store.current()
    if not len(state.sources):  # no segment is without any: remember one that no file has
        blank = AddShards(new_run(services, table), (services.ids.new(),), (), state.sealed_to)
        store.commit(blank, generation=state.generation)
    seal_sources(services, table, least=1)


def _check(services: Services, table: Table, finer: Sequence[Field]) -> None:
    table, state = read_version(services, table)
    ids = {json.loads(text)["id"] for each in state.deletions for text in each.columns}
    if pending := [field.name for field in finer if field.id in ids]:
        raise InvalidRequestError(
            f"column {pending[0]!r} cannot get nanoseconds while deletions by it hide rows",
            hint=f"`dormouse compact {table.name} --all` leaves these rows out",
        )
    shards = iter(state.shards.values())
    while some := list(islice(shards, SHARDS_AT_ONCE)):
        indexes = read_indexes(
            services.storage, table.id, some, table.schema, Cache(0), footers=True
        )
        for field in finer:
            if not all(_fits(index, field) for index in indexes):
                raise InvalidRequestError(
                    f"column {field.name!r} cannot get nanoseconds: it has times that are not in "
                    "the years 1677 to 2262, or statistics do not tell, as of nested ones",
                    hint="add a column or member of the type, of another name",
                )


def _fits(index: ShardIndex, field: Field) -> bool:
    """Return whether all times that a shard has in a column can be of the field's type."""
    if field.id not in index.stored.columns:
        return True
    column, at = index.stored.columns[field.id]
    if not loses_range(column.field, field):
        return True
    if parts_of(field):
        return False
    possible = whole_numbers(field.type)
    for number in range(index.metadata.num_row_groups):
        group = index.metadata.row_group(number)
        span = column_span(group, at, field, column.field.type)
        statistics = group.column(at).statistics
        if span is None and not (statistics and statistics.null_count == group.num_rows):
            return False
        if span is not None and not all(part in possible for (part,) in span):
            return False
    return True
