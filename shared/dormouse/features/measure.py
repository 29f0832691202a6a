"""measure: publish the metrics of a table, on a schedule. Only reads the table."""

from dormouse.messages.stages import OutboundMessage
from dormouse.ports import Services
from dormouse.state.jobs import Metric
from dormouse.state.state import TableState
from dormouse.tables.table import Table, is_mirrored, is_published


def state_metrics(state: TableState, now_ms: int, log_length: int) -> dict[Metric, float]:
    """Return the metrics of a table at one version.

    References per leaf is how many shards a look-up of a key may have to open; it grows while
    compaction falls behind. `log_length` is how many commits a new process must fold after it
    loads the snapshot.
    """
    leaves = (len(state.partitions) + 1) // 2  # every split turns one leaf into two
    oldest_ms = min((job.assigned_ms for job in state.jobs.values()), default=now_ms)
    return {
        Metric.SHARDS: len(state.shards) - len(state.unreferenced),
        Metric.ROWS: state.rows,
        Metric.REFERENCES: state.reference_count,
        Metric.PARTITIONS: len(state.partitions),
        Metric.LEAF_PARTITIONS: leaves,
        Metric.REFERENCES_PER_LEAF: state.reference_count / leaves if leaves else 0.0,
        Metric.JOBS_ASSIGNED: len(state.jobs),
        Metric.OLDEST_JOB_AGE_SECONDS: max(0, now_ms - oldest_ms) / 1000,
        Metric.GARBAGE_SHARDS: len(state.unreferenced),
        Metric.DISPUTED_SHARDS: len(state.disputed),
        Metric.LOG_LENGTH: log_length,
    }


_SEEN = frozenset({"add shards", "replace shards", "reset table", "restore version"})
"""The changes of a table that its readers can see, or that its garbage waits for."""


def lag_ms(services: Services, table: Table, state: TableState) -> int:
    """Return for how long a change has waited to be published, in Glue too if it is to be there; 0
    if none waits.
    """
    if not is_published(table.properties):
        return 0
    record = services.publications.get(table.id)
    newest = record.newest if record is not None and record.metadata else None
    if record is not None and newest is not None and newest.covers(table.state_id, state):
        is_behind = is_mirrored(table.properties) and record.mirrored != record.metadata
        return max(0, services.clock.now_ms() - newest.published_ms) if is_behind else 0
    # What was published of another state, as before a rebuild, says nothing.
    is_same = newest is not None and newest.state_id == table.state_id
    published = newest.version if newest is not None and is_same else 0
    # The oldest change that readers would see and is not published yet is how far it is behind.
    for version in services.store(table).history():
        if version.version > published and (not version.changes or _SEEN & {*version.changes}):
            return max(0, services.clock.now_ms() - version.time_ms)
    return 0


QUIET_MS = 15 * 60 * 1000
"""Of a table that has not changed for so long, nothing is published, unless it should change: each
metric of each table costs $0.30 for a month in which it is published."""


def measure(services: Services, table: Table) -> list[OutboundMessage]:
    """Publish the metrics of a table that changes, or should; return no messages."""
    now_ms, store = services.clock.now_ms(), services.store(table)
    if not table.deleting and not services.quiet.get("measure", table, store, now_ms):
        state = store.current()
        is_done = not (state.jobs or state.disputed) and not lag_ms(services, table, state)
        if now_ms - state.time_ms > QUIET_MS and is_done:
            services.quiet.note("measure", table, state, now_ms)
        elif services.metrics:
            services.metrics.emit(table.name, current_metrics(services, table))
    return []


def current_metrics(services: Services, table: Table) -> dict[Metric, float]:
    """Return the metrics of a table now."""
    store = services.store(table)
    state = store.current()
    metrics = state_metrics(state, services.clock.now_ms(), store.log_length())
    if is_published(table.properties):
        metrics[Metric.ICEBERG_LAG_SECONDS] = lag_ms(services, table, state) / 1000
    return metrics
