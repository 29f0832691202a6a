"""compact: an assigned job → its shards merged into new ones, in one commit.

The outputs are named after the job, so two runs of one job write the same objects and the first
wins: nothing that shapes them may depend on when a run happens. Order of writes: outputs, commit,
messages. A crash leaves outputs that the next run adopts. If they are not what it would write (the
rules of the table were changed, or the code), the job is taken back and planned anew.
A job of a purge leaves out the rows which that purge removes. The table's filters and aggregations
hold.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from dormouse.errors import AlreadyExistsError, InvalidRequestError, InvariantError
from dormouse.messages import CompactionJob, GarbageCandidates, Outgoing, TableChanged
from dormouse.model.names import (
    ending_path,
    purge_of,
    run_of,
    shard_id_in,
    shard_id_of,
    shard_path,
    shard_prefix,
)
from dormouse.model.origins import lineage_of
from dormouse.model.row_rules import row_rules
from dormouse.model.shards import Job, NewShard
from dormouse.model.state import TableState
from dormouse.model.tables import Table
from dormouse.model.transactions import ReleaseJob, ReplaceShards
from dormouse.ports import Services
from dormouse.shards.counted import Counted
from dormouse.shards.endings import put_ending
from dormouse.shards.footer import read_footers
from dormouse.shards.merging import Slice, merge_rows
from dormouse.shards.purging import RowMatcher
from dormouse.shards.refining import refined
from dormouse.shards.writing import ShardContext, write_shards
from dormouse.stages.collect_garbage import MAX_DELAY_SECONDS
from dormouse.stages.purges import purge_request
from dormouse.stages.tracking import record, tracked
from dormouse.statestore.protocol import Rejected


def compact(services: Services, message: CompactionJob) -> list[Outgoing]:
    """Run the job if it is still to be run; announce the change and the shards set free."""
    table = services.table(message.table_id)
    if table is None:
        return []
    state = services.store(table).current()
    job = state.jobs.get(message.job_id)
    changed = Outgoing("table-changes", TableChanged(table.id))
    if job is None or message.generation != state.generation:
        return [changed]  # done or taken back: whoever did that may have died before telling
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
        try:
            outputs, rows_read = _merge(services, table, state, job, removed)
        except AlreadyExistsError as error:
            if _release(services, table, job, state.generation, error.explanation):
                _delete_outputs(services, table, job)
            return [changed]
        replacement = ReplaceShards(job.id, job.partition, job.inputs, tuple(outputs))
        (outcome,) = services.store(table).commit(replacement, generation=state.generation)
        rows = sum(new.shard.rows for new in outputs)
        if isinstance(outcome, Rejected):
            reason = f"the result came too late: {outcome}"
            record(services, table.id, job.id, "compaction", "failed", reason=reason)
            return [changed]
    record(services, table.id, job.id, "compaction", "finished", rows=rows, rows_read=rows_read)
    return [changed, *_garbage(services, table, job)]


def _removed(services: Services, table: Table, job: Job) -> RowMatcher | None:
    """Give what the job is to leave out; None if it is of no purge.

    Raises:
        InvalidRequestError: its purge was given up, or is to be.
    """
    purge_id = purge_of(job.id)
    if purge_id is None:
        return None
    request = purge_request(services, table.id, purge_id)
    if request is None:
        raise InvalidRequestError("the purge it was for was given up")
    return RowMatcher.of(request, table.schema)


def _release(services: Services, table: Table, job: Job, generation: int, reason: str) -> bool:
    """Take a job back: its inputs are free for other jobs. False if another run has ended it."""
    (outcome,) = services.store(table).commit(ReleaseJob(job.id), generation=generation)
    record(services, table.id, job.id, "compaction", "failed", reason=reason)
    return not isinstance(outcome, Rejected)


def _delete_outputs(services: Services, table: Table, job: Job) -> None:
    """Delete what runs of a job wrote that was taken back, and so is never committed.

    The last shard goes first: a run without it is never taken for one that was committed.
    """
    listed = services.storage.list(shard_prefix(table.id, job.id))
    shards = [shard for found in listed if (shard := shard_id_of(found.path)) is not None]
    paths = [shard_path(table.id, s) for s in sorted(shards, key=run_of, reverse=True)]
    services.storage.delete([*paths[:1], ending_path(table.id, job.id)])
    services.storage.delete(paths[1:])


def _merge(
    services: Services, table: Table, state: TableState, job: Job, removed: RowMatcher | None
) -> tuple[list[NewShard], int]:
    """Write what is left of a job's inputs; give it, and the number of rows read."""
    partition = state.partitions.get(job.partition)
    inputs = [state.shards[shard] for shard in job.inputs]
    footers = read_footers(services.storage, table.id, inputs)
    context = ShardContext(
        table_id=table.id,
        schema=table.schema,
        job=job.id,
        tree=state.partitions,
        written_ms=services.clock.now_ms(),
        generation=state.generation,
        lineage=lineage_of({shard.id: footer.origin for shard, footer in footers}, state),
    )
    with tempfile.TemporaryDirectory(dir=services.scratch) as folder:
        read = Counted(
            merge_rows(
                services.storage,
                table.id,
                [Slice(shard, partition.range) for shard in inputs],
                table.schema,
                memory_bytes=services.memory_bytes,
            )
        )
        left = read if removed is None else removed.kept(read)
        # as of the job's assignment, so that its next run makes of the inputs what this one does
        rules = row_rules(table.schema, table.properties)
        kept = Counted(refined(left, table.schema, rules, job.assigned_ms))
        outputs = write_shards(
            services.storage,
            kept,
            context,
            [partition],
            lambda n: shard_id_in(job.id, n),
            scratch=Path(folder),
            target_bytes=table.properties.shard_target_bytes,
        )
    written = sum(new.shard.rows for new in outputs)
    _check_rows(state, job, read.rows, kept.rows, written)
    if not outputs:
        put_ending(services.storage, table.id, context.origin(job.partition))
    return outputs, read.rows


def _check_rows(state: TableState, job: Job, read: int, kept: int, written: int) -> None:
    inputs = [state.reference(job.partition, shard) for shard in job.inputs]
    known = [r.rows for r in inputs if r is not None and r.exact]
    if (len(known) == len(inputs) and sum(known) != read) or written != kept:
        raise InvariantError(
            f"job {job.id} read {read} rows of {sum(known)}, kept {kept} and wrote {written}; "
            "nothing was committed"
        )


def _garbage(services: Services, table: Table, job: Job) -> list[Outgoing]:
    state = services.store(table).current()
    freed = tuple(sorted(s for s in job.inputs if s in state.unreferenced))
    delay_seconds = min(table.properties.gc_delay_seconds, MAX_DELAY_SECONDS)
    candidates = GarbageCandidates(table.id, state.generation, freed)
    return [Outgoing("gc-candidates", candidates, delay_seconds)] if freed else []
