"""compact: an assigned job → its shards merged into new ones, in one commit.

The outputs are named after the job, so two runs of one job write the same objects and the first
wins: nothing that shapes them may depend on when a run happens. Order of writes: outputs, commit,
messages. A crash leaves outputs that the next run adopts. If they are not what it would write (the
rules of the table were changed, or the code), the job is taken back and planned anew.
A job of a purge leaves out the rows which that purge removes. The table's filters and aggregations
hold. If an input is not as it was written, also when it is read again, the job is taken back and
that shard disputed: it is kept, an alarm fires, and no plan takes it, while the other inputs
are free for other jobs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dormouse.errors import (
    AlreadyExistsError,
    DamagedShardError,
    InvalidRequestError,
    InvariantError,
)
from dormouse.features.checking.disputes import is_sound, record_disputes
from dormouse.features.compaction.merge import EVERYTHING, Compaction, Merged, merge_inputs
from dormouse.features.garbage.collect_garbage import MAX_DELAY_SECONDS
from dormouse.features.purge.row_matcher import RowMatcher
from dormouse.features.purge.stored import load_purge
from dormouse.features.tables.reset import is_for
from dormouse.jobs.tracking import finalise, record, tracked
from dormouse.keys.ranges import KeyRange
from dormouse.messages import CompactionJob, GarbageCandidates, OutboundMessage, TableChanged
from dormouse.model.disputes import DisputeReason
from dormouse.model.provenance import merge_lineages
from dormouse.model.shards import Job
from dormouse.model.state import TableState
from dormouse.model.transactions import DisputeShards, ReleaseJob, ReplaceShards
from dormouse.ports import Services
from dormouse.query.count import count_slices
from dormouse.readers.reading import Slice
from dormouse.shards.footer import read_footers
from dormouse.shards.run_markers import (
    RunMarker,
    check_no_run_marker,
    discard_shards,
    put_run_marker,
)
from dormouse.shards.writing import ShardContext
from dormouse.state_store import Rejected
from dormouse.stored.paths import purge_of, run_marker_path, run_of_shard, shard_id_of, shard_prefix
from dormouse.tables.table import Table


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A merge got on, and goes on by another message of the job; `reason` says how far it is."""

    reason: str


Merge = Callable[[Services, Compaction], Merged | Unfinished]
"""Merges a job's inputs and writes the outputs, wherever that is done, or a part of that."""


def merge_here(services: Services, compaction: Compaction) -> Merged:
    """Merge in this process."""
    with tempfile.TemporaryDirectory(dir=services.scratch) as folder:
        return merge_inputs(
            services.storage,
            compaction,
            scratch=Path(folder),
            memory_bytes=services.memory_bytes,
        )


def compact(
    services: Services, message: CompactionJob, merge: Merge = merge_here
) -> list[OutboundMessage]:
    """Run the job if it is still to be run; announce the change and the shards set free."""
    changed = OutboundMessage("table-changes", TableChanged(message.table_id))
    found = assigned_job(services, message)
    if found is None:
        if services.table(message.table_id) is None:
            return []
        finalise(services, message.table_id, message.job_id)
        return [changed]  # done or taken back: whoever did that may have died before telling
    table, state, job = found
    try:
        removed = _removed(services, table, job)
    except InvalidRequestError as error:
        _release(services, table, job, state.generation, error.explanation)
        return [changed]
    with tracked(
        services,
        table.id,
        job.id,
        "compaction",
        subject=job.partition,
        files=len(job.inputs),
        size_bytes=sum(state.shards[shard].size_bytes for shard in job.inputs),
    ):
        done = _run(services, table, state, job, removed, merge)
        if done is None:
            return [changed]
        if isinstance(done, Unfinished):
            record(services, table.id, job.id, "compaction", "assigned", reason=done.reason)
            return [OutboundMessage("compaction-jobs", message)]
        (outcome,) = services.store(table).commit(done, generation=state.generation)
        if isinstance(outcome, Rejected):
            reason = f"the result came too late: {outcome}"
            record(services, table.id, job.id, "compaction", "failed", reason=reason)
            return [changed]
    record(
        services,
        table.id,
        job.id,
        "compaction",
        "finished",
        rows=sum(new.shard.rows for new in done.outputs),
        rows_read=sum(rows for _, rows in done.rows_taken),
    )
    newest = services.store(table).current()
    record_disputes(services, table, newest, job.inputs)
    return [changed, *_garbage(newest, table, job)]


def assigned_job(
    services: Services, message: CompactionJob
) -> tuple[Table, TableState, Job] | None:
    """Return the job of a message as the state has it; None if it is done or taken back."""
    table = services.table(message.table_id)
    if table is None:
        return None
    state = services.store(table).current()
    job = state.jobs.get(message.job_id)
    if job is None or not is_for(message.generation, table, state):
        return None
    return table, state, job


def _removed(services: Services, table: Table, job: Job) -> RowMatcher | None:
    """Return what the job is to leave out; None if it is of no purge.

    Raises:
        InvalidRequestError: its purge was given up, or is to be.
    """
    purge_id = purge_of(job.id)
    if purge_id is None:
        return None
    request = load_purge(services, table.id, purge_id)
    if request is None:
        raise InvalidRequestError("the purge it was for was given up")
    return RowMatcher.of(request, table.schema)


