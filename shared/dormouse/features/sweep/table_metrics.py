"""Compute the metrics of a table's state that show whether it is healthy."""

from __future__ import annotations

from dormouse.model.jobs.metrics import Metric
from dormouse.model.state import TableState


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
