"""split_partition: split leaves that have too many rows in two, at their median key.

The key is chosen from footers alone; no row is read. The ids of the halves are derived from the
partition's, so splitting a leaf twice is idempotent. The splits of one message are committed
together. Every planning requests a leaf that cannot be split again, so it is retried with backoff.
"""

from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

from dormouse.errors import DormouseError, InvalidRequestError, NotFoundError
from dormouse.features import planning
from dormouse.features.requests import TABLE_RESET, JobCheck, JobOutcome, RequestResult, StoredWork
from dormouse.features.reset import is_for
from dormouse.jobs import OUTCOME_UNKNOWN, backoff_ms, finalise, record, tracked
from dormouse.keys import KeyHistogram, KeyRange, encode_key
from dormouse.messages.requests import Counts, SplitPartitions
from dormouse.messages.stages import OutboundMessage, PartitionSplits, TableChanged
from dormouse.ports import Services
from dormouse.shards.reading import read_own_footers
from dormouse.state.jobs import Finished, Started, TrackedJob
from dormouse.state.partitions import Partition, PartitionTree, partition_id_of
from dormouse.state.rules import Rejected
from dormouse.state.state import SplitPartition, TableState
from dormouse.stored.paths import split_job_id
from dormouse.tables.table import Table

MAX_FOOTERS = 50
"""The footers of so many shards, those with the most rows, are read; more would hardly change the
key."""


def split_partition(services: Services, message: PartitionSplits) -> Iterator[OutboundMessage]:
    """Split the leaves of a message that have too many rows and were not split before.

    A forced split divides any leaf that has two distinct keys.
    Raises ExceptionGroup: some could not be split; all others were, and that was announced.
    """
    table = services.table(message.table_id)
    if table is None:
        return
    state = services.store(table).current()
    if not is_for(message.generation, table, state):
        for partition in message.partitions:
            finalise(services, table.id, split_job_id(partition))
        return
    plans: dict[str, planning.SplitPlan] = {}
    failures: list[DormouseError] = []
    fewest = planning.fewest_rows(table.properties, forced=message.forced)
    for partition in message.partitions:
        if not _is_due(state, partition, fewest):
            # A run that split it may have died before it recorded that.
            finalise(services, table.id, split_job_id(partition))
            continue
        if not message.forced and _rests(services, table, partition):
            continue
        try:
            plan = _plan(services, table, state, partition, fewest)
        except DormouseError as error:  # one leaf must not keep the others from it
            failures.append(error)
            continue
        if isinstance(plan, str):
            _finished(services, table, partition, plan)
        else:
            plans[partition] = plan
    if plans:
        _commit(services, table, state.generation, plans)
        # Nothing is announced for leaves split already: every planning before that split may have
        # sent its own message, and each announcement would cause another planning.
        yield OutboundMessage("table-changes", TableChanged(table.id))
    if failures:
        raise ExceptionGroup("some partitions could not be split", failures)


def _is_due(state: TableState, partition: str, fewest: int) -> bool:
    return (
        partition in state.partitions
        and state.partitions.get(partition).is_leaf
        and state.rows_in(partition) >= fewest
    )


def _rests(services: Services, table: Table, partition: str) -> bool:
    """Return whether a leaf could not be split so recently that it is not tried again yet."""
    last = services.tracker.get(table.id, split_job_id(partition))
    if last is None or not last.is_finished or not last.reason:
        return False  # it was split, so this is another leaf of the same id
    if last.updated_ms < table.reset_ms:
        return False
    return services.clock.now_ms() - last.updated_ms < backoff_ms(last.attempts)


def _plan(
    services: Services, table: Table, state: TableState, partition: str, fewest: int
) -> planning.SplitPlan | str:
    """Return the plan, or the reason why there is none."""
    references = sorted(state.references_in(partition), key=lambda r: (-r.rows, r.shard))
    largest = [state.shards[reference.shard] for reference in references[:MAX_FOOTERS]]
    with tracked(services, _tracked_job(table, partition), Started(subject=partition)):
        storage, cache = services.storage, services.cache
        footers = read_own_footers(storage, table.id, largest, table.schema, cache)
        histograms = {footer.shard_id: footer.keys for footer in footers}
    plan = planning.plan_split(state.partitions.get(partition).range, histograms)
    if plan is None:
        return "not split: all its rows share one key"
    if len(histograms) == len(references) and plan.total_rows < fewest:
        return f"not split: it holds about {plan.total_rows} rows after all"
    return plan


def _commit(
    services: Services, table: Table, generation: int, plans: Mapping[str, planning.SplitPlan]
) -> None:
    splits = (SplitPartition(p, encode_key(plan.at), plan.rows_left) for p, plan in plans.items())
    outcomes = services.store(table).commit(*splits, generation=generation)
    for partition, outcome in zip(plans, outcomes, strict=True):
        late = f"not split: {outcome}" if isinstance(outcome, Rejected) else ""
        _finished(services, table, partition, late)


def _tracked_job(table: Table, partition: str) -> TrackedJob:
    return TrackedJob(table.id, split_job_id(partition), "split")


def _finished(services: Services, table: Table, partition: str, reason: str) -> None:
    record(services, _tracked_job(table, partition), Finished(reason=reason))


# Choose leaves to split before a large import, so that many tasks can write it at once.
#
# The rule is that of GCHQ's Sleeper: the leaf that will get the most rows is split at their median,
# repeatedly, until there are enough leaves.

