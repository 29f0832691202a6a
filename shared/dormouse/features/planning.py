"""plan_table: plan the splits and compactions that are due after a table changed.

A split is only requested by a message, and `split_partition` checks again that it is due. A
compaction is assigned in the state first (`assign_jobs`). Messages are yielded between commits, so
a large planning that crashes has sent what it assigned, and the next planning continues from there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from msgspec import UNSET

from dormouse.features.requests import (
    TABLE_RESET,
    JobCheck,
    JobOutcome,
    RequestResult,
    StoredWork,
    request_key,
)
from dormouse.features.reset import finish_reset
from dormouse.features.seal_sources import seal_sources
from dormouse.features.spark import save_spark_request
from dormouse.features.tables import publications
from dormouse.iceberg.liveness import live_shards, quick_shards
from dormouse.jobs import FUNCTION, SPARK, SWEEP_SECONDS, JobNotes, SweepCheck, job_notes, new_run
from dormouse.keys import Key, KeyRange, encode_key
from dormouse.messages.requests import CompactTable, Counts
from dormouse.messages.stages import CompactionJob, OutboundMessage, PartitionSplits, TableChanged
from dormouse.ports import Services
from dormouse.state.jobs import compaction_queue
from dormouse.state.partitions import Reference
from dormouse.state.state import AssignJob, Deletion, TableState
from dormouse.state.store import Committed
from dormouse.stored.checksums import crc32
from dormouse.stored.paths import id_prefix, run_of_shard
from dormouse.tables.properties import Properties, SparkOptions
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table, is_published

# Choose which shards of a partition to merge, by the compaction strategies of GCHQ's Sleeper.
#
# Sizes are in rows. A compaction with a large output writes it as several shards, a sorted run.
# Their keys follow each other, so merging them gains nothing, and a plan has all shards of a run or
# none. Only free references on leaves are planned: a run is left out if a job holds one of its
# shards, or one is disputed.

MAX_INPUTS = 1000
"""The most shards of one job, which lists them all in the state and in its outputs."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """A compaction proposed: merge these shards' rows of the partition."""

    partition: str
    inputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SortedRun:
    """The shards that one run of a job wrote, and how many rows they have in a partition."""

    rows: int
    shards: tuple[str, ...]


def plan_compactions(
    state: TableState, properties: Properties, among: Iterable[str] | None = None
) -> list[CompactionPlan]:
    """Propose every compaction that is due, partition by partition, in partition id order.

    With `among`, only these partitions are looked at.
    """
    running = Counter(job.partition for job in state.jobs.values())
    batched = properties.compaction_strategy == "batch"
    fewest = properties.compaction_files if batched else 2
    # Most partitions of a large table have too few free references: skip them without a look.
    looked_at = state.references if among is None else among
    candidates = sorted(p for p in looked_at if state.free_in(p) >= fewest)
    plans = []
    for partition in candidates:
        if not state.partitions.get(partition).is_leaf:
            continue
        runs = sorted_runs(state.references_in(partition), state.disputed)
        if batched:
            groups = list(_batches(runs, properties.compaction_files))
        else:
            groups = list(
                _size_ratio(runs, properties.compaction_files, properties.compaction_size_ratio)
            )
        room = max(0, properties.compaction_jobs_per_partition - running[partition])
        plans += [CompactionPlan(partition, _shards(group)) for group in groups[:room]]
    return plans


def plan_full_compactions(state: TableState) -> list[CompactionPlan]:
    """Propose to merge all free runs of each leaf that has several, in partition id order.

    A plan has at most `MAX_INPUTS` shards, so a leaf with more is not fully compacted by one.
    """
    plans = []
    for partition in sorted(p for p, held in state.references.items() if held.free > 1):
        if state.partitions.get(partition).is_leaf:
            runs = sorted_runs(state.references_in(partition), state.disputed)
            groups = _bounded(runs)
            plans += [CompactionPlan(partition, _shards(group)) for group in groups]
    return plans


def within_limit(plans: Sequence[CompactionPlan], running: int, limit: int) -> list[CompactionPlan]:
    """Return the plans for which `running` jobs leave room; if not all fit, the largest first."""
    room = max(0, limit - running)
    if len(plans) <= room:
        return list(plans)
    return sorted(plans, key=lambda plan: -len(plan.inputs))[:room]


