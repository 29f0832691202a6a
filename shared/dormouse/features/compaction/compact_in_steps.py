"""compact, as functions do it: a job that is too much for one of them is given to Spark, or cut.

A job is too much if it reads more than a function is to do, or if its runs ended without a word.
Where there is no Spark, its keys are cut into steps (`steps`). Each message of the job does
the next step: it merges what all inputs have of the step's keys, writes its shards, notes that, and
sends the job on; the last one commits all shards at once. A step whose own runs end without a word
is cut in half, as long as it has several cells of keys; then the job is set aside, with what to do.

Order of writes in a step: shards, note, message. A crash leaves shards that the next run adopts, or
a note that it finds. Shards of what was cut are never used, and are deleted before the commit:
beside those of its steps they would hold rows twice. If a note is damaged, nobody knows which
shards are the job's: it is taken back, and another is planned. What is noted is deleted by an audit
once the job is no more.
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
    check_conserved,
    compact,
    merge_here,
    rows_taken,
)
from dormouse.features.compaction.merge import Compaction, Merged, merge_inputs
from dormouse.features.compaction.slicing import even_ranges
from dormouse.features.compaction.steps import (
    MOST_CELLS,
    Cut,
    Done,
    Fate,
    Step,
    Steps,
    decode_fate,
    digest_of,
    encode_fate,
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
from dormouse.messages import CompactionJob, OutboundMessage
from dormouse.model.spark_threshold import is_heavy_compaction
from dormouse.ports import Services
from dormouse.shards.run_markers import discard_shards
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

TOO_LARGE = "it reads more than a function is to do"
WHAT_TO_DO = (
    "raise MemorySize of compact, or deploy with Spark=yes, and then: "
    "dormouse dlq redrive compaction-jobs"
)


def compact_or_cut(services: Services, message: CompactionJob) -> list[OutboundMessage]:
    """Run a job, or the next step of one; give it to Spark if it is too much for a function."""
    found = assigned_job(services, message)
    if found is None:
        return compact(services, message)
    table, state, job = found
    try:
        steps = kept_steps(services, table.id, job.id)
    except CorruptDataError as error:
        return compact(services, message, _Lost(error.explanation).merge)
    is_crashed = steps.whole is None and has_crashed(services, table.id, job.id)
    is_heavy = steps.whole is not None or is_heavy_compaction(state, job, table.properties)
    if not is_crashed and not is_heavy:
        return compact(services, message)
    if services.has_spark:
        return hand_to_spark(services, message, "compaction", CRASHED if is_crashed else TOO_LARGE)
    try:
        return compact(services, message, _Stepping(steps, is_crashed).merge)
    except JobTooLargeError as error:
        set_aside(services, table.id, job.id, FUNCTION)
        return [
            OutboundMessage(dead_letter_queue("compaction-jobs"), message, reason=error.explanation)
        ]


@dataclass(frozen=True, slots=True)
class _Lost:
    """A job whose steps cannot be known any more, for this `reason`."""

    reason: str

    def merge(self, _services: Services, _compaction: Compaction) -> Merged | Unfinished:
        """Have the job taken back, with all that it wrote.

        Raises:
            AlreadyExistsError: always.
        """
        raise AlreadyExistsError(self.reason)


@dataclass(frozen=True, slots=True)
class _Stepping:
    """Merges a job step by step; each run does one."""

    steps: Steps
    is_crashed: bool

    def merge(self, services: Services, compaction: Compaction) -> Merged | Unfinished:
        """Do what is next of the job.

        Raises:
            JobTooLargeError: a function cannot do it, and it cannot be cut.
            AlreadyExistsError: the job was cut in another way, by other code.
        """
        cells = even_ranges(compaction.partition.range, compaction.known, MOST_CELLS)
        if self.steps.whole is None:
            return self._begin(services, compaction, cells)
        if self.steps.digest != digest_of(cells) or self.steps.whole.end != len(cells):
            raise AlreadyExistsError(f"job {compaction.job.id} was cut by other code")
        _discard_superseded(services, compaction, self.steps)
        if not self.steps.left:
            return _assembled(services, compaction, self.steps)
        step = self.steps.left[0]
        fate = _go_on(services, compaction, step, cells)
        steps = Steps({**self.steps.fates, step: fate})
        return Unfinished(f"{len(steps.done)} of {len(steps.current)} steps are done")

    def _begin(
        self, services: Services, compaction: Compaction, cells: Sequence[KeyRange]
    ) -> Merged | Unfinished:
        whole = Step(0, len(cells))
        if whole.cells > 1:
            limit = compaction.table.properties.compaction_spark_bytes or compaction.size_bytes
            into = whole.cut(-(-compaction.size_bytes // limit))
            _decide(services, compaction, whole, Cut(into), cells)
            return Unfinished(f"it is done in {len(into)} steps")
        if self.is_crashed:
            raise JobTooLargeError(f"{CRASHED}, and its rows are of one key", hint=WHAT_TO_DO)
        return merge_here(services, compaction)


def kept_steps(services: Services, table_id: str, job_id: str) -> Steps:
    """Return what is decided of a job's steps.

    Raises:
        CorruptDataError: a note is damaged, or a foreign object lies there.
    """
    fates: dict[Step, Fate] = {}
    digest = ""
    for stored in services.storage.list(steps_prefix(table_id, job_id)):
        try:
            body = services.storage.get(stored.path)
        except NotFoundError:  # the job is over, and an audit deletes what was noted
            continue
        with raise_corrupt(f"{stored.path} is not where a step is noted"):
            step = Step(*parse_step_path(stored.path))
        fates[step], digest = decode_fate(body, stored.path)
    return Steps(fates, digest)


def _go_on(
    services: Services, compaction: Compaction, step: Step, cells: Sequence[KeyRange]
) -> Fate:
    """Do a step, or cut it if its runs ended without a word; return what became of it.

    Raises:
        JobTooLargeError: it cannot be cut.
    """
    table, job = compaction.table, compaction.job
    runs = step_attempts_prefix(table.id, job.id, step.first, step.end)
    if len(crashed_attempts(services, runs)) >= CRASH_LIMIT:
        if step.cells == 1:
            clear_crashes(services, runs)
            raise JobTooLargeError(f"{CRASHED}, in a step that cannot be smaller", hint=WHAT_TO_DO)
        fate: Fate = Cut(step.cut(2))
        _decide(services, compaction, step, fate, cells)
        return fate
    with record_attempt(services, runs):
        merged = _merged(services, compaction, step, step.range_in(cells))
        fate = Done(merged.outputs, merged.rows_read, merged.rows_kept, merged.rows_removed)
        _decide(services, compaction, step, fate, cells)
    return fate


def _merged(services: Services, compaction: Compaction, step: Step, span: KeyRange) -> Merged:
    """Merge what the inputs have of a step's keys.

    Raises:
        InvariantError: rows were lost, or came twice.
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
    check_conserved(compaction.job, merged, rows_taken(services, compaction, span))
    return merged