def _release(
    services: Services,
    table: Table,
    job: Job,
    generation: int,
    reason: str,
    *before: DisputeShards,
) -> bool:
    """Take a job back: its inputs are free for other jobs, but for those disputed just `before`.

    False if another run has ended it.
    """
    store = services.store(table)
    *_, outcome = store.commit(*before, ReleaseJob(job.id), generation=generation)
    record(services, table.id, job.id, "compaction", "failed", reason=reason)
    return not isinstance(outcome, Rejected)


def _delete_outputs(services: Services, table: Table, job: Job) -> None:
    """Delete what runs of a job wrote that was taken back, and so is never committed."""
    listed = services.storage.list(shard_prefix(table.id, job.id))
    shards = [shard for found in listed if (shard := shard_id_of(found.path)) is not None]
    services.storage.delete([run_marker_path(table.id, job.id)])
    discard_shards(services.storage, table.id, shards, services.store(table).current())


def _compaction(
    services: Services, table: Table, state: TableState, job: Job, removed: RowMatcher | None
) -> Compaction:
    inputs = tuple(state.shards[shard] for shard in job.inputs)
    footers = [footer for _, footer in read_footers(services.storage, table.id, inputs)]
    context = ShardContext(
        table_id=table.id,
        schema=table.schema,
        job=job.id,
        written_ms=services.clock.now_ms(),
        generation=state.generation,
        lineage=merge_lineages(
            dict(zip(job.inputs, (f.origin for f in footers), strict=True)), state
        ),
    )
    return Compaction(
        table=table,
        job=job,
        partition=state.partitions.get(job.partition),
        inputs=inputs,
        context=context,
        keys=tuple(footer.keys for footer in footers),
        removed=removed,
    )


def _run(
    services: Services,
    table: Table,
    state: TableState,
    job: Job,
    removed: RowMatcher | None,
    merge: Merge,
) -> ReplaceShards | Unfinished | None:
    """Return what is to be committed; None if the job can never be done, and was taken back."""
    try:
        return _written(services, _compaction(services, table, state, job, removed), merge)
    except AlreadyExistsError as error:
        reason, disputes = error.explanation, []
    except DamagedShardError as error:
        damaged = shard_id_of(error.path)
        if damaged not in job.inputs or is_sound(services, table, state.shards[damaged]):
            raise  # the next run of the job reads what is stored
        disputes = [DisputeShards((damaged,), DisputeReason.BYTES_DAMAGED, job.id)]
        reason = error.explanation
    if _release(services, table, job, state.generation, reason, *disputes):
        _delete_outputs(services, table, job)
    named = (shard for dispute in disputes for shard in dispute.shards)
    record_disputes(services, table, services.store(table).current(), named)
    return None


def _written(
    services: Services, compaction: Compaction, merge: Merge
) -> ReplaceShards | Unfinished:
    """Write what is left of a job's inputs, and note it where no output says that all is there."""
    merged = merge(services, compaction)
    if isinstance(merged, Unfinished):
        return merged
    taken = rows_taken(services, compaction)
    check_conserved(compaction.job, merged, taken)
    job = compaction.job
    done = ReplaceShards(
        job.id, job.partition, job.inputs, merged.outputs, taken, merged.rows_removed
    )
    if merged.ended:
        check_no_run_marker(services.storage, compaction.table.id, job.id)
    else:
        span = compaction.partition.range
        origin = compaction.context.origin(span, number=len(merged.outputs))
        numbers = tuple(run_of_shard(new.shard.id)[1] for new in merged.outputs)
        put_run_marker(services.storage, compaction.table.id, RunMarker(job.id, origin, numbers))
    return done


def rows_taken(
    services: Services, compaction: Compaction, span: KeyRange = EVERYTHING
) -> tuple[tuple[str, int], ...]:
    """Return how many rows each input has in the job's partition, counted apart from the merge.

    With a `span`, how many of those have their key in it.
    """
    span = compaction.partition.range.intersection(span)
    slices = [Slice(shard, span) for shard in compaction.inputs]
    counts = count_slices(services.storage, compaction.table, slices)
    return tuple((s.shard.id, rows) for s, rows in zip(slices, counts, strict=True))


def check_conserved(job: Job, merged: Merged, taken: tuple[tuple[str, int], ...]) -> None:
    """Check that a merge, or a step of one, loses no row but by the table's rules or a purge.

    Raises:
        InvariantError: it does, or some came twice.
    """
    removed = merged.rows_removed
    counted = sum(rows for _, rows in taken)
    read, kept, written = merged.rows_read, merged.rows_kept, merged.rows_written
    if (read, kept, written) != (counted, read - removed, kept):
        raise InvariantError(
            f"job {job.id} read {read} of {counted} rows, removed {removed} by rules, kept {kept} "
            f"and wrote {written}; nothing was committed"
        )


def _garbage(state: TableState, table: Table, job: Job) -> list[OutboundMessage]:
    freed = tuple(sorted(s for s in job.inputs if s in state.unreferenced))
    delay_seconds = min(table.properties.gc_delay_seconds, MAX_DELAY_SECONDS)
    candidates = GarbageCandidates(table.id, state.generation, freed)
    return [OutboundMessage("gc-candidates", candidates, delay_seconds)] if freed else []
