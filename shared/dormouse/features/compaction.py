"""compact: merge the shards of an assigned job into new ones, in one commit.

The outputs are named after the job, so two runs of a job write the same objects, and the first
write wins. Nothing that shapes them may therefore depend on when a run happens. Order of writes:
outputs, commit, messages. A crash leaves outputs, which the next run adopts. If they differ from
what it would write (because the rules of the table changed, or the code), the job is released, and
another is planned for its inputs.

A merge applies the table's filters and aggregations, and the deletions that were there when the job
was assigned, those of purges too. If an input's bytes are damaged, and still are when read again,
the job is released and the shard disputed: it is kept, an alarm fires, and no plan selects it,
while the other inputs are free for other jobs.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from dormouse import errors, jobs
from dormouse.arrow.order import row_key, spans_in_ranges
from dormouse.arrow.sealing import ColumnKeys
from dormouse.arrow.types import RowCounter, Tally, arrow_schema, conform
from dormouse.features.checking import is_sound, record_disputes
from dormouse.features.compaction_steps import (
    MAX_CELLS,
    OUTCOME,
    Step,
    StepDone,
    StepOutcome,
    Steps,
    StepSplit,
    StoredOutcome,
    cells_digest,
    equal_row_ranges,
)
from dormouse.features.garbage import MAX_DELAY_SECONDS, candidates
from dormouse.features.reset import is_for
from dormouse.keys import KeyHistogram, KeyRange, merge_histograms
from dormouse.messages.stages import CompactionJob, OutboundMessage, TableChanged
from dormouse.ports import Cache, Services
from dormouse.query.rows import QueryResources, count_slices
from dormouse.rows.aggregation import without_tombstones
from dormouse.rows.deletions import check_columns, deletions_for
from dormouse.rows.merging import merged_rows
from dormouse.rows.predicates import Predicate, apply_row_rules
from dormouse.schema.row_tags import merged_texts, only_text
from dormouse.schema.schema import TAGS, Schema
from dormouse.shards import run_markers
from dormouse.shards.reading import Slice, read_own_footers
from dormouse.shards.writer import ShardContext, write_shards
from dormouse.state.jobs import Assigned, Failed, Finished, Started, TrackedJob, is_heavy_compaction
from dormouse.state.partitions import Job, NewShard, Partition, Shard
from dormouse.state.rules import Rejected
from dormouse.state.state import (
    Deletion,
    DisputeReason,
    DisputeShards,
    ReleaseJob,
    ReplaceShards,
    TableState,
)
from dormouse.state.versions import merge_lineages
from dormouse.stored import paths
from dormouse.stored.decoding import raise_corrupt
from dormouse.system import OwnFolder
from dormouse.tables.indexing import shredded_paths, term_columns
from dormouse.tables.properties import bloom_columns
from dormouse.tables.row_rules import RowRules, origin_fields, row_rules
from dormouse.tables.table import Table

# Merge the inputs of a compaction, or a key range of them, into shards by the table's rules.
#
# `compact` chooses the inputs and commits the outputs. The caller decides whether one process
# merges all keys, or many processes a range each.

EVERYTHING = KeyRange()


@dataclass(frozen=True, slots=True)
class Compaction:
    """An assigned job with everything that is needed to run it.

    `leaves` are those of its partition, in key order: the partition itself, unless it is split.
    Rows that `deletions` hide are left out. `keys` are the key histograms of the inputs, `read` has
    their indexes, so that each is read once.
    """

    table: Table
    job: Job
    partition: Partition
    inputs: tuple[Shard, ...]
    context: ShardContext
    leaves: tuple[Partition, ...] = ()
    keys: tuple[KeyHistogram, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    read: Cache | None = None

    @property
    def size_bytes(self) -> int:
        """Return the stored size of the inputs."""
        return sum(shard.size_bytes for shard in self.inputs)

    @property
    def known(self) -> KeyHistogram:
        """Return the key histogram of all inputs together."""
        return merge_histograms(self.keys)


@dataclass(frozen=True, slots=True)
class Merged:
    """The outputs of a merge, or of a part of one, and its rows counted at each stage.

    `rows_read` rows of the inputs were read; deletions and the table's rules counted `rows_removed`
    that they left out; `rows_kept` were passed to the writer. `last_is_marked` is whether an
    output's footer says that it is the last of the run.
    """

    outputs: tuple[NewShard, ...]
    rows_read: int
    rows_kept: int
    rows_removed: int
    last_is_marked: bool


def merge_inputs(
    access: QueryResources,
    compaction: Compaction,
    *,
    scratch: Path,
    memory_bytes: int,
    span: KeyRange = EVERYTHING,
    part: int | None = None,
) -> Merged:
    """Merge the inputs' rows in `span`, by default all rows, and write them as shards, encrypted by
    the newest data keys. `part` is the number of this part if the compaction is merged in parts.

    Raises:
        NotFoundError: an input is missing.
        CorruptDataError: an input is damaged.
        ForbiddenError: values are of an older data key, and a key may not be used.
        AlreadyExistsError: another run of the job wrote different outputs of the same inputs, or
            wrote them in parts.
    """
    table, job, storage = compaction.table, compaction.job, access.storage
    overlap = compaction.partition.range.intersection(span)
    schema, rules = _read_by(compaction)
    slices, unread_rows = _slices(compaction, overlap, rules)
    input_rows = RowCounter(
        merged_rows(
            storage,
            table.id,
            slices,
            schema,
            scratch=scratch,
            memory_bytes=memory_bytes,
            cache=compaction.read,
        )
    )
    tally = Tally(unread_rows)
    rest = _without_whole_keys(compaction, input_rows, schema, rules, tally)
    applied = _ruled(compaction, rest, schema, rules, tally)
    columns = arrow_schema(compaction.context.schema)
    keys = ColumnKeys(access.keys, table.schema, table.id)
    output_rows = RowCounter(keys.renewed(conform(batch, columns)) for batch in applied)
    rows = [0] * len(compaction.leaves)
    outputs = write_shards(
        storage,
        _counted(output_rows, compaction.leaves, table.schema, rows),
        replace(compaction.context, part=part),
        [compaction.partition],
        lambda n: paths.make_shard_id(job.id, n),
        scratch=scratch,
        target_bytes=table.properties.shard_target_bytes,
        at_the_end=lambda: run_markers.check_no_run_marker(storage, table.id, job.id),
    )
    marked = part is None and bool(outputs)
    if len(compaction.leaves) > 1:
        outputs = list(_placed(outputs, compaction.leaves, rows))
    counts = input_rows.rows + unread_rows, output_rows.rows, tally.rows
    return Merged(tuple(outputs), *counts, marked)


def _slices(compaction: Compaction, overlap: KeyRange, rules: RowRules) -> tuple[list[Slice], int]:
    """Return what is read of the inputs, and how many rows are not, as deletions hide them all."""
    slices = [Slice(shard, overlap, compaction.deletions) for shard in compaction.inputs]
    skips = [each for each in slices if each.is_whole and each.is_hidden and not rules.aggregates]
    rest = [each for each in slices if each not in skips]
    return rest, sum(each.shard.rows for each in skips)


def _without_whole_keys(
    compaction: Compaction,
    rows: Iterator[pa.RecordBatch],
    schema: Schema,
    rules: RowRules,
    tally: Tally,
) -> Iterator[pa.RecordBatch]:
    """Return the rows that neither a deletion that lasts hides nor a purge by keys: no tombstones
    are needed in place of these, which hide whatever else there is of their keys.
    """
    keys = {field.id for field in schema.row_keys}

    def hides_keys(deletion: Deletion) -> bool:
        is_purge = rules.keeps_latest and bool(deletion.purge_id)
        return is_purge and all(json.loads(text)["id"] in keys for text in deletion.columns)

    if whole := tuple(each for each in compaction.deletions if each.below or hides_keys(each)):
        hidden = Predicate(deletions_for(schema, whole).hidden, schema)
        rows = hidden.negated().apply(rows, tally)
    return rows


def _ruled(
    compaction: Compaction,
    rows: Iterator[pa.RecordBatch],
    schema: Schema,
    rules: RowRules,
    tally: Tally,
) -> Iterator[pa.RecordBatch]:
    """Return what the rules leave. They are evaluated at the time of the job's assignment, so that
    each run of the job writes the same rows.
    """
    job, properties = compaction.job, compaction.table.properties
    hides_in = [span for each in compaction.deletions if not each.below for span in each.spans]
    applied = apply_row_rules(rows, schema, rules, job.assigned_ms, tally, hides_in)
    if not (rules.keeps_latest and job.takes_all):
        return applied
    age_ms = properties.tombstone_age_seconds * 1000
    before_ms = job.assigned_ms - age_ms if properties.latest_by else None
    return without_tombstones(applied, before_ms, tally)


def _read_by(compaction: Compaction) -> tuple[Schema, RowRules]:
    """Return the columns that inputs are read by, and the rules for their rows, with deletions."""
    rules = row_rules(compaction.table.schema, compaction.table.properties)
    schema = compaction.context.schema
    made = tuple(each for each in compaction.deletions if not each.below)
    if not made:
        return schema, rules
    deletions = deletions_for(schema, made)
    return deletions.schema, replace(rules, kept=deletions.hidden.negated())


def _counted(
    batches: Iterable[pa.RecordBatch], leaves: Sequence[Partition], schema: Schema, rows: list[int]
) -> Iterator[pa.RecordBatch]:
    """Yield sorted batches, and add to `rows` how many rows each of several leaves has."""
    ranges = [leaf.range for leaf in leaves]
    begins = [span.min for span in ranges]
    for batch in batches:
        if len(leaves) > 1:
            for start, end in spans_in_ranges(batch, ranges, schema):
                leaf = bisect_right(begins, row_key(batch, start, schema)) - 1
                rows[leaf] += end - start
        yield batch


def _placed(
    outputs: Iterable[NewShard], leaves: Sequence[Partition], rows: Sequence[int]
) -> Iterator[NewShard]:
    """Yield the outputs, which follow each other in key order, with their rows in each leaf.

    Example: of leaves with 4 and 5 rows, outputs of 3 and 6 rows have 3 rows in the first leaf;
    and 1 there and 5 in the second.
    """
    ends = list(accumulate(rows))
    begin = 0
    for new in outputs:
        end = begin + new.shard.rows
        first, last = bisect_right(ends, begin), bisect_left(ends, end)
        spans = (
            (i, min(ends[i], end) - max(ends[i] - rows[i], begin)) for i in range(first, last + 1)
        )
        yield NewShard(new.shard, tuple((leaves[i].id, n) for i, n in spans if n))
        begin = end


SHARE_OF_INDEXES = 8
"""The inputs' indexes that are kept take at most this fraction (1/8) of the memory; others are
read again."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A merge made progress, `reason` says how much; another message of the job continues it."""

    reason: str