MIN_ROWS_TO_SPLIT = 1000
"""A leaf that will get fewer rows is not split."""
MIN_SHARE = 10
"""A leaf that will get less than the average of the leaves divided by this is not split."""

_Leaf = tuple[int, bytes, str, KeyHistogram]
"""An entry of the heap: the negated rows to come (largest first), the least key, and the id."""


def plan_extension(
    tree: PartitionTree, histogram: KeyHistogram, min_leaves: int
) -> tuple[tuple[str, bytes], ...]:
    """Return the splits, in order, which make at least `min_leaves` leaves of those there are.

    `histogram` is that of the rows to come. Fewer splits are given if those are too few, or their
    keys too much alike.
    """
    leaves = list(tree.leaves())
    if len(leaves) >= min_leaves:
        return ()
    least = max(MIN_ROWS_TO_SPLIT, -(-histogram.rows // (len(leaves) * MIN_SHARE)))
    fullest: list[_Leaf] = []
    for leaf in leaves:
        _put(fullest, leaf, histogram, least)
    cuts: list[tuple[str, bytes]] = []
    while fullest and len(leaves) + len(cuts) < min_leaves:
        _, _, leaf_id, inside = heappop(fullest)
        plan = planning.plan_split(tree.get(leaf_id).range, {"": inside})
        if plan is not None:  # else all its rows share one key
            span, at = tree.get(leaf_id).range, encode_key(plan.at)
            cuts.append((leaf_id, at))
            tree = tree.split(leaf_id, at)
            for half in (KeyRange.between(span.low, at), KeyRange.between(at, span.high)):
                _put(fullest, tree.get(partition_id_of(half)), inside, MIN_ROWS_TO_SPLIT)
    return tuple(cuts)


def _put(fullest: list[_Leaf], leaf: Partition, histogram: KeyHistogram, least: int) -> None:
    inside = histogram.within(leaf.range)
    if inside.rows >= least:
        heappush(fullest, (-inside.rows, leaf.range.low, leaf.id, inside))


# split_partitions: split leaves on request, not because the table changed.
#
# If a message is lost, the next planning requests the split of a leaf with too many rows again. The
# message of a forced split is sent again when the request is redelivered.


class SplitWork(StoredWork, frozen=True, tag="split"):
    """Leaf partitions that are to be split, in this generation of the table."""

    generation: int
    partitions: tuple[str, ...]
    forced: bool = False

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the splits of those that are still leaves."""
        state = services.store(table).current()
        if state.generation != self.generation:
            return []
        tree = state.partitions
        leaves = [p for p in self.partitions if p in tree and tree.get(p).is_leaf]
        return list(planning.splits(table, state, leaves, forced=self.forced))

    def outcomes(self, check: JobCheck) -> Iterator[JobOutcome]:
        """Yield the outcome or progress of each split."""
        for partition in self.partitions:
            yield self._outcome(check, partition)

    def _outcome(self, check: JobCheck, partition: str) -> JobOutcome:
        job_id, tree = split_job_id(partition), check.state.partitions
        was_split = check.is_done(job_id)
        if not was_split and check.state.generation != self.generation:
            return JobOutcome(self.kind, job_id, "failed", TABLE_RESET)
        if was_split or partition not in tree or not tree.get(partition).is_leaf:
            return JobOutcome(self.kind, job_id, counts=Counts(finished=1, partitions=1))
        if check.state.rows_in(partition) < planning.fewest_rows(
            check.table.properties, forced=self.forced
        ):
            return JobOutcome(self.kind, job_id, "failed", "not split: it has too few rows by now")
        last = check.record(job_id)
        is_new = last is not None and last.updated_ms >= check.requested_ms
        if last and last.state == "finished" and last.reason not in ("", OUTCOME_UNKNOWN):
            rests = not self.forced and check.now_ms - last.updated_ms < backoff_ms(last.attempts)
            if rests or is_new:
                return JobOutcome(self.kind, job_id, "failed", last.reason)
        return check.unfinished(self.kind, job_id, last if is_new else None)


def split_partitions(services: Services, table: Table, request: SplitPartitions) -> RequestResult:
    """Request the splits of a partition, or of all that are due, of a table online or offline.

    Raises:
        NotFoundError: no such table or partition exists, or the table is being deleted.
        InvalidRequestError: the partition is split already, or has too few rows.
    """
    state = services.store(table).current()
    fewest = planning.fewest_rows(table.properties, forced=request.forced)
    if request.partition:
        _check_leaf(state, request.partition, fewest)
        partitions = [request.partition]
    else:
        partitions = planning.splits_due(state, fewest)
    messages = list(planning.splits(table, state, partitions, forced=request.forced))
    if not messages:
        return RequestResult()
    ids = tuple(map(split_job_id, partitions))
    work = SplitWork(ids, state.generation, tuple(partitions), request.forced)
    return RequestResult(messages, work)


def _check_leaf(state: TableState, partition: str, fewest: int) -> None:
    if partition not in state.partitions:
        raise NotFoundError(
            f"there is no partition {partition!r}", hint="a report of the table shows its leaves"
        )
    if not state.partitions.get(partition).is_leaf:
        raise InvalidRequestError(f"partition {partition!r} is split already")
    rows = state.rows_in(partition)
    if rows < fewest:
        enough = fewest == planning.FEWEST_ROWS
        raise InvalidRequestError(
            f"partition {partition!r} has {rows:,} rows, and is split from {fewest:,} on",
            hint="" if enough else "a forced split ignores the number of rows",
        )
