"""compact: merge the shards of an assigned job into new ones, in one commit.

The outputs are named after the job, so two runs of a job write the same objects, and the first
write wins. Nothing that shapes them may therefore depend on when a run happens. Order of writes:
outputs, commit, messages. A crash leaves outputs, which the next run adopts. If they differ from
what it would write (because the rules of the table changed, or the code), the job is released, and
another is planned for its inputs.

A merge applies the table's filters and aggregations; a job of a purge also removes the purged rows.
If an input's bytes are damaged, and still are when read again, the job is released and the shard
disputed: it is kept, an alarm fires, and no plan selects it, while the other inputs are free for
other jobs.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dormouse.cache import Cache
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
from dormouse.messages.stages import CompactionJob, GarbageCandidates, OutboundMessage, TableChanged
from dormouse.model.disputes import DisputeReason
from dormouse.model.jobs.job_events import Assigned, Failed, Finished, Started, TrackedJob
from dormouse.model.shards import Job
from dormouse.model.state import TableState
from dormouse.model.transactions import DisputeShards, ReleaseJob, ReplaceShards
from dormouse.model.versions.provenance import merge_lineages
from dormouse.ports.services import Services
from dormouse.query.count import count_slices
from dormouse.readers.reading import Slice, read_own_footers
from dormouse.shards.writing.division import ShardContext
from dormouse.shards.writing.run_markers import (
    RunMarker,
    discard_shards,
    put_run_marker,
)
from dormouse.state_store import Rejected
from dormouse.stored.paths import (
    run_marker_path,
    run_of_shard,
    shard_id_of,
    shard_prefix,
)
from dormouse.tables.bloom_columns import bloom_columns
from dormouse.tables.table import Table

SHARE_OF_INDEXES = 8
"""The inputs' indexes that are kept take at most this fraction (1/8) of the memory; others are
read again."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A merge made progress, `reason` says how much; another message of the job continues it."""

    reason: str


Merge = Callable[[Services, Compaction], Merged | Unfinished]
"""Merge a job's inputs and write the outputs, or a part of them, in this process or elsewhere."""


def merge_in_process(services: Services, compaction: Compaction) -> Merged:
    """Merge in this process."""
    with tempfile.TemporaryDirectory(dir=services.scratch) as folder:
        return merge_inputs(
            services.storage,
            compaction,
            scratch=Path(folder),
            memory_bytes=services.memory_bytes,
        )


def compact(
    services: Services, message: CompactionJob, merge: Merge = merge_in_process
) -> list[OutboundMessage]:
    """Run the job if it is still assigned; return messages of the change and of freed shards."""
    changed = OutboundMessage("table-changes", TableChanged(message.table_id))
    found = assigned_job(services, message)
    if found is None:
        if services.table(message.table_id) is None:
            return []
        finalise(services, message.table_id, message.job_id)
        return [changed]  # done or released, by a run that may have crashed before its messages
    table, state, job = found
    try:
        removed = _purge_matcher(services, table, job)
    except InvalidRequestError as error:
        _release(services, table, job, state.generation, error.explanation)
        return [changed]
    started = Started(
        subject=job.partition,
        files=len(job.inputs),
        size_bytes=sum(state.shards[shard].size_bytes for shard in job.inputs),
    )
    with tracked(services, _tracked_job(table, job), started):
        done = _merge_or_release(services, table, state, job, removed, merge)
        if done is None:
            return [changed]
        if isinstance(done, Unfinished):
            record(services, _tracked_job(table, job), Assigned(reason=done.reason))
            return [OutboundMessage("compaction-jobs", message)]
        (outcome,) = services.store(table).commit(done, generation=state.generation)
        if isinstance(outcome, Rejected):
            reason = f"the result was too late to be committed: {outcome}"
            record(services, _tracked_job(table, job), Failed(reason))
            return [changed]
    finished = Finished(
        rows=sum(new.shard.rows for new in done.outputs),
        rows_read=sum(rows for _, rows in done.rows_taken),
    )
    record(services, _tracked_job(table, job), finished)
    newest = services.store(table).current()
    record_disputes(services, table, newest, job.inputs)
    return [changed, *_garbage_candidates(newest, table, job)]


def _tracked_job(table: Table, job: Job) -> TrackedJob:
    return TrackedJob(table.id, job.id, "compaction", job.purge_id or "")


def assigned_job(
    services: Services, message: CompactionJob
) -> tuple[Table, TableState, Job] | None:
    """Return the job of a message with its table and state; None if it is no longer assigned."""
    table = services.table(message.table_id)
    if table is None:
        return None
    state = services.store(table).current()
    job = state.jobs.get(message.job_id)
    if job is None or not is_for(message.generation, table, state):
        return None
    return table, state, job


def _purge_matcher(services: Services, table: Table, job: Job) -> RowMatcher | None:
    """Return which rows the job is to remove for its purge; None if it belongs to no purge.

    Raises:
        InvalidRequestError: its purge has ended, or no longer fits the table's columns.
    """
    if job.purge_id is None:
        return None
    request = load_purge(services, table.id, job.purge_id)
    if request is None:
        raise InvalidRequestError("the purge that this job belongs to has ended")
    return RowMatcher.of(request, table.schema)


