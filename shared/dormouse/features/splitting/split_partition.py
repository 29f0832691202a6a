"""split_partition: split leaves that have too many rows in two, at their median key.

The key is chosen from footers alone; no row is read. The ids of the halves are derived from the
partition's, so splitting a leaf twice is idempotent. The splits of one message are committed
together. Every planning requests a leaf that cannot be split again, so it is retried with backoff.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dormouse.errors import DormouseError
from dormouse.features.planning.splitting import KeyRanks, SplitPlan, fewest_rows, plan_split
from dormouse.features.tables.reset import is_for
from dormouse.jobs.retry_policy import backoff_ms
from dormouse.jobs.tracking import finalise, record, tracked
from dormouse.keys.ranges import encode_key
from dormouse.messages.stages import OutboundMessage, PartitionSplits, TableChanged
from dormouse.model.jobs.job_events import Finished, Started, TrackedJob
from dormouse.model.state import TableState
from dormouse.model.transactions import SplitPartition
from dormouse.ports.services import Services
from dormouse.shards.format.footer import read_footers
from dormouse.state_store import Rejected
from dormouse.stored.paths import split_job_id
from dormouse.tables.table import Table

MAX_FOOTERS = 50
"""The footers of so many shards, those with the most rows, are read; more would hardly change the
key."""


def split_partition(services: Services, message: PartitionSplits) -> Iterator[OutboundMessage]:
    """Split the leaves of a message that have too many rows and were not split before.

    A forced split divides any leaf that has two distinct keys.

    Raises:
        ExceptionGroup: some could not be split; all others were, and that was announced.
    """
    table = services.table(message.table_id)
    if table is None:
        return
    state = services.store(table).current()
    if not is_for(message.generation, table, state):
        for partition in message.partitions:
            finalise(services, table.id, split_job_id(partition))
        return
    plans: dict[str, SplitPlan] = {}
    failures: list[DormouseError] = []
    fewest = fewest_rows(table.properties, forced=message.forced)
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
) -> SplitPlan | str:
    """Return the plan, or the reason why there is none."""
    references = sorted(state.references_in(partition), key=lambda r: (-r.rows, r.shard))
    largest = [state.shards[reference.shard] for reference in references[:MAX_FOOTERS]]
    with tracked(services, _tracked_job(table, partition), Started(subject=partition)):
        read = read_footers(services.storage, table.id, largest)
        footers: dict[str, KeyRanks] = {shard.id: footer for shard, footer in read}
    plan = plan_split(state.partitions.get(partition).range, footers)
    if plan is None:
        return "not split: all its rows share one key"
    if len(footers) == len(references) and plan.total_rows < fewest:
        return f"not split: it holds about {plan.total_rows} rows after all"
    return plan


def _commit(
    services: Services, table: Table, generation: int, plans: Mapping[str, SplitPlan]
) -> None:
    outcomes = services.store(table).commit(
        *(
            SplitPartition(partition, encode_key(plan.at), plan.rows_left)
            for partition, plan in plans.items()
        ),
        generation=generation,
    )
    for partition, outcome in zip(plans, outcomes, strict=True):
        late = f"not split: {outcome}" if isinstance(outcome, Rejected) else ""
        _finished(services, table, partition, late)


def _tracked_job(table: Table, partition: str) -> TrackedJob:
    return TrackedJob(table.id, split_job_id(partition), "split")


def _finished(services: Services, table: Table, partition: str, reason: str) -> None:
    record(services, _tracked_job(table, partition), Finished(reason=reason))