def sorted_runs(references: Iterable[Reference], disputed: Container[str] = ()) -> list[SortedRun]:
    """Return the runs of a partition whose shards are all free and undisputed, smallest first."""
    by_run: dict[str, list[Reference]] = {}
    for reference in references:
        by_run.setdefault(run_of_shard(reference.shard)[0], []).append(reference)
    runs = [
        SortedRun(
            sum(r.rows for r in found),
            tuple(sorted((r.shard for r in found), key=run_of_shard)),
        )
        for found in by_run.values()
        if all(r.job is None and r.shard not in disputed for r in found)
    ]
    return sorted(runs, key=lambda run: (run.rows, run.shards))


def _batches(ordered: Sequence[SortedRun], size: int) -> Iterator[Sequence[SortedRun]]:
    """Yield groups of `size` runs, smallest first; fewer remaining runs wait for more."""
    for start in range(0, len(ordered) - size + 1, size):
        yield from _bounded(ordered[start : start + size])


def _size_ratio(
    ordered: Sequence[SortedRun], size: int, ratio: int
) -> Iterator[Sequence[SortedRun]]:
    """Yield groups in which `ratio` times the largest run is at most the sum of the others.

    So a large run is rewritten only together with enough rows. With a ratio of 3, of runs of
    1, 1, 1, 1 and 50 rows the 50 is dropped, and the others are a group, because 3 * 1 <= 3.

    The largest runs are dropped until the test holds. More than `size` runs are then grouped in
    windows of `size` from the smallest on; a window that fails the same test moves up by one run.
    """
    while len(ordered) > 1 and not _balanced(ordered, ratio):
        ordered = ordered[:-1]
    if len(ordered) < 2:
        return
    if len(ordered) <= size:
        yield from _bounded(ordered)
        return
    start = 0
    while start < len(ordered):
        window = ordered[start : start + size]
        if _balanced(window, ratio):
            yield from _bounded(window)
            start += len(window)
        else:
            start += 1


def _balanced(ordered: Sequence[SortedRun], ratio: int) -> bool:
    return len(ordered) > 1 and ratio * ordered[-1].rows <= sum(run.rows for run in ordered[:-1])


def _bounded(group: Sequence[SortedRun]) -> Iterator[Sequence[SortedRun]]:
    """Yield a group without the largest runs that exceed `MAX_INPUTS`, if two runs are left."""
    while len(_shards(group)) > MAX_INPUTS:
        group = group[:-1]
    if len(group) > 1:
        yield group


def _shards(runs: Iterable[SortedRun]) -> tuple[str, ...]:
    return tuple(shard for run in runs for shard in run.shards)


# Choose which shards of a partition to rewrite, each by itself or with others.
#
# Age-off: compaction drops expired rows from what it merges, but a partition without new rows is
# not merged. A row that was fresh when its shard was written has expired one age later. A shard is
# therefore due one age after it was written, and the shard that replaces it one age after that.
#
# Published tables: a full compaction also rewrites what is alone in its leaf, if some readers of
# Iceberg read it slowly, or if some of its rows are dead, which all of them have to skip.

LEAST_INTERVAL_MS = 60 * 60 * 1000
"""The shortest interval between two rewrites of a row, however short the age is."""


def plan_everything(state: TableState, properties: Properties) -> list[CompactionPlan]:
    """Propose what a full compaction does: merge all runs of each leaf, and rewrite shards that
    should not stay as they are though nothing is to be merged with them.
    """
    plans = plan_full_compactions(state)
    if state.deletions:
        hidden = may_be_hidden(state, state.deletions, state.references)
        plans += plan_rewrites(state, properties, hidden, plans)
    groups = live_shards(state).values()
    if properties.encrypted_columns and properties.data_key > 1:  # others may be of an older one
        every = {live.shard.id for group in groups for live in group}
        plans += plan_rewrites(state, properties, every, plans)
    if not is_published(properties):
        return plans
    partly_live = {live.shard.id for group in groups for live in group if live.dead}
    return plans + plan_rewrites(state, properties, partly_live | {*quick_shards(state)}, plans)


def plan_age_off(
    state: TableState,
    properties: Properties,
    age_ms: int,
    now_ms: int,
    planned: Sequence[CompactionPlan],
    among: Iterable[str] | None = None,
) -> list[CompactionPlan]:
    """Propose to rewrite the shards that are at least an age old.

    With `among`, only these partitions are looked at.
    """
    newest = id_prefix(now_ms - max(age_ms, LEAST_INTERVAL_MS))
    looked_at = [*(state.references if among is None else among)]
    shards = (r.shard for partition in looked_at for r in state.references_in(partition))
    due = {shard for shard in shards if shard[: len(newest)] <= newest}
    return plan_rewrites(state, properties, due, planned, looked_at) if due else []