def _release(
    services: Services,
    table: Table,
    job: Job,
    generation: int,
    reason: str,
    *before: DisputeShards,
) -> bool:
    """Release a job, so that its inputs are free for other jobs; return False if it had ended.

    The disputes `before` are committed with it; disputed inputs are not free.
    """
    store = services.store(table)
    *_, outcome = store.commit(*before, ReleaseJob(job.id), generation=generation)
    record(services, _tracked_job(table, job), Failed(reason))
    return not isinstance(outcome, Rejected)


def _delete_outputs(services: Services, table: Table, job: Job) -> None:
    """Delete the outputs of a released job, which are never committed."""
    listed = services.storage.list(shard_prefix(table.id, job.id))
    shards = [shard for found in listed if (shard := shard_id_of(found.path)) is not None]
    services.storage.delete([run_marker_path(table.id, job.id)])
    discard_shards(services.storage, table.id, shards, services.store(table).current())


def _load_compaction(
    services: Services, table: Table, state: TableState, job: Job, removed: RowMatcher | None
) -> Compaction:
    inputs = tuple(state.shards[shard] for shard in job.inputs)
    partition = state.partitions.get(job.partition)
    read = Cache(services.memory_bytes // SHARE_OF_INDEXES)
    footers = read_own_footers(services.storage, table.id, inputs, table.schema, read)
    context = ShardContext(
        table_id=table.id,
        schema=table.schema,
        job=job.id,
        written_ms=services.clock.now_ms(),
        generation=state.generation,
        bloom_columns=bloom_columns(table.schema, table.properties),
        lineage=merge_lineages(
            dict(zip(job.inputs, (f.provenance for f in footers), strict=True)), state
        ),
    )
    return Compaction(
        table=table,
        job=job,
        partition=partition,
        inputs=inputs,
        context=context,
        leaves=tuple(state.partitions.leaves_overlapping(partition.range)),
        keys=tuple(footer.keys for footer in footers),
        removed=removed,
        read=read,
    )


def _merge_or_release(
    services: Services,
    table: Table,
    state: TableState,
    job: Job,
    removed: RowMatcher | None,
    merge: Merge,
) -> ReplaceShards | Unfinished | None:
    """Return the transaction to commit; None if the job can never be done and was released."""
    try:
        return _write_outputs(
            services, _load_compaction(services, table, state, job, removed), merge
        )
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


def _write_outputs(
    services: Services, compaction: Compaction, merge: Merge
) -> ReplaceShards | Unfinished:
    """Write the outputs of a job, and a run marker if no output is marked as the last."""
    merged = merge(services, compaction)
    if isinstance(merged, Unfinished):
        return merged
    taken = count_rows_taken(services, compaction)
    check_rows_conserved(compaction.job, merged, taken)
    job = compaction.job
    done = ReplaceShards(
        job.id, job.partition, job.inputs, merged.outputs, taken, merged.rows_removed
    )
    if not merged.last_is_marked:
        span = compaction.partition.range
        provenance = compaction.context.provenance(span, number=len(merged.outputs))
        numbers = tuple(run_of_shard(new.shard.id)[1] for new in merged.outputs)
        marker = RunMarker(job.id, provenance, numbers)
        put_run_marker(services.storage, compaction.table.id, marker)
    return done


def count_rows_taken(
    services: Services, compaction: Compaction, span: KeyRange = EVERYTHING
) -> tuple[tuple[str, int], ...]:
    """Return how many rows each input has in the job's partition, or in a `span` of its keys.

    They are counted independently of the merge, so that a fault of the merge is noticed.
    """
    span = compaction.partition.range.intersection(span)
    slices = [Slice(shard, span) for shard in compaction.inputs]
    counts = count_slices(services.storage, compaction.table, slices, compaction.read)
    return tuple((s.shard.id, rows) for s, rows in zip(slices, counts, strict=True))


def check_rows_conserved(job: Job, merged: Merged, taken: tuple[tuple[str, int], ...]) -> None:
    """Check that only the table's rules or a purge removed rows in a merge, or in a step of one.

    Raises:
        InvariantError: rows were lost or duplicated.
    """
    removed = merged.rows_removed
    counted = sum(rows for _, rows in taken)
    read, kept, written = merged.rows_read, merged.rows_kept, merged.rows_written
    if (read, kept, written) != (counted, read - removed, kept):
        raise InvariantError(
            f"job {job.id} read {read} of {counted} rows, removed {removed} by rules, kept {kept} "
            f"and wrote {written}; nothing was committed"
        )


def _garbage_candidates(state: TableState, table: Table, job: Job) -> list[OutboundMessage]:
    freed = tuple(sorted(s for s in job.inputs if s in state.unreferenced))
    delay_seconds = min(table.properties.gc_delay_seconds, MAX_DELAY_SECONDS)
    candidates = GarbageCandidates(table.id, state.generation, freed)
    return [OutboundMessage("gc-candidates", candidates, delay_seconds)] if freed else []
