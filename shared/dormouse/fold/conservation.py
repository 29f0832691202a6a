"""What the fold makes of the rows that jobs take of a shard, and of disputes over them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from dormouse.model.disputes import MAX_JOBS_NAMED, Dispute, DisputeReason, RowsTaken, is_conserved
from dormouse.model.state import TableState


def record_taken(state: TableState, shard: str, taking: RowsTaken) -> TableState:
    """Return the state in which a job has taken what is left out of the references already.

    While the shard has references, what was taken of it is remembered. When the last one is gone,
    all takings must be its rows; else they are kept, and the shard is disputed.
    """
    takings = (*state.taken.get(shard, ()), taking)
    if state.reference_counts.get(shard, 0):
        return replace(state, taken=state.taken.insert(shard, takings))
    if is_conserved(takings, state.shards[shard].rows) is False:
        # It also takes the place of a dispute over bytes: who settles that one has not seen this.
        lost = Dispute(DisputeReason.ROWS_LOST, state.time_ms)
        return replace(
            state,
            taken=state.taken.insert(shard, takings),
            disputed=state.disputed.insert(shard, lost),
        )
    return replace(state, taken=state.taken.discard(shard))


def open_disputes(
    state: TableState, shards: Iterable[str], reason: DisputeReason, job: str
) -> TableState:
    """Return the state in which shards are disputed; one that is already is so for `job`, too."""
    disputes = state.disputed
    for shard in shards:
        known = disputes.get(shard) or Dispute(reason, state.time_ms)
        jobs = (*known.jobs, job) if job not in known.jobs else known.jobs
        disputes = disputes.insert(shard, replace(known, jobs=jobs[:MAX_JOBS_NAMED]))
    return replace(state, disputed=disputes)


def resolve_disputes(state: TableState, shards: Iterable[str]) -> TableState:
    """Return the state in which shards are disputed no more.

    Those without references wait for their collection from now on, so that a mistake can still be
    undone. Of the others it is counted on what jobs take.
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
