"""Disputed shards: record them, find them, and resolve disputes as a person decides.

`measure` publishes their number, from which the alarm follows. The tracker records each with its
jobs; if a run crashes before it records a dispute, `check` still finds it in the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    DamagedShardError,
    InvalidRequestError,
    NotFoundError,
)
from dormouse.features.checking.findings import Finding, dispute_finding
from dormouse.features.garbage.collect_garbage import candidates
from dormouse.jobs.tracking import finalise, record
from dormouse.messages.stages import OutboundMessage
from dormouse.model.disputes import dispute_id
from dormouse.model.jobs.job_events import Failed, TrackedJob
from dormouse.model.shards import Shard
from dormouse.model.state import TableState
from dormouse.model.transactions import ResolveDisputes
from dormouse.ports.services import Services
from dormouse.query.count import count_slices
from dormouse.readers.auditing import audit_shard
from dormouse.readers.reading import Slice
from dormouse.shards.format.footer import check_identity, read_metadata
from dormouse.state_store import Rejected
from dormouse.stored.paths import shard_path
from dormouse.tables.table import Table


def record_disputes(
    services: Services, table: Table, state: TableState, shards: Iterable[str]
) -> None:
    """Record those of `shards` that are disputed, each with the jobs that took rows from it."""
    for shard in sorted(set(shards)):
        if shard in state.disputed:
            found = dispute_finding(state, shard, None)
            reason, job_id = f"{found.damage.name.lower()}: {found.detail}", dispute_id(shard)
            record(services, TrackedJob(table.id, job_id, "dispute"), Failed(reason, subject=shard))


def is_sound(services: Services, table: Table, shard: Shard) -> bool:
    """Read a shard again; return whether all its bytes are as they were written.

    If they are, those that a job found damaged were damaged in transit or in memory.
    """
    path = shard_path(table.id, shard.id)
    try:
        metadata = read_metadata(services.storage, path, shard.size_bytes)
        check_identity(metadata, path, table.id, shard)
        audit_shard(services.storage, path, shard.size_bytes)
    except (DamagedShardError, NotFoundError):
        return False
    return True


def dispute_findings(services: Services, table: Table, state: TableState) -> list[Finding]:
    """Return a finding for each disputed shard, for which its rows are counted again."""
    return [
        dispute_finding(state, shard, _recounted(services, table, state, shard))
        for shard in sorted(state.disputed)
    ]


def _recounted(
    services: Services, table: Table, state: TableState, shard: str
) -> dict[str, int] | None:
    """Return how many rows a shard has in the partition of each job that took rows from it.

    None if the object is missing or damaged: other findings report that.
    """
    takings = state.taken.get(shard, ())
    slices = [Slice(state.shards[shard], taking.range) for taking in takings]
    try:
        counts = count_slices(services.storage, table, slices)
    except (CorruptDataError, NotFoundError):
        return None
    return {taking.job: rows for taking, rows in zip(takings, counts, strict=True)}


def acknowledge(services: Services, table: Table, shards: Sequence[str]) -> list[OutboundMessage]:
    """Resolve the disputes over some shards, because a person has decided so.

    From now on, garbage collection may delete those that nothing references; return its messages.

    Raises:
        InvalidRequestError: a shard is not disputed; nothing was resolved.
        ContendedError: a dispute was resolved or raised at the same time; nothing was resolved.
    """
    store = services.store(table)
    state = store.current()
    wanted = sorted(set(shards))
    if unknown := [shard for shard in wanted if shard not in state.disputed]:
        raise InvalidRequestError(
            f"table {table.name!r} has no dispute over shard {unknown[0]!r}; nothing was resolved",
            hint=f"`dormouse check {table.name}` lists the disputed shards",
        )
    resolution = ResolveDisputes(tuple((shard, state.disputed[shard].since_ms) for shard in wanted))
    (outcome,) = store.commit(resolution, generation=state.generation)
    if isinstance(outcome, Rejected):
        raise ContendedError(
            f"nothing was resolved, because the table changed meanwhile: {outcome}",
            hint=f"check the table again with `dormouse check {table.name}`",
        )
    for shard in wanted:
        finalise(services, table.id, dispute_id(shard), failed=True)
    newest = store.current()
    return candidates(table, newest, [shard for shard in wanted if shard in newest.unreferenced])