Merge = Callable[[Services, Compaction], Merged | Unfinished]
"""Merge a job's inputs and write the outputs, or a part of them, in this process or elsewhere."""


def merge_in_process(
    services: Services, compaction: Compaction, span: KeyRange = EVERYTHING, part: int | None = None
) -> Merged:
    """Merge in this process, as `merge_inputs` says."""
    with OwnFolder(dir=services.scratch) as folder:
        return merge_inputs(
            services,
            compaction,
            scratch=Path(folder),
            memory_bytes=services.memory_bytes,
            span=span,
            part=part,
        )


def compact(
    services: Services, message: CompactionJob, merge: Merge = merge_in_process
) -> list[OutboundMessage]:
    """Run the job if it is still assigned; return messages of the change and of freed shards."""
    changed = OutboundMessage("table-changes", TableChanged(message.table_id))
    assignment = assigned_job(services, message)
    if assignment is None:
        if services.table(message.table_id) is None:
            return []
        jobs.finalise(services, message.table_id, message.job_id)
        return [changed]  # done or released, by a run that may have crashed before its messages
    table, state, job = assignment
    try:
        rules = row_rules(table.schema, table.properties)
        fields = table.schema.with_values(*origin_fields(rules, table.properties))
        check_columns(fields, state.deletions, job.sequence)
    except errors.InvalidRequestError as error:
        _release(services, table, job, state.generation, error.explanation)
        return [changed]
    start = Started(
        subject=job.partition,
        files=len(job.inputs),
        size_bytes=sum(state.shards[shard].size_bytes for shard in job.inputs),
    )
    with jobs.tracked(services, _tracked_job(table, job), start):
        result = _merge_or_release(services, table, state, job, merge)
        if result is None:
            return [changed]
        if isinstance(result, Unfinished):
            jobs.record(services, _tracked_job(table, job), Assigned(reason=result.reason))
            return [OutboundMessage("compaction-jobs", message)]
        (outcome,) = services.store(table).commit(result, generation=state.generation)
        if isinstance(outcome, Rejected):
            # Another run was quicker; or each repeat of the job would be rejected, as one in steps
            # that counts rows in leaves which are gone since the tree of partitions was balanced.
            reason = f"the result was too late to be committed: {outcome}"
            if _release(services, table, job, state.generation, reason):
                _delete_outputs(services, table, job)
            return [changed]
    end = Finished(
        rows=sum(new.shard.rows for new in result.outputs),
        rows_read=sum(rows for _, rows in result.rows_taken),
    )
    jobs.record(services, _tracked_job(table, job), end)
    newest = services.store(table).current()
    record_disputes(services, table, newest, job.inputs)
    free = sorted(shard for shard in job.inputs if shard in newest.unreferenced)
    delay_seconds = min(table.properties.gc_delay_seconds, MAX_DELAY_SECONDS)
    return [changed, *candidates(table, newest, free, delay_seconds)]


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


