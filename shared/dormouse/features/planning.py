"""plan_table: plan the splits and compactions that are due after a table changed.

A split is only requested by a message, and `split_partition` checks again that it is due. A
compaction is assigned in the state first (`assign`). Messages are yielded between commits, so
a large planning that crashes has sent what it assigned, and the next planning continues from there.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Container, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate, chain, islice

from msgspec import UNSET

from dormouse.features import requests
from dormouse.features.reset import finish_reset
from dormouse.features.seal_sources import seal_sources
from dormouse.features.spark import save_spark_request
from dormouse.features.tables import publications
from dormouse.iceberg.liveness import live_shards, quick_shards
from dormouse.jobs import (
    FUNCTION,
    SPARK,
    SWEEP_SECONDS,
    JobNotes,
    SweepCheck,
    grouped,
    job_notes,
    new_run,
)
from dormouse.keys import Key, KeyHistogram, KeyRange, encode_key
from dormouse.messages.requests import CompactTable, Counts
from dormouse.messages.stages import CompactionJob, OutboundMessage, PartitionSplits, TableChanged
from dormouse.ports import Services
from dormouse.state.jobs import compaction_queue
from dormouse.state.partitions import Reference
from dormouse.state.rules import Committed
from dormouse.state.state import AssignJob, TableState
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
SMALL_BYTES = 1024 * 1024
"""Runs that are together this small are merged by one job, however many: a job of its own takes as
long as a hundred shards of a few rows."""


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
    job_counts = Counter(job.partition for job in state.jobs.values())
    size, ratio = properties.compaction_files, properties.compaction_size_ratio
    batched = properties.compaction_strategy == "batch"
    plans = []
    for partition in _leaves(state, size if batched else 2, among):
        runs = sorted_runs(state.references_in(partition), state.disputed)
        groups = iter(_batches(runs, size))
        if not batched:
            sizes = (sum(state.shards[each].size_bytes for each in run.shards) for run in runs)
            small = bisect_right(list(accumulate(sizes)), SMALL_BYTES)
            small = small if small > size else 0
            groups = chain(
                _size_ratio(runs[:small], small, ratio), _size_ratio(runs[small:], size, ratio)
            )
        room = max(0, properties.compaction_jobs_per_partition - job_counts[partition])
        plans += [CompactionPlan(partition, _shards(group)) for group in islice(groups, room)]
    return plans


def _leaves(state: TableState, fewest: int, among: Iterable[str] | None = None) -> Iterator[str]:
    """Yield the leaves, of some partitions or all, with at least so many free references, in order.
    Most partitions of a large table have too few: they are skipped without a look.
    """
    looked_at = state.references if among is None else among
    for partition in sorted(p for p in looked_at if state.free_in(p) >= fewest):
        if state.partitions.get(partition).is_leaf:
            yield partition


def plan_full_compactions(state: TableState) -> list[CompactionPlan]:
    """Propose to merge all free runs of each leaf that has several, in partition id order.

    A plan has at most `MAX_INPUTS` shards, so a leaf with more is not fully compacted by one.
    """
    return [
        CompactionPlan(partition, _shards(group))
        for partition in _leaves(state, 2)
        for group in _bounded(sorted_runs(state.references_in(partition), state.disputed))
    ]


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
            sum(r.rows for r in refs), tuple(sorted((r.shard for r in refs), key=run_of_shard))
        )
        for refs in by_run.values()
        if all(r.job is None and r.shard not in disputed for r in refs)
    ]
    return sorted(runs, key=lambda run: (run.rows, run.shards))


def _batches(runs: Sequence[SortedRun], size: int) -> Iterator[Sequence[SortedRun]]:
    """Yield groups of `size` runs, smallest first; fewer remaining runs wait for more."""
    for start in range(0, len(runs) - size + 1, size):
        yield from _bounded(runs[start : start + size])


def _size_ratio(runs: Sequence[SortedRun], size: int, ratio: int) -> Iterator[Sequence[SortedRun]]:
    """Yield groups in which `ratio` times the largest run is at most the sum of the others.

    So a large run is rewritten only together with enough rows. With a ratio of 3, of runs of
    1, 1, 1, 1 and 50 rows the 50 is dropped, and the others are a group, because 3 * 1 <= 3.

    The largest runs are dropped until the test holds. More than `size` runs are then grouped in
    windows of `size` from the smallest on; a window that fails the same test moves up by one run.
    """
    while len(runs) > 1 and not _balanced(runs, ratio):
        runs = runs[:-1]
    if len(runs) < 2:
        return
    if len(runs) <= size:
        yield from _bounded(runs)
        return
    start = 0
    while start < len(runs):
        window = runs[start : start + size]
        if _balanced(window, ratio):
            yield from _bounded(window)
            start += len(window)
        else:
            start += 1


def _balanced(runs: Sequence[SortedRun], ratio: int) -> bool:
    return len(runs) > 1 and ratio * runs[-1].rows <= sum(run.rows for run in runs[:-1])


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
        due = {
            shard
            for shard in _shards_in(state)
            if any(each.may_hide(state.shards[shard]) for each in state.deletions)
        }
        plans += plan_rewrites(state, properties, due, plans)
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
    among: Collection[str] | None = None,
) -> list[CompactionPlan]:
    """Propose to rewrite the shards that are at least an age old.

    With `among`, only these partitions are looked at.
    """
    newest = id_prefix(now_ms - max(age_ms, LEAST_INTERVAL_MS))
    due = {shard for shard in _shards_in(state, among) if shard[: len(newest)] <= newest}
    return plan_rewrites(state, properties, due, planned, among) if due else []


def plan_deletions(
    state: TableState,
    properties: Properties,
    now_ms: int,
    planned: Sequence[CompactionPlan],
    among: Collection[str] | None = None,
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
    shards = [state.shards[shard] for shard in _shards_in(state, among)]
    due = {
        shard.id
        for shard in shards
        if any(each.may_hide(shard) for each in old) or any(each.hides_all(shard) for each in whole)
    }
    return plan_rewrites(state, properties, due, planned, among)


def _shards_in(state: TableState, among: Collection[str] | None = None) -> set[str]:
    """Return the shards that some partitions, or all, refer to."""
    partitions = state.references if among is None else among
    return {r.shard for partition in partitions for r in state.references_in(partition)}


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
    pairs = {(plan.partition, shard) for plan in planned for shard in plan.inputs}
    jobs = Counter([job.partition for job in state.jobs.values()])
    jobs.update(plan.partition for plan in planned)
    plans = []
    for partition in _leaves(state, 1, among):
        inputs = [
            reference.shard
            for reference in state.references_in(partition)
            if reference.job is None
            and reference.shard in due
            and reference.shard not in state.disputed
            and (partition, reference.shard) not in pairs
        ]
        batches = [*grouped(inputs, properties.compaction_files)]
        room = max(0, properties.compaction_jobs_per_partition - jobs[partition])
        plans += [CompactionPlan(partition, batch) for batch in batches[:room]]
    return plans


# Choose which leaves to split, by the rows of their references, and where, by key samples.

FEWEST_ROWS = 2
"""The fewest rows of a leaf that can be split."""


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
    due = []
    for partition in sorted(state.references if among is None else among):
        is_full = state.rows_in(partition) >= threshold_rows
        if is_full and state.partitions.get(partition).is_leaf:
            shards = [state.shards[each.shard] for each in state.references_in(partition)]
            if len({key for shard in shards for key in (shard.low, shard.high)}) != 1:
                due.append(partition)
    return due


def plan_split(span: KeyRange, shards: dict[str, KeyHistogram]) -> SplitPlan | None:
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
    start = 0
    for number in range(1, partitions):
        middle = number * len(keys) // partitions
        if middle <= start:
            continue
        ends = bisect_left(keys, keys[middle]), bisect_right(keys, keys[middle])
        near = [end for end in ends if start < end < len(keys)]
        if near:
            start = min(near, key=lambda end: abs(end - middle))
            points.append(keys[start])
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
    options: SparkOptions | None = None,
) -> Iterator[OutboundMessage]:
    """Assign jobs, and yield the messages of those that were assigned, commit by commit.

    With `options`, Spark runs them; a sweep deletes the saved options of a job that was then not
    assigned. Jobs whose shards another planning has assigned meanwhile are left out before
    the commit, so the second of two concurrent plannings only reads the state for them.
    """
    store = services.store(table)
    chunks = grouped(jobs, JOBS_PER_COMMIT, (lambda job: len(job.inputs), INPUTS_PER_COMMIT))
    for chunk in chunks:
        state = store.current()
        free = [job for job in chunk if _is_free(state, job)]
        if options is not None:
            _keep_requests(services, table.id, generation, free, options)
        outcomes = store.commit(*free, generation=generation)
        for job, outcome in zip(free, outcomes, strict=True):
            if isinstance(outcome, Committed):
                queue = compaction_queue(state, job, table.properties, options)
                message = CompactionJob(table.id, generation, job.job, options or UNSET)
                yield OutboundMessage(queue, message)


def jobs_of(
    services: Services,
    table: Table,
    plans: Iterable[CompactionPlan],
    request_key: str | None = None,
) -> Iterator[AssignJob]:
    """Yield a new job for each plan."""
    for plan in plans:
        job_id = new_run(services, table)
        yield AssignJob(job_id, plan.partition, plan.inputs, request_key=request_key)


def _keep_requests(
    services: Services,
    table_id: str,
    generation: int,
    jobs: Iterable[AssignJob],
    options: SparkOptions,
) -> None:
    def keep(job: AssignJob) -> None:
        message = CompactionJob(table_id, generation, job.job, options)
        save_spark_request(services, message, job.inputs)

    with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
        list(threads.map(keep, jobs))


def _is_free(state: TableState, job: AssignJob) -> bool:
    references = (list(state.references_below(job.partition, shard)) for shard in job.inputs)
    return all(some and all(each.job is None for each in some) for some in references)


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
    for some in grouped(partitions, SPLITS_PER_MESSAGE):
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


class CompactionWork(requests.StoredWork, frozen=True, tag="compaction"):
    """The jobs that a request assigned in this generation of the table."""

    generation: int
    spark: SparkOptions | None = None

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the messages of the jobs that are still assigned."""
        state = services.store(table).current()
        jobs = state.jobs if state.generation == self.generation else {}
        return [
            OutboundMessage(
                compaction_queue(state, jobs[job_id], table.properties, self.spark),
                CompactionJob(table.id, self.generation, job_id, self.spark or UNSET),
            )
            for job_id in self.ids
            if job_id in jobs
        ]

    def outcomes(self, check: requests.JobCheck) -> Iterator[requests.JobOutcome]:
        """Yield the outcome or progress of each compaction."""
        jobs = check.state.jobs if check.state.generation == self.generation else {}
        for job_id in sorted(self.ids, key=lambda job: job not in jobs):
            if job_id in jobs:
                yield check.unfinished(self.kind, job_id, check.record(job_id))
            else:
                yield self._outcome(check, job_id)

    def _outcome(self, check: requests.JobCheck, job_id: str) -> requests.JobOutcome:
        """Return the outcome of a job that is no longer assigned."""
        record = check.record(job_id)
        if record is None or record.state != "finished":
            if check.state.generation != self.generation:
                return requests.JobOutcome(self.kind, job_id, "failed", requests.TABLE_RESET)
            shards = [s for s in check.state.shards.values() if run_of_shard(s.id)[0] == job_id]
            if shards and check.may_record(record):
                return check.unrecorded(self.kind, job_id, record)
            if shards:
                counts = Counts(finished=1, rows=sum(shard.rows for shard in shards))
                return requests.JobOutcome(self.kind, job_id, counts=counts)
        counts = Counts(finished=1, rows=record.rows, shards=record.files) if record else Counts()
        return check.ended(requests.JobOutcome(self.kind, job_id, counts=counts), record)


def compact_table(
    services: Services, table: Table, request: CompactTable
) -> requests.RequestResult:
    """Assign the compactions of a table, online or offline, and return their messages."""
    state = services.store(table).current()
    plans = (
        plan_everything(state, table.properties)
        if request.all
        else plan_compactions(state, table.properties)
    )
    plans = within_limit(plans, len(state.jobs), table.properties.compaction_jobs_limit)
    key = requests.request_key(request)
    jobs = jobs_of(services, table, plans, key)
    options = request.spark or None
    earlier = tuple(job.id for job in state.jobs.values() if job.request_key == key)
    messages = list(assign(services, table, state.generation, jobs, options))
    assigned = (m.message.job_id for m in messages if isinstance(m.message, CompactionJob))
    work = CompactionWork((*sorted(earlier), *assigned), state.generation, options)
    if not work.ids:
        return requests.RequestResult()
    return requests.RequestResult(
        work.unfinished_messages(services, table) if earlier else messages, work
    )


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