def _decide(
    services: Services, compaction: Compaction, step: Step, fate: Fate, cells: Sequence[KeyRange]
) -> None:
    """Note what became of a step, unless that is decided."""
    path = step_path(compaction.table.id, compaction.job.id, step.first, step.end)
    services.storage.put(path, encode_fate(fate, digest_of(cells), path))


def _assembled(services: Services, compaction: Compaction, steps: Steps) -> Merged:
    """Return all steps as one merge.

    Raises:
        AlreadyExistsError: under the job's name are other shards than those of its steps.
    """
    outputs = tuple(new for done in steps.done for new in done.outputs)
    if set(_stored(services, compaction)) != {new.shard.id for new in outputs}:
        raise AlreadyExistsError(
            f"the shards of job {compaction.job.id} are not those that its steps wrote"
        )
    return Merged(
        outputs,
        sum(done.rows_read for done in steps.done),
        sum(done.rows_kept for done in steps.done),
        sum(done.rows_removed for done in steps.done),
        ended=False,
    )


def _discard_superseded(services: Services, compaction: Compaction, steps: Steps) -> None:
    """Delete what runs of the whole job, or of steps that were cut, have written."""
    table, parts = compaction.table, {step.part for step in steps.current}
    stored = _stored(services, compaction)
    superseded = [shard for shard in stored if run_of_shard(shard)[1] // PART_NUMBERS not in parts]
    if superseded:
        state = services.store(table).current()
        discard_shards(services.storage, table.id, superseded, state)


def _stored(services: Services, compaction: Compaction) -> list[str]:
    """Return the shards that lie under a job's name."""
    listed = services.storage.list(shard_prefix(compaction.table.id, compaction.job.id))
    return [shard for found in listed if (shard := shard_id_of(found.path)) is not None]