def plan_deletions(
    state: TableState,
    properties: Properties,
    now_ms: int,
    planned: Sequence[CompactionPlan],
    among: Iterable[str] | None = None,
) -> list[CompactionPlan]:
    """Propose to rewrite the shards of which deletions hide rows that are as old as the table's
    properties allow, and to drop those that are hidden as a whole, for which no row is read.

    With `among`, only these partitions are looked at.
    """
    age_ms = properties.deletion_age_seconds * 1000
    old = [each for each in state.deletions if age_ms and each.time_ms <= now_ms - age_ms]
    leaves_no_row = properties.keep == "all" and not properties.aggregations
    whole = [each for each in state.deletions if age_ms and leaves_no_row and each.takes_tagged]
    if not old and not whole:
        return []
    looked_at = [*(state.references if among is None else among)]
    due = may_be_hidden(state, old, looked_at)
    shards = {r.shard for p in looked_at if whole for r in state.references_in(p)}
    due |= {s for s in shards if any(each.hides_all(state.shards[s]) for each in whole)}
    return plan_rewrites(state, properties, due, planned, looked_at)


def may_be_hidden(
    state: TableState, deletions: Sequence[Deletion], among: Iterable[str]
) -> set[str]:
    """Return the shards in some partitions of which deletions may hide rows."""
    shards = {r.shard for partition in among for r in state.references_in(partition)}
    return {s for s in shards if any(each.may_hide(state.shards[s]) for each in deletions)}


def plan_rewrites(
    state: TableState,
    properties: Properties,
    due: Container[str],
    planned: Sequence[CompactionPlan],
    among: Iterable[str] | None = None,
) -> list[CompactionPlan]:
    """Propose to rewrite free references of leaves, `among` these partitions, to shards that are
    due.

    A plan has at most `compaction_files` shards of a partition, oldest first. Disputed shards, and
    those of `planned` compactions, are left out.
    """
    taken = {(plan.partition, shard) for plan in planned for shard in plan.inputs}
    jobs = Counter([job.partition for job in state.jobs.values()])
    jobs.update(plan.partition for plan in planned)
    plans = []
    looked_at = state.references if among is None else among
    for partition in sorted(p for p in looked_at if state.free_in(p)):
        if not state.partitions.get(partition).is_leaf:
            continue
        inputs = [
            reference.shard
            for reference in state.references_in(partition)
            if reference.job is None
            and reference.shard in due
            and reference.shard not in state.disputed
            and (partition, reference.shard) not in taken
        ]
        size = properties.compaction_files
        batches = [tuple(inputs[i : i + size]) for i in range(0, len(inputs), size)]
        room = max(0, properties.compaction_jobs_per_partition - jobs[partition])
        plans += [CompactionPlan(partition, batch) for batch in batches[:room]]
    return plans


# Choose which leaves to split, by the rows of their references, and where, by key samples.

FEWEST_ROWS = 2
"""The fewest rows of a leaf that can be split."""


class KeyRanks(Protocol):
    """The key histogram of a shard: sampled keys at exact ranks, and its number of rows."""

    @property
    def rows(self) -> int:
        """The rows of the shard."""

    @property
    def max_key(self) -> Key:
        """The greatest row key of the shard."""

    @property
    def samples(self) -> Sequence[tuple[Key, int]]:
        """Keys in order, each with the number of the row it was taken from."""

    def rows_below(self, key: Key) -> int:
        """Return the rows whose key is less; exact at samples, interpolated between."""


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """A proposed split: its key, how many rows of each shard go left, and all rows."""

    at: Key
    rows_left: tuple[tuple[str, int], ...]
    total_rows: int


def fewest_rows(properties: Properties, *, forced: bool) -> int:
    """Return how many rows a leaf must have to be split."""
    return FEWEST_ROWS if forced else properties.split_threshold_rows


def splits_due(
    state: TableState, threshold_rows: int, among: Iterable[str] | None = None
) -> list[str]:
    """Return the leaves that hold at least `threshold_rows` by their references, in id order.

    With `among`, only these partitions are looked at.

    References may estimate rows: `split_partition` reads the footers before it splits. A leaf
    whose shards have a single key is left out, because no split could divide its rows.
    """
    return sorted(
        partition
        for partition in (state.references if among is None else among)
        if state.rows_in(partition) >= threshold_rows
        and state.partitions.get(partition).is_leaf
        and not _has_one_key(state, partition)
    )


