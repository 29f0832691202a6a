"""compact: merge the shards of an assigned job into new ones, in one commit.

The outputs are named after the job, so two runs of a job write the same objects, and the first
write wins. Nothing that shapes them may therefore depend on when a run happens. Order of writes:
outputs, commit, messages. A crash leaves outputs, which the next run adopts. If they differ from
what it would write (because the rules of the table changed, or the code), the job is released, and
another is planned for its inputs.

A merge applies the table's filters and aggregations, and the deletions that were there when the job
was assigned; a job of a purge also removes the purged rows.
If an input's bytes are damaged, and still are when read again, the job is released and the shard
disputed: it is kept, an alarm fires, and no plan selects it, while the other inputs are free for
other jobs.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from dormouse.arrow.order import row_key, spans_in_ranges
from dormouse.arrow.sealing import ColumnKeys
from dormouse.arrow.types import RowCounter, Tally, arrow_schema, conform
from dormouse.errors import (
    AlreadyExistsError,
    CorruptDataError,
    DamagedShardError,
    InvalidRequestError,
    InvariantError,
    JobTooLargeError,
)
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
from dormouse.features.garbage import MAX_DELAY_SECONDS
from dormouse.features.purge import load_purge
from dormouse.features.reset import is_for
from dormouse.features.row_matcher import RowMatcher
from dormouse.jobs import (
    CRASH_LIMIT,
    CRASHED,
    FUNCTION,
    clear_crashes,
    crashed_attempts,
    finalise,
    hand_to_spark,
    has_crashed,
    record,
    record_attempt,
    set_aside,
    tracked,
)
from dormouse.keys import KeyHistogram, KeyRange, merge_histograms
from dormouse.messages.stages import CompactionJob, GarbageCandidates, OutboundMessage, TableChanged
from dormouse.ports import Cache, Services
from dormouse.query.rows import QueryResources, count_slices
from dormouse.rows.deletions import check_columns, deletions_for
from dormouse.rows.latest import without_tombstones
from dormouse.rows.merging import merged_rows
from dormouse.rows.predicates import Predicate, apply_row_rules
from dormouse.schema.row_tags import merged_texts, only_text
from dormouse.schema.schema import TAGS, Schema
from dormouse.shards.reading import Slice, read_own_footers
from dormouse.shards.run_markers import (
    RunMarker,
    check_no_run_marker,
    discard_shards,
    put_run_marker,
)
from dormouse.shards.writer import ShardContext, write_shards
from dormouse.sql.conditions import Condition
from dormouse.state.jobs import Assigned, Failed, Finished, Started, TrackedJob, is_heavy_compaction
from dormouse.state.partitions import Job, NewShard, Partition, Shard
from dormouse.state.state import (
    Deletion,
    DisputeReason,
    DisputeShards,
    ReleaseJob,
    ReplaceShards,
    TableState,
)
from dormouse.state.store import Rejected
from dormouse.state.versions import merge_lineages
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.paths import (
    PART_NUMBERS,
    dead_letter_queue,
    make_shard_id,
    parse_step_path,
    run_marker_path,
    run_of_shard,
    shard_id_of,
    shard_prefix,
    step_attempts_prefix,
    step_path,
    steps_prefix,
)
from dormouse.tables.properties import bloom_columns
from dormouse.tables.row_rules import RowRules, origin_fields, row_rules
from dormouse.tables.shredding import shredded_paths
from dormouse.tables.table import Table
from dormouse.tables.term_index import term_columns

# Merge the inputs of a compaction, or a key range of them, into shards by the table's rules.
#
# `compact` chooses the inputs and commits the outputs. The caller decides whether one process
# merges all keys, or many processes a range each.

EVERYTHING = KeyRange()


@dataclass(frozen=True, slots=True)
class Compaction:
    """An assigned job with everything that is needed to run it.

    `leaves` are those of its partition, in key order: the partition itself, unless it is split.
    Rows that `removed` matches are purged, and those that `deletions` hide are left out. `keys` are
    the key histograms of the inputs, `read` has their indexes, so that each is read once.
    """

    table: Table
    job: Job
    partition: Partition
    inputs: tuple[Shard, ...]
    context: ShardContext
    leaves: tuple[Partition, ...] = ()
    keys: tuple[KeyHistogram, ...] = ()
    removed: RowMatcher | None = None
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

    `rows_read` rows of the inputs were read; a purge and the table's rules counted `rows_removed`
    that they left out; `rows_kept` were passed to the writer. `last_is_marked` is whether an
    output's footer says that it is the last of the run.
    """

    outputs: tuple[NewShard, ...]
    rows_read: int
    rows_kept: int
    rows_removed: int
    last_is_marked: bool

    @property
    def rows_written(self) -> int:
        """Return the number of rows in the outputs."""
        return sum(new.shard.rows for new in self.outputs)


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
    wanted = compaction.partition.range.intersection(span)
    schema, rules = _read_by(compaction)
    slices, unread_rows = _slices(compaction, wanted, rules)
    read = RowCounter(
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
    removed = Tally(unread_rows)
    applied = _ruled(compaction, _left(compaction, read, schema, removed), schema, rules, removed)
    columns = arrow_schema(compaction.context.schema)
    keys = ColumnKeys(access.keys, table.schema, table.id)
    kept = RowCounter(keys.renewed(conform(batch, columns)) for batch in applied)
    rows = [0] * len(compaction.leaves)
    outputs = write_shards(
        storage,
        _counted(kept, compaction.leaves, table.schema, rows),
        replace(compaction.context, part=part),
        [compaction.partition],
        lambda n: make_shard_id(job.id, n),
        scratch=scratch,
        target_bytes=table.properties.shard_target_bytes,
        at_the_end=lambda: check_no_run_marker(storage, table.id, job.id),
    )
    marked = part is None and bool(outputs)
    if len(compaction.leaves) > 1:
        outputs = list(_placed(outputs, compaction.leaves, rows))
    counts = read.rows + unread_rows, kept.rows, removed.rows
    return Merged(tuple(outputs), *counts, marked)


def _slices(compaction: Compaction, wanted: KeyRange, rules: RowRules) -> tuple[list[Slice], int]:
    """Return what is read of the inputs, and how many rows are not, as deletions hide them all."""
    slices = [Slice(shard, wanted, compaction.deletions) for shard in compaction.inputs]
    gone = [each for each in slices if each.is_whole and each.is_hidden and not rules.aggregates]
    left = [each for each in slices if each not in gone]
    return left, sum(each.shard.rows for each in gone)


def _left(
    compaction: Compaction, rows: Iterator[pa.RecordBatch], schema: Schema, removed: Tally
) -> Iterator[pa.RecordBatch]:
    """Return the rows that neither a purge removes nor a deletion that lasts: no tombstones are
    needed in place of these, which hide whatever else there is of their keys.
    """
    purged = compaction.removed
    if purged is not None and not purged.entombs:
        rows = purged.kept(rows, removed)
    if lasting := tuple(each for each in compaction.deletions if each.below):
        hidden = Predicate(deletions_for(schema, lasting).hidden, schema)
        rows = hidden.negated().apply(rows, removed)
    return rows


def _ruled(
    compaction: Compaction,
    rows: Iterator[pa.RecordBatch],
    schema: Schema,
    rules: RowRules,
    removed: Tally,
) -> Iterator[pa.RecordBatch]:
    """Return what the rules leave. They are evaluated at the time of the job's assignment, so that
    each run of the job writes the same rows.
    """
    job, properties, purged = compaction.job, compaction.table.properties, compaction.removed
    hidden = [span for each in compaction.deletions if not each.below for span in each.spans]
    hides_in = None if purged is not None and purged.entombs else hidden
    applied = apply_row_rules(rows, schema, rules, job.assigned_ms, removed, hides_in)
    if not (rules.keeps_latest and job.takes_all):
        return applied
    age_ms = properties.tombstone_age_seconds * 1000
    before_ms = job.assigned_ms - age_ms if properties.latest_by else None
    return without_tombstones(applied, before_ms, removed)


def _read_by(compaction: Compaction) -> tuple[Schema, RowRules]:
    """Return the columns that inputs are read by, and the rules for their rows, with deletions."""
    rules = row_rules(compaction.table.schema, compaction.table.properties)
    schema, tests = compaction.context.schema, list[Condition]()
    if made := tuple(each for each in compaction.deletions if not each.below):
        deletions = deletions_for(schema, made)
        schema, tests = deletions.schema, [deletions.hidden]
    purged = compaction.removed
    if purged is not None and purged.predicate is not None and purged.entombs:
        tests.append(purged.predicate.condition)
    kept = [test.negated() for test in tests]
    return schema, replace(rules, kept=reduce(Condition.and_also, kept)) if kept else rules


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


def merge_in_process(services: Services, compaction: Compaction) -> Merged:
    """Merge in this process."""
    with tempfile.TemporaryDirectory(dir=services.scratch) as folder:
        return merge_inputs(
            services,
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
        rules = row_rules(table.schema, table.properties)
        written = table.schema.with_values(*origin_fields(rules, table.properties))
        check_columns(written, state.deletions, job.sequence)
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
            # Another run was quicker; or each repeat of the job would be rejected, as one in steps
            # that counts rows in leaves which are gone since the tree of partitions was balanced.
            reason = f"the result was too late to be committed: {outcome}"
            if _release(services, table, job, state.generation, reason):
                _delete_outputs(services, table, job)
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
    return RowMatcher.of(request, table.schema, table.properties.keep)


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
        removed=removed,
        deletions=tuple(d for d in state.deletions if d.number <= job.sequence),
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
    found = assigned_job(services, message)
    if found is None:
        return compact(services, message)
    table, state, job = found
    try:
        steps = load_steps(services, table.id, job.id)
    except CorruptDataError as error:
        return compact(services, message, _UnreadableSteps(error.explanation).merge)
    is_crashed = steps.whole is None and has_crashed(services, table.id, job.id)
    is_heavy = steps.whole is not None or is_heavy_compaction(state, job, table.properties)
    if not is_crashed and not is_heavy:
        return compact(services, message)
    if services.has_spark:
        return hand_to_spark(services, message, CRASHED if is_crashed else TOO_HEAVY)
    try:
        return compact(services, message, _StepMerge(steps, is_crashed).merge)
    except JobTooLargeError as error:
        set_aside(services, table.id, job.id, FUNCTION)
        return [
            OutboundMessage(dead_letter_queue("compaction-jobs"), message, reason=error.explanation)
        ]


@dataclass(frozen=True, slots=True)
class _UnreadableSteps:
    """The merge of a job whose stored steps are damaged, for this `reason`."""

    reason: str

    def merge(self, _services: Services, _compaction: Compaction) -> Merged | Unfinished:
        """Make `compact` release the job and delete its outputs.

        Raises:
            AlreadyExistsError: always.
        """
        raise AlreadyExistsError(self.reason)


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
            raise AlreadyExistsError(
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
            raise JobTooLargeError(f"{CRASHED}, and all its rows have one key", hint=WHAT_TO_DO)
        return merge_in_process(services, compaction)


def load_steps(services: Services, table_id: str, job_id: str) -> Steps:
    """Return the stored outcomes of a job's steps.

    Raises:
        CorruptDataError: an outcome is damaged, or a foreign object lies beside them.
    """
    outcomes: dict[Step, StepOutcome] = {}
    digest = ""
    for stored in services.storage.list(steps_prefix(table_id, job_id)):
        with raise_corrupt(f"{stored.path} is not where a step is noted"):
            step = Step(*parse_step_path(stored.path))
        found = OUTCOME.get(services.storage, stored.path)
        if found is not None:  # else the job has ended, and an audit deletes the outcomes
            outcomes[step], digest = found.outcome, found.cells
    return Steps(outcomes, digest)


def _run_step(
    services: Services, compaction: Compaction, step: Step, cells: Sequence[KeyRange]
) -> StepOutcome:
    """Run a step, or split it if its runs crashed; save and return its outcome.

    Raises:
        JobTooLargeError: it must be split, and is a single cell.
    """
    table, job = compaction.table, compaction.job
    runs = step_attempts_prefix(table.id, job.id, step.first, step.end)
    if len(crashed_attempts(services, runs)) >= CRASH_LIMIT:
        if step.cells == 1:
            clear_crashes(services, runs)
            raise JobTooLargeError(f"{CRASHED}, in a step that cannot be split", hint=WHAT_TO_DO)
        outcome: StepOutcome = StepSplit(step.split(2))
        _save_outcome(services, compaction, step, outcome, cells)
        return outcome
    with record_attempt(services, runs):
        merged = _merge_step(services, compaction, step, step.range_in(cells))
        outcome = StepDone(merged.outputs, merged.rows_read, merged.rows_kept, merged.rows_removed)
        _save_outcome(services, compaction, step, outcome, cells)
    return outcome


def _merge_step(services: Services, compaction: Compaction, step: Step, span: KeyRange) -> Merged:
    """Merge the inputs' rows in the key range of a step.

    Raises:
        InvariantError: rows were lost or duplicated.
    """
    with tempfile.TemporaryDirectory(dir=services.scratch) as folder:
        merged = merge_inputs(
            services,
            compaction,
            scratch=Path(folder),
            memory_bytes=services.memory_bytes,
            span=span,
            part=step.part,
        )
    check_rows_conserved(compaction.job, merged, count_rows_taken(services, compaction, span))
    return merged


def _save_outcome(
    services: Services,
    compaction: Compaction,
    step: Step,
    outcome: StepOutcome,
    cells: Sequence[KeyRange],
) -> None:
    """Save the outcome of a step; an outcome that is already stored stays."""
    path = step_path(compaction.table.id, compaction.job.id, step.first, step.end)
    OUTCOME.put(services.storage, path, StoredOutcome(cells_digest(cells), outcome))


def _combine_steps(services: Services, compaction: Compaction, steps: Steps) -> Merged:
    """Return the result of all steps as that of one merge.

    Raises:
        AlreadyExistsError: the job has shards that are not of its steps, or lacks some.
    """
    outputs = tuple(new for done in steps.done for new in done.outputs)
    if set(_list_outputs(services, compaction)) != {new.shard.id for new in outputs}:
        raise AlreadyExistsError(
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
    stored = _list_outputs(services, compaction)
    superseded = [shard for shard in stored if run_of_shard(shard)[1] // PART_NUMBERS not in parts]
    if superseded:
        state = services.store(table).current()
        discard_shards(services.storage, table.id, superseded, state)


def _list_outputs(services: Services, compaction: Compaction) -> list[str]:
    """Return the stored shards that are named after a job."""
    listed = services.storage.list(shard_prefix(compaction.table.id, compaction.job.id))
    return [shard for found in listed if (shard := shard_id_of(found.path)) is not None]
