"""Run compactions in functions; hand one that is too large to Spark, or run it in steps.

A job is too large if it reads more than a function should, or if its runs crashed. Without Spark,
its keys are divided into steps (`steps`). Each message of the job runs the next step: it merges the
inputs' rows in the step's key range, writes the shards and the step's outcome, and sends the job
again. The last message commits all shards at once. A step whose own runs crash is split in half
while it has several cells of keys; after that, the job is set aside with a hint.

Order of writes in a step: shards, outcome, message. A crash leaves shards that the next run adopts,
or an outcome that it reads. Shards of a step that was split are never used. They are deleted before
the commit, because the shards of the smaller steps hold the same rows. If a stored outcome is
damaged, nothing says which shards belong to the job: it is released, and another is planned. An
audit deletes the outcomes once the job is no longer assigned.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dormouse.errors import AlreadyExistsError, CorruptDataError, JobTooLargeError, NotFoundError
from dormouse.features.compaction.compact import (
    Unfinished,
    assigned_job,
    check_rows_conserved,
    compact,
    count_rows_taken,
    merge_in_process,
)
from dormouse.features.compaction.merge import Compaction, Merged, merge_inputs
from dormouse.features.compaction.slicing import equal_row_ranges
from dormouse.features.compaction.steps import (
    MAX_CELLS,
    Step,
    StepDone,
    StepOutcome,
    Steps,
    StepSplit,
    cells_digest,
    decode_step_outcome,
    encode_step_outcome,
)
from dormouse.jobs.attempts import clear_crashes, crashed_attempts, record_attempt
from dormouse.jobs.crashes import (
    CRASH_LIMIT,
    CRASHED,
    FUNCTION,
    hand_to_spark,
    has_crashed,
    set_aside,
)
from dormouse.keys.ranges import KeyRange
from dormouse.messages.stages import CompactionJob, OutboundMessage
from dormouse.model.jobs.spark_threshold import is_heavy_compaction
from dormouse.ports.services import Services
from dormouse.shards.writing.run_markers import discard_shards
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.names import dead_letter_queue
from dormouse.stored.paths import (
    PART_NUMBERS,
    parse_step_path,
    run_of_shard,
    shard_id_of,
    shard_prefix,
    step_attempts_prefix,
    step_path,
    steps_prefix,
)

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
        try:
            body = services.storage.get(stored.path)
        except NotFoundError:  # the job has ended, and an audit deletes the outcomes
            continue
        with raise_corrupt(f"{stored.path} is not where a step is noted"):
            step = Step(*parse_step_path(stored.path))
        outcomes[step], digest = decode_step_outcome(body, stored.path)
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
            services.storage,
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
    services.storage.put(path, encode_step_outcome(outcome, cells_digest(cells), path))


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