def _release(
    services: Services, table: Table, job: Job, generation: int, reason: str, *before: DisputeShards
) -> bool:
    """Release a job, so that its inputs are free for other jobs; return False if it had ended.

    The disputes `before` are committed with it; disputed inputs are not free. The record of a
    quicker run that has done the job stays.
    """
    store = services.store(table)
    *_, outcome = store.commit(*before, ReleaseJob(job.id), generation=generation)
    is_released = not isinstance(outcome, Rejected)
    last = services.tracker.get(table.id, job.id)
    if is_released or last is None or last.state != "finished":
        jobs.record(services, _tracked_job(table, job), Failed(reason))
    return is_released


def _delete_outputs(services: Services, table: Table, job: Job) -> None:
    """Delete the outputs of a released job, which are never committed."""
    shards = _list_outputs(services, table, job)
    services.storage.delete([paths.RUN_MARKERS.path(table.id, job.id)])
    run_markers.discard_shards(services.storage, table.id, shards, services.store(table).current())


def _load_compaction(services: Services, table: Table, state: TableState, job: Job) -> Compaction:
    inputs = tuple(state.shards[shard] for shard in job.inputs)
    partition = state.partitions.get(job.partition)
    cache = Cache(services.memory_bytes // SHARE_OF_INDEXES)
    footers = read_own_footers(services.storage, table.id, inputs, table.schema, cache)
    rules = row_rules(table.schema, table.properties)
    schema = rules.stored_schema(table.schema)
    tags = merged_texts(shard.tags for shard in inputs) if rules.keeps_tags else ""
    schema = schema.with_values(*origin_fields(rules, table.properties))
    if only_text(tags) is None:
        schema = schema.with_values(TAGS)
    provenances = dict(zip(job.inputs, (each.provenance for each in footers), strict=True))
    context = ShardContext(
        table_id=table.id,
        schema=schema,
        job=job.id,
        written_ms=job.assigned_ms,  # a rebuild compares it with the time of deletions
        generation=state.generation,
        bloom_columns=bloom_columns(table.schema, table.properties),
        term_columns=term_columns(table.schema, table.properties),
        paths=shredded_paths(table.schema, table.properties),
        lineage=merge_lineages(provenances, state),
        tags=only_text(tags) or "",
    )
    return Compaction(
        table=table,
        job=job,
        partition=partition,
        inputs=inputs,
        context=context,
        leaves=tuple(state.partitions.leaves_overlapping(partition.range)),
        keys=tuple(footer.keys for footer in footers),
        deletions=tuple(d for d in state.deletions if d.number <= job.sequence),
        read=cache,
    )


def _merge_or_release(
    services: Services, table: Table, state: TableState, job: Job, merge: Merge
) -> ReplaceShards | Unfinished | None:
    """Return the transaction to commit; None if the job can never be done and was released."""
    try:
        return _write_outputs(services, _load_compaction(services, table, state, job), merge)
    except errors.AlreadyExistsError as error:
        reason, disputes = error.explanation, []
    except errors.DamagedShardError as error:
        damaged = paths.shard_id_of(error.path)
        if damaged not in job.inputs or is_sound(services, table, state.shards[damaged]):
            raise  # the next run of the job reads what is stored
        disputes = [DisputeShards((damaged,), DisputeReason.BYTES_DAMAGED, job.id)]
        reason = error.explanation
    if _release(services, table, job, state.generation, reason, *disputes):
        _delete_outputs(services, table, job)
    shards = (shard for dispute in disputes for shard in dispute.shards)
    record_disputes(services, table, services.store(table).current(), shards)
    return None


def _write_outputs(
    services: Services, compaction: Compaction, merge: Merge
) -> ReplaceShards | Unfinished:
    """Write the outputs of a job, and a run marker if no output is marked as the last."""
    result = merge(services, compaction)
    if isinstance(result, Unfinished):
        return result
    takings = count_rows_taken(services, compaction)
    check_rows_conserved(compaction.job, result, takings)
    job = compaction.job
    replacement = ReplaceShards(
        job.id, job.partition, job.inputs, result.outputs, takings, result.rows_removed
    )
    if not result.last_is_marked:
        span = compaction.partition.range
        provenance = compaction.context.provenance(span, number=len(result.outputs))
        numbers = tuple(paths.run_of_shard(new.shard.id)[1] for new in result.outputs)
        marker = run_markers.RunMarker(job.id, provenance, numbers)
        run_markers.put_run_marker(services.storage, compaction.table.id, marker)
    return replacement


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


def check_rows_conserved(job: Job, result: Merged, takings: tuple[tuple[str, int], ...]) -> None:
    """Check that only deletions and the table's rules removed rows in a merge, or a step of one.
    Raises InvariantError: rows were lost or duplicated.
    """
    removed = result.rows_removed
    counted = sum(rows for _, rows in takings)
    read, kept = result.rows_read, result.rows_kept
    written = sum(new.shard.rows for new in result.outputs)
    if (read, kept, written) != (counted, read - removed, kept):
        raise errors.InvariantError(
            f"job {job.id} read {read} of {counted} rows, removed {removed} by rules, kept {kept} "
            f"and wrote {written}; nothing was committed"
        )


# Run compactions in functions; hand one that is too large to Spark, or run it in steps.
#
# A job is too large if it reads more than a function should, or if its runs crashed. Without Spark,
# its keys are divided into steps (`steps`). Each message of the job runs the next step: it merges
# the inputs' rows in the step's key range, writes the shards and the step's outcome, and sends the
# job again. The last message commits all shards at once. A step whose own runs crash is split in
# half while it has several cells of keys; after that, the job is set aside with a hint.
#
# Order of writes in a step: shards, outcome, message. A crash leaves shards that the next run
# adopts, or an outcome that it reads. Shards of a step that was split are never used. They are
# deleted before the commit, because the shards of the smaller steps hold the same rows. If a stored
# outcome is damaged, nothing says which shards belong to the job: it is released, and another is
# planned. An audit deletes the outcomes once the job is no longer assigned.

TOO_HEAVY = "it reads more than a function is to do"
WHAT_TO_DO = (
    "deploy with a larger RowsMemory or with Spark=yes, and then: "
    "dormouse dlq redrive compaction-jobs"
)


def compact_within_limits(services: Services, message: CompactionJob) -> list[OutboundMessage]:
    """Run a job, or its next step; hand it to Spark if it is too large for a function."""
    assignment = assigned_job(services, message)
    if assignment is None:
        return compact(services, message)
    table, state, job = assignment
    try:
        steps = load_steps(services, table.id, job.id)
    except errors.CorruptDataError as error:
        return compact(services, message, _release_and_delete(error.explanation))
    is_crashed = steps.whole is None and jobs.has_crashed(services, table.id, job.id)
    is_heavy = steps.whole is not None or is_heavy_compaction(state, job, table.properties)
    if not is_crashed and not is_heavy:
        return compact(services, message)
    if services.has_spark:
        return jobs.hand_to_spark(services, message, jobs.CRASHED if is_crashed else TOO_HEAVY)
    try:
        return compact(services, message, _StepMerge(steps, is_crashed).merge)
    except errors.JobTooLargeError as error:
        jobs.set_aside(services, table.id, job.id, jobs.FUNCTION)
        return [
            OutboundMessage(
                paths.dead_letter_queue("compaction-jobs"), message, reason=error.explanation
            )
        ]


def _release_and_delete(reason: str) -> Merge:
    """Return the merge of a job whose stored steps are damaged: `compact` releases it, and deletes
    its outputs.
    """

    def merge(_services: Services, _compaction: Compaction) -> Merged | Unfinished:
        raise errors.AlreadyExistsError(reason)

    return merge


@dataclass(frozen=True, slots=True)
class _StepMerge:
    """The merge of a job in steps; each call runs the next one."""

    steps: Steps
    is_crashed: bool

    def merge(self, services: Services, compaction: Compaction) -> Merged | Unfinished:
        """Divide the job into steps, run its next step, or combine the steps that are done.

        Raises:
            JobTooLargeError: a function cannot do it, and it cannot be divided.
            AlreadyExistsError: other code divided the job in another way.
        """
        cells = equal_row_ranges(compaction.partition.range, compaction.known, MAX_CELLS)
        if self.steps.whole is None:
            return self._begin(services, compaction, cells)
        if self.steps.digest != cells_digest(cells) or self.steps.whole.end != len(cells):
            raise errors.AlreadyExistsError(
                f"job {compaction.job.id} was divided into other steps, by another version"
            )
        _discard_superseded(services, compaction, self.steps)
        if not self.steps.left:
            return _combine_steps(services, compaction, self.steps)
        step = self.steps.left[0]
        outcome = _run_step(services, compaction, step, cells)
        steps = Steps({**self.steps.outcomes, step: outcome})
        return Unfinished(f"{len(steps.done)} of {len(steps.current)} steps are done")

    def _begin(
        self, services: Services, compaction: Compaction, cells: Sequence[KeyRange]
    ) -> Merged | Unfinished:
        whole = Step(0, len(cells))
        if whole.cells > 1:
            limit = compaction.table.properties.compaction_spark_bytes or compaction.size_bytes
            into = whole.split(-(-compaction.size_bytes // limit))
            _save_outcome(services, compaction, whole, StepSplit(into), cells)
            return Unfinished(f"it is done in {len(into)} steps")
        if self.is_crashed:
            raise errors.JobTooLargeError(
                f"{jobs.CRASHED}, and all its rows have one key", hint=WHAT_TO_DO
            )
        return merge_in_process(services, compaction)


def load_steps(services: Services, table_id: str, job_id: str) -> Steps:
    """Return the stored outcomes of a job's steps.
    Raises CorruptDataError: an outcome is damaged, or a foreign object lies beside them.
    """
    outcomes: dict[Step, StepOutcome] = {}
    digest = ""
    for item in services.storage.list(paths.steps_prefix(table_id, job_id)):
        with raise_corrupt(f"{item.path} is not where a step is noted"):
            step = Step(*paths.parse_step_path(item.path))
        outcome = OUTCOME.get(services.storage, item.path)
        if outcome is not None:  # else the job has ended, and an audit deletes the outcomes
            outcomes[step], digest = outcome.outcome, outcome.cells
    return Steps(outcomes, digest)


def _run_step(
    services: Services, compaction: Compaction, step: Step, cells: Sequence[KeyRange]
) -> StepOutcome:
    """Run a step, or split it if its runs crashed; save and return its outcome.

    Raises:
        JobTooLargeError: it must be split, and is a single cell.
        InvariantError: rows were lost or duplicated.
    """
    table, job = compaction.table, compaction.job
    runs = paths.step_attempts_prefix(table.id, job.id, step.first, step.end)
    if len(jobs.crashed_attempts(services.storage, runs)) >= jobs.CRASH_LIMIT:
        if step.cells == 1:
            jobs.clear_crashes(services.storage, runs)
            raise errors.JobTooLargeError(
                f"{jobs.CRASHED}, in a step that cannot be split", hint=WHAT_TO_DO
            )
        outcome: StepOutcome = StepSplit(step.split(2))
        _save_outcome(services, compaction, step, outcome, cells)
        return outcome
    with jobs.record_attempt(services.storage, services.ids, runs):
        span = KeyRange(cells[step.first].min, cells[step.end - 1].max)
        result = merge_in_process(services, compaction, span, step.part)
        check_rows_conserved(job, result, count_rows_taken(services, compaction, span))
        outcome = StepDone(result.outputs, result.rows_read, result.rows_kept, result.rows_removed)
        _save_outcome(services, compaction, step, outcome, cells)
    return outcome


def _save_outcome(
    services: Services,
    compaction: Compaction,
    step: Step,
    outcome: StepOutcome,
    cells: Sequence[KeyRange],
) -> None:
    """Save the outcome of a step; an outcome that is already stored stays."""
    path = paths.step_path(compaction.table.id, compaction.job.id, step.first, step.end)
    OUTCOME.put(services.storage, path, StoredOutcome(cells_digest(cells), outcome))


def _combine_steps(services: Services, compaction: Compaction, steps: Steps) -> Merged:
    """Return the result of all steps as that of one merge.
    Raises AlreadyExistsError: the job has shards that are not of its steps, or lacks some.
    """
    outputs = tuple(new for done in steps.done for new in done.outputs)
    shards = _list_outputs(services, compaction.table, compaction.job)
    if set(shards) != {new.shard.id for new in outputs}:
        raise errors.AlreadyExistsError(
            f"the shards of job {compaction.job.id} are not those that its steps wrote"
        )
    return Merged(
        outputs,
        sum(done.rows_read for done in steps.done),
        sum(done.rows_kept for done in steps.done),
        sum(done.rows_removed for done in steps.done),
        last_is_marked=False,
    )


def _discard_superseded(services: Services, compaction: Compaction, steps: Steps) -> None:
    """Delete shards written by runs of the whole job, or of steps that were split."""
    table, parts = compaction.table, {step.part for step in steps.current}
    outputs = _list_outputs(services, table, compaction.job)
    superseded = [
        shard
        for shard in outputs
        if paths.run_of_shard(shard)[1] // paths.PART_NUMBERS not in parts
    ]
    if superseded:
        state = services.store(table).current()
        run_markers.discard_shards(services.storage, table.id, superseded, state)


def _list_outputs(services: Services, table: Table, job: Job) -> list[str]:
    """Return the stored shards that are named after a job."""
    objects = services.storage.list(paths.shard_prefix(table.id, job.id))
    return [shard for item in objects if (shard := paths.shard_id_of(item.path)) is not None]
