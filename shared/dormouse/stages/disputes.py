"""How people are told of disputed shards: by the tracker, which names each and all its jobs.

The metric that counts them, and with it the alarm, is told by `measure`; a run that dies before it
could tell the tracker leaves that, and what `check` finds.
"""

from __future__ import annotations

from collections.abc import Iterable

from dormouse.model.disputes import DisputeReason, dispute_id
from dormouse.model.state import TableState
from dormouse.model.tables import Table
from dormouse.ports import Services
from dormouse.stages.tracking import record, settle

JOBS_TOLD = 20


def record_disputes(
    services: Services, table: Table, state: TableState, shards: Iterable[str]
) -> None:
    """Tell of those among `shards` that are disputed, each with the jobs that took rows of it."""
    for shard in sorted(set(shards)):
        if shard in state.disputed:
            reason = explained(state, shard)
            job_id = dispute_id(shard)
            record(services, table.id, job_id, "dispute", "failed", subject=shard, reason=reason)


def record_settled(services: Services, table: Table, shards: Iterable[str]) -> None:
    """Tell that disputes are settled."""
    for shard in shards:
        settle(services, table.id, dispute_id(shard), failed=True)


def explained(state: TableState, shard: str) -> str:
    """Return in a sentence why a shard is disputed, with its jobs."""
    jobs = state.jobs_in_dispute(shard)
    named = ", ".join(jobs[:JOBS_TOLD]) + (
        f" and {len(jobs) - JOBS_TOLD} more" * (len(jobs) > JOBS_TOLD)
    )
    if state.disputed[shard].reason is DisputeReason.BYTES_DAMAGED:
        return f"its bytes are not those that were written; found by {named}"
    counts = [taking.rows or 0 for taking in state.taken.get(shard, ())]
    return f"jobs took {sum(counts)} of its {state.shards[shard].rows} rows: {named}"