def _has_one_key(state: TableState, partition: str) -> bool:
    shards = [state.shards[reference.shard] for reference in state.references_in(partition)]
    return len({key for shard in shards for key in (shard.low, shard.high)}) == 1


def plan_split(span: KeyRange, shards: dict[str, KeyRanks]) -> SplitPlan | None:
    """Return the split that divides the rows in `span` most evenly; None if all share one key.

    Candidates are all sampled keys and the greatest key of each shard, so that a key that most
    rows share does not hide the others. If 90 of 100 rows have key b, 5 have a and 5 have c, a
    split at b leaves 5 rows on the left and one at c 95; both are as uneven, and b is chosen.
    """
    candidates = sorted(
        {key for ranks in shards.values() for key, _ in ranks.samples}
        | {ranks.max_key for ranks in shards.values()}
    )
    candidates = [key for key in candidates if span.min < key and span.contains(encode_key(key))]
    first = {name: ranks.rows_below(span.min) for name, ranks in shards.items()}
    total = sum(
        (ranks.rows if span.max is None else ranks.rows_below(span.max)) - first[name]
        for name, ranks in shards.items()
    )

    def rows_left(at: Key) -> dict[str, int]:
        return {name: max(0, r.rows_below(at) - first[name]) for name, r in shards.items()}

    def left(at: Key) -> int:
        return sum(rows_left(at).values())

    middle = bisect_left(candidates, total / 2, key=left)  # rows to the left grow with the key
    near = [key for key in candidates[max(0, middle - 1) : middle + 1] if 0 < left(key) < total]
    if not near:
        return None
    at = min(near, key=lambda key: abs(2 * left(key) - total))
    return SplitPlan(at, tuple(sorted(rows_left(at).items())), total)


def even_split_points(keys: Sequence[Key], partitions: int) -> list[Key]:
    """Return the points that divide sorted keys into up to `partitions` about equal parts.

    Equal keys stay together. Of a, b, b, b, b, c in three parts, the points are b and c: the four
    b's are more than a part. There are fewer parts if there are too few distinct keys.
    """
    points: list[Key] = []
    taken = 0
    for number in range(1, partitions):
        middle = number * len(keys) // partitions
        if middle <= taken:
            continue
        ends = bisect_left(keys, keys[middle]), bisect_right(keys, keys[middle])
        near = [end for end in ends if taken < end < len(keys)]
        if near:
            taken = min(near, key=lambda end: abs(end - middle))
            points.append(keys[taken])
    return points


# Choose the partitions that a planning looks at: a commit changes few, so most need no look.
#
# The planning of a change looks at the partitions that changed. The planning of a sweep also looks
# at a part of all others, in turn, so it finds what a crash, a limit of jobs or a changed property
# has left. A table with few partitions is always planned whole.

LOOKED_AT_ONCE = 4096
"""About how many partitions a planning looks at besides those that changed: a CPU second."""
_TURN_MS = SWEEP_SECONDS * 1000


