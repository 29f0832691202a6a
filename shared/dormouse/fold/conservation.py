"""The part of the fold that accounts for rows taken from shards, and for disputes over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dormouse.model.disputes import MAX_JOBS_NAMED, Dispute, DisputeReason, RowsTaken, is_conserved
from dormouse.model.state import TableState


def record_taken(state: TableState, taken: Mapping[str, RowsTaken]) -> TableState:
    """Return the state in which a job has taken its part of each shard, whose references in the
    job's partition are already removed.

    While a shard has other references, the count is kept. When the last reference is gone, all
    counts together must equal the shard's rows. If they do not, they are kept and the shard is
    disputed.

    Example: a shard of 10 rows lies in two partitions. The first job took 6, which is kept. If the
    second took 4, both counts are dropped and the shard is garbage. If it took 3, a row was lost:
    the shard stays, disputed as ROWS_LOST.
    """
    kept: dict[str, tuple[RowsTaken, ...]] = {}
    lost: dict[str, Dispute] = {}
    for shard, taking in taken.items():
        takings = (*state.taken.get(shard, ()), taking)
        if state.reference_counts.get(shard, 0):
            kept[shard] = takings
        elif is_conserved(takings, state.shards[shard].rows) is False:
            kept[shard] = takings
            # It replaces a dispute over bytes: a person who ends that one has not seen this one.
            lost[shard] = Dispute(DisputeReason.ROWS_LOST, state.time_ms)
    done = (shard for shard in taken if shard not in kept)
    return replace(
        state,
        taken=state.taken.update(kept).discard(*done),
        disputed=state.disputed.update(lost),
    )


def open_disputes(
    state: TableState, shards: Iterable[str], reason: DisputeReason, job: str
) -> TableState:
    """Return the state in which shards are disputed. For a shard that already is, `job` is added to
    its jobs.
    """
    disputes = state.disputed
    for shard in shards:
        known = disputes.get(shard) or Dispute(reason, state.time_ms)
        jobs = (*known.jobs, job) if job not in known.jobs else known.jobs
        disputes = disputes.insert(shard, replace(known, jobs=jobs[:MAX_JOBS_NAMED]))
    return replace(state, disputed=disputes)


def resolve_disputes(state: TableState, shards: Iterable[str]) -> TableState:
    """Return the state in which shards are no longer disputed.

    For shards without references, the delay before deletion starts now, so that a mistake can still
    be undone. For the others, the counts of rows taken so far are kept, and more follow.
    """
    for shard in shards:
        state = replace(state, disputed=state.disputed.discard(shard))
        if shard in state.unreferenced:
            state = replace(
                state,
                unreferenced=state.unreferenced.insert(shard, state.time_ms),
                taken=state.taken.discard(shard),
            )
    return state
