"""plan_table: plan the splits and compactions that are due after a table changed.

A split is only requested by a message, and `split_partition` checks again that it is due. A
compaction is assigned in the state first (`assign_jobs`). Messages are yielded between commits, so
a large planning that crashes has sent what it assigned, and the next planning continues from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from dormouse.features.ingest.seal_sources import seal_sources
from dormouse.features.planning.assign_jobs import assign, jobs_of
from dormouse.features.planning.compaction import CompactionPlan, plan_compactions, within_limit
from dormouse.features.planning.looking import partitions_to_plan
from dormouse.features.planning.retention import plan_age_off
from dormouse.features.planning.splitting import splits_due
from dormouse.features.tables.publications import publications
from dormouse.features.tables.reset import finish_reset
from dormouse.messages.stages import OutboundMessage, PartitionSplits, TableChanged
from dormouse.model.state import TableState
from dormouse.ports.services import Services
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

SPLITS_PER_MESSAGE = 50
"""The most leaves of one message, whose footers are read in a minute or two. Each planning requests
all splits that are due again."""


def plan_table(services: Services, message: TableChanged) -> Iterator[OutboundMessage]:
    """Yield the messages of splits and compactions that are due, none for an offline table."""
    table = services.table(message.table_id)
    if table is None:
        return
    store = services.store(table)
    store.maintain()  # first: were it to fail after jobs were assigned, they would go unsent
    seal_sources(services, table)
    state = finish_reset(services, table)  # a crash may have left a reset unfinished
    yield from publications(table)
    if not table.online:
        return
    now_ms = services.clock.now_ms() if message.swept else None
    among = frozenset(partitions_to_plan(state, now_ms))
    due = splits_due(state, table.properties.split_threshold_rows, among)
    yield from splits(table, state, due)
    plans = _compactions(table, state, among, now_ms)
    yield from assign(services, table, state.generation, jobs_of(services, table, plans))


def splits(
    table: Table, state: TableState, partitions: Sequence[str], *, forced: bool = False
) -> Iterator[OutboundMessage]:
    """Yield the messages that request splits of these leaves."""
    for start in range(0, len(partitions), SPLITS_PER_MESSAGE):
        some = tuple(partitions[start : start + SPLITS_PER_MESSAGE])
        message = PartitionSplits(table.id, state.generation, some, forced)
        yield OutboundMessage("partition-splits", message)


def _compactions(
    table: Table, state: TableState, among: Set[str], swept_ms: int | None
) -> list[CompactionPlan]:
    plans = plan_compactions(state, table.properties, among)
    if swept_ms is not None:  # age comes with time, not with a change
        age_off = row_rules(table.schema, table.properties).age_off
        if age_off is not None:
            age_ms = age_off.age_ms
            plans += plan_age_off(state, table.properties, age_ms, swept_ms, plans, among)
    return within_limit(plans, len(state.jobs), table.properties.compaction_jobs_limit)