def partitions_to_plan(
    state: TableState, swept_ms: int | None = None, at_once: int = LOOKED_AT_ONCE
) -> Iterable[str]:
    """Return the partitions to look at; with `swept_ms`, the time of a sweep, also its part.

    Those that changed are those that differ from the base of the state, which is its newest
    snapshot or increment. Only a planning writes one, before it plans what changed since the last.

    Example: of 10,000 partitions a sweep looks at some third. Three sweeps, one after the other,
    look at all.
    """
    references = state.references
    if len(references) <= at_once:
        return references
    changed = {partition for partition in references.changes if partition in references}
    if swept_ms is not None:
        parts = -(-len(references) // at_once)
        part = swept_ms // _TURN_MS % parts
        changed.update(p for p in references if crc32(p.encode()) % parts == part)
    return changed


# Assign compaction jobs in the state, then send their messages, one bounded commit at a time.
#
# A crash between the two leaves assigned jobs without a message, those of one commit at most;
# ``sweep`` sends them again. Their Spark options are saved before they are assigned, so that a
# message sent again has them, too. Concurrent assignments cannot give a shard to two jobs.

REQUESTS_AT_ONCE = 8
JOBS_PER_COMMIT = 500
INPUTS_PER_COMMIT = 5000
"""The limits of one commit, which is then about 30 KB, or 200 KB with the most inputs. A crash
leaves no more jobs without a message."""


def assign(
    services: Services,
    table: Table,
    generation: int,
    jobs: Iterable[AssignJob],
    asked: SparkOptions | None = None,
) -> Iterator[OutboundMessage]:
    """Assign jobs, and yield the messages of those that were assigned, commit by commit.

    With Spark options `asked`, Spark runs them; a sweep deletes the saved options of a job that was
    then not assigned. Jobs whose shards another planning has assigned meanwhile are left out before
    the commit, so the second of two concurrent plannings only reads the state for them.
    """
    store = services.store(table)
    for chunk in _chunks(jobs):
        state = store.current()
        free = [job for job in chunk if _is_free(state, job)]
        if asked is not None:
            _keep_requests(services, table.id, generation, free, asked)
        outcomes = store.commit(*free, generation=generation)
        for job, outcome in zip(free, outcomes, strict=True):
            if isinstance(outcome, Committed):
                queue = compaction_queue(state, job, table.properties, asked)
                message = CompactionJob(table.id, generation, job.job, asked or UNSET)
                yield OutboundMessage(queue, message)


def jobs_of(
    services: Services, table: Table, plans: Iterable[CompactionPlan]
) -> Iterator[AssignJob]:
    """Return a new job for each plan."""
    return (AssignJob(new_run(services, table), plan.partition, plan.inputs) for plan in plans)


def _keep_requests(
    services: Services,
    table_id: str,
    generation: int,
    jobs: Iterable[AssignJob],
    asked: SparkOptions,
) -> None:
    def keep(job: AssignJob) -> None:
        message = CompactionJob(table_id, generation, job.job, asked)
        save_spark_request(services, message, job.inputs)

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
        list(threads.map(keep, jobs))


def _is_free(state: TableState, job: AssignJob) -> bool:
    held = (list(state.references_below(job.partition, shard)) for shard in job.inputs)
    return all(found and all(each.job is None for each in found) for found in held)


def _chunks(jobs: Iterable[AssignJob]) -> Iterator[Sequence[AssignJob]]:
    chunk: list[AssignJob] = []
    inputs = 0
    for job in jobs:
        inputs += len(job.inputs)
        if chunk and (len(chunk) == JOBS_PER_COMMIT or inputs > INPUTS_PER_COMMIT):
            yield chunk
            chunk, inputs = [], len(job.inputs)
        chunk.append(job)
    if chunk:
        yield chunk


SPLITS_PER_MESSAGE = 50
"""The most leaves of one message, whose footers are read in a minute or two. Each planning requests
all splits that are due again."""


def plan_table(services: Services, message: TableChanged) -> Iterator[OutboundMessage]:
    """Yield the messages of splits and compactions that are due, none for an offline table."""
    table = services.table(message.table_id)
    if table is None:
        return
    store = services.store(table)
    store.maintain()  # first: were it to fail after jobs were assigned, they would go unsent
    seal_sources(services, table)
    state = finish_reset(services, table)  # a crash may have left a reset unfinished
    if state.deletions:
        from dormouse.features.delete_rows import forget_deletions  # most tables have none

        forget_deletions(services, table, state)
    yield from publications(table)
    if not table.online:
        return
    now_ms = services.clock.now_ms() if message.swept else None
    among = frozenset(partitions_to_plan(state, now_ms))
    due = splits_due(state, table.properties.split_threshold_rows, among)
    yield from splits(table, state, due)
    plans = _compactions(table, state, among, now_ms)
    yield from assign(services, table, state.generation, jobs_of(services, table, plans))


def splits(
    table: Table, state: TableState, partitions: Sequence[str], *, forced: bool = False
) -> Iterator[OutboundMessage]:
    """Yield the messages that request splits of these leaves."""
    for start in range(0, len(partitions), SPLITS_PER_MESSAGE):
        some = tuple(partitions[start : start + SPLITS_PER_MESSAGE])
        message = PartitionSplits(table.id, state.generation, some, forced)
        yield OutboundMessage("partition-splits", message)


def _compactions(
    table: Table, state: TableState, among: Set[str], swept_ms: int | None
) -> list[CompactionPlan]:
    plans = plan_compactions(state, table.properties, among)
    if swept_ms is not None:  # age comes with time, not with a change
        age_off = row_rules(table.schema, table.properties).age_off
        if age_off is not None:
            age_ms = age_off.age_ms
            plans += plan_age_off(state, table.properties, age_ms, swept_ms, plans, among)
        plans += plan_deletions(state, table.properties, swept_ms, plans, among)
    return within_limit(plans, len(state.jobs), table.properties.compaction_jobs_limit)


# compact_table: compact a table on request, not because it changed.
#
# Jobs are assigned before the request's work is saved; `sweep` sends a lost message of one again.
# They are named after the request, so a redelivery finds those that a crashed delivery assigned.


class CompactionWork(StoredWork, frozen=True, tag="compaction"):
    """The jobs that a request assigned in this generation of the table."""

    generation: int
    jobs_assigned: tuple[str, ...]
    spark: SparkOptions | None = None

    @property
    def job_ids(self) -> list[str]:
        """Return the ids of the jobs."""
        return list(self.jobs_assigned)

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the messages of the jobs that are still assigned."""
        state = services.store(table).current()
        return list(self._messages(table, state))

    def _messages(self, table: Table, state: TableState) -> Iterator[OutboundMessage]:
        for job_id in self.jobs_assigned:
            job = state.jobs.get(job_id)
            if job is not None and state.generation == self.generation:
                queue = compaction_queue(state, job, table.properties, self.spark)
                message = CompactionJob(table.id, self.generation, job_id, self.spark or UNSET)
                yield OutboundMessage(queue, message)

    def outcomes(self, check: JobCheck) -> Iterator[JobOutcome]:
        """Yield the outcome or progress of each compaction."""
        held = check.state.jobs if check.state.generation == self.generation else {}
        for job_id in sorted(self.jobs_assigned, key=lambda job: job not in held):
            if job_id in held:
                yield check.unfinished(self.kind, job_id, check.record(job_id))
            else:
                yield self._outcome(check, job_id)

    def _outcome(self, check: JobCheck, job_id: str) -> JobOutcome:
        """Return the outcome of a job that is no longer assigned."""
        known = check.record(job_id)

        def done() -> JobOutcome:
            counts = Counts(finished=1, rows=known.rows, shards=known.files) if known else Counts()
            return JobOutcome(self.kind, job_id, counts=counts)

        if check.state.generation != self.generation and (
            known is None or known.state != "finished"
        ):
            return JobOutcome(self.kind, job_id, "failed", TABLE_RESET)
        written = [s for s in check.state.shards.values() if run_of_shard(s.id)[0] == job_id]
        if (known is None or known.state != "finished") and written:
            if check.may_record(known):
                return check.unrecorded(self.kind, job_id, known)
            rows = sum(shard.rows for shard in written)
            return JobOutcome(self.kind, job_id, counts=Counts(finished=1, rows=rows))
        return check.ended(self.kind, job_id, known, done)


def compact_table(services: Services, table: Table, request: CompactTable) -> RequestResult:
    """Assign the compactions of a table, online or offline, and return their messages.

    Raises:
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    state = services.store(table).current()
    plans = (
        plan_everything(state, table.properties)
        if request.all
        else plan_compactions(state, table.properties)
    )
    plans = within_limit(plans, len(state.jobs), table.properties.compaction_jobs_limit)
    key = request_key(request)
    jobs = (
        AssignJob(new_run(services, table), plan.partition, plan.inputs, request_key=key)
        for plan in plans
    )
    asked = request.spark or None
    earlier = tuple(job.id for job in state.jobs.values() if job.request_key == key)
    messages = list(assign(services, table, state.generation, jobs, asked))
    assigned = (m.message.job_id for m in messages if isinstance(m.message, CompactionJob))
    work = CompactionWork(state.generation, (*sorted(earlier), *assigned), asked)
    if not work.jobs_assigned:
        return RequestResult()
    return RequestResult(work.unfinished_messages(services, table) if earlier else messages, work)


# Assigned compactions that make no progress, which a sweep sends again.


def overdue_compactions(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield messages of assigned jobs that make no progress.

    Jobs that Spark runs are left out, and jobs that are set aside where they would run.
    """
    services, table, state = check.services, check.table, check.state
    notes = job_notes(services, table.id) if len(state.jobs) else {}
    here = SPARK if services.has_spark else FUNCTION
    for job in sorted(state.jobs.values(), key=lambda job: job.id):
        note = notes.get(job.id, JobNotes())
        if job.id in check.with_spark or here in note.set_aside:
            continue
        is_due = check.is_due(max(job.assigned_ms, note.newest_ms))
        if not is_due and not check.is_lost(job.id):
            continue
        message = CompactionJob(table.id, state.generation, job.id)
        if note.set_aside and services.has_spark:  # it was too large for functions
            yield OutboundMessage("spark-jobs", message)
        else:
            yield OutboundMessage(compaction_queue(state, job, table.properties), message)
