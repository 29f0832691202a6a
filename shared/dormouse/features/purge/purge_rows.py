"""purge_rows: one step of a purge: check shards, and assign jobs that rewrite those that match.

A step checks shards that no step has checked, assigns compaction jobs that rewrite matching shards
without the rows to remove, and sends the message of the next step. The step that finds no matching
shard referenced, at one version of the table, finishes the purge, and has the registry forbid that
an earlier version is restored.

Shards never change, so the result for a shard stays valid. It is saved beside the table's shards,
and the redelivery of an interrupted step continues from there. Two concurrent steps may check a
shard twice, but the state lets only one job rewrite it. The sweep starts a new chain of steps from
time to time, in case a message was lost; so each chain ends after a while.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from dormouse.errors import CorruptDataError, DormouseError, InvalidRequestError, NotFoundError
from dormouse.features.planning.assign_jobs import assign
from dormouse.features.publishing.request import publish_again
from dormouse.features.purge.purge import (
    PurgeRequest,
    ShardMatches,
    references_to,
    rewrite_jobs,
    shard_matches,
    unchecked_shards,
)
from dormouse.features.purge.row_matcher import RowMatcher
from dormouse.features.purge.stored import (
    delete_purge,
    load_matches,
    load_purge,
    save_matches,
)
from dormouse.features.tables.reset import is_for
from dormouse.jobs.retry_policy import is_chain_expired
from dormouse.jobs.runs import new_run
from dormouse.jobs.tracking import record
from dormouse.keys.ranges import KeyRange
from dormouse.messages.stages import OutboundMessage, PurgeStep, TableChanged
from dormouse.model.jobs.job_events import Failed, Finished, Started, TrackedJob
from dormouse.model.shards import Reference, Shard
from dormouse.model.state import TableState
from dormouse.model.transactions import AssignJob
from dormouse.ports.services import Services
from dormouse.readers.reading import Slice
from dormouse.tables.table import Table

STEP_SECONDS = 240
"""For how long a step begins to check more shards; well below its function's time-out."""
CONCURRENT_READS = 4
_RESET = "the table was reset since"
_RESTORED = (
    "the table was reset to an earlier version since, which may have the rows: purge them again"
)
LEAST_WAIT_SECONDS, MOST_WAIT_SECONDS = 1, 120
WAITS_PER_AGE = 8
"""The next step waits for this fraction of the purge's age: short purges end soon, long ones poll
rarely."""


def purge_rows(
    services: Services, message: PurgeStep, *, step_seconds: float = STEP_SECONDS
) -> Iterator[OutboundMessage]:
    """Run one step of a purge, unless it is finished; yield the jobs and the next step.

    Raises:
        CorruptDataError: a shard is damaged, so its rows are unknown; jobs for the other shards are
            assigned. Or the stored request of the purge is damaged.
    """
    table = services.table(message.table_id)
    request = load_purge(services, table.id, message.purge_id) if table is not None else None
    if table is None or request is None:
        return
    job = TrackedJob(table.id, request.id, "purge")
    last = services.tracker.get(table.id, request.id)
    if last is not None and last.state == "finished":  # matching rows that came later stay
        delete_purge(services, table.id, request.id)
        return
    state = services.store(table).current()
    if not is_for(request.generation, table, state):
        _end(services, job, _end_by_reset(table))
        return
    try:
        matcher = RowMatcher.of(request, table.schema)
    except InvalidRequestError as error:
        _end(services, job, Failed(error.explanation))
        return
    if last is None or last.state != "running":
        record(services, job, Started())
    try:
        done = yield from _step(services, table, state, matcher, message, step_seconds)
    except DormouseError as error:
        record(services, job, Failed(error.explanation))
        raise
    if done is not None:  # outside the block above: an error from here on must not record a failure
        known = _forbid_earlier(services, table, state)
        if publish_again(services, table.id, "purged"):  # what was published names the rows' keys
            yield OutboundMessage("iceberg-changes", TableChanged(table.id))
        _end(services, job, done if known.generation == state.generation else _end_by_reset(known))


def _end_by_reset(table: Table) -> Finished | Failed:
    """Return how a purge ends if its table was reset or restored since."""
    return Failed(_RESTORED) if table.restored else Finished(_RESET)


def _forbid_earlier(services: Services, table: Table, state: TableState) -> Table:
    """Have the registry keep that versions before a state have purged rows; return the table.

    A restore of one is refused from then on. One that was registered before is in the table, which
    is then of another generation, and otherwise unchanged.
    """

    def purged(kept: Table) -> Table:
        if kept.generation != state.generation:
            return kept
        return replace(kept, purged_version=max(kept.purged_version, state.version))

    return services.tables.change(table.id, purged)


def _step(
    services: Services,
    table: Table,
    state: TableState,
    matcher: RowMatcher,
    message: PurgeStep,
    seconds: float,
) -> Generator[OutboundMessage, None, Finished | None]:
    """Run a step; return the end of the purge if it is the last."""
    request = matcher.request
    known = load_matches(services, table.id, request.id)
    unknown = unchecked_shards(state, request, known)
    found, damaged = _check_shards(services, table, matcher, unknown, seconds)
    if len(found):
        save_matches(services, table.id, request.id, found)
        known |= found
    references = references_to(state, known.matching)
    left = len(unknown) - len(found)
    if not references and not left:
        removed = _rows_removed(services, table, request.id)
        reason = f"checked {len(known)} shards, rewrote {len(known.matching)}"
        return Finished(reason, rows=removed)
    yield from _assign(services, table, state, request, references)
    if damaged is not None:
        raise damaged
    now_ms = services.clock.now_ms()
    retry_ms = table.properties.job_retry_seconds * 1000
    if is_chain_expired(
        message.begun_ms or request.requested_ms, request.requested_ms, now_ms, retry_ms
    ):
        return None
    age_seconds = (now_ms - request.requested_ms) // 1000
    wait = min(max(age_seconds // WAITS_PER_AGE, LEAST_WAIT_SECONDS), MOST_WAIT_SECONDS)
    yield OutboundMessage("purges", message, 0 if left else wait)
    return None


def _check_shards(
    services: Services, table: Table, matcher: RowMatcher, shards: list[Shard], seconds: float
) -> tuple[ShardMatches, CorruptDataError | None]:
    """Check shards for some seconds, at least a few; return the results, and one damage if any.

    A shard is checked as a whole, whichever partitions refer to it, since its object is what must
    be deleted.
    """
    memory_bytes = services.memory_bytes // CONCURRENT_READS
    end_ms = services.clock.now_ms() + seconds * 1000

    def matches(shard: Shard) -> bool | CorruptDataError | None:
        whole = Slice(shard, KeyRange())
        try:
            return bool(
                matcher.count(
                    services.storage,
                    table.id,
                    whole,
                    scratch=services.scratch,
                    memory_bytes=memory_bytes,
                    at_most=1,
                )
            )
        except NotFoundError:  # compacted and collected meanwhile
            return None
        except CorruptDataError as error:
            return error

    found: dict[str, bool] = {}
    damaged: CorruptDataError | None = None
    with ThreadPoolExecutor(CONCURRENT_READS) as threads:
        for start in range(0, len(shards), CONCURRENT_READS):
            if start and services.clock.now_ms() >= end_ms:
                break
            some = shards[start : start + CONCURRENT_READS]
            for shard, matching in zip(some, threads.map(matches, some), strict=True):
                if isinstance(matching, CorruptDataError):
                    damaged = matching
                elif matching is not None:
                    found[shard.id] = matching
    return shard_matches(found), damaged


def _assign(
    services: Services,
    table: Table,
    state: TableState,
    request: PurgeRequest,
    references: Iterable[Reference],
) -> Iterator[OutboundMessage]:
    """Assign jobs for the free references; after a crash the sweep sends their messages."""
    jobs = [
        AssignJob(new_run(services, table), partition, inputs, purge_id=request.id)
        for partition, inputs in rewrite_jobs(state, references, request.max_job_bytes)
    ]
    return assign(services, table, state.generation, jobs, request.spark)


def _rows_removed(services: Services, table: Table, purge_id: str) -> int:
    """Return how many rows the purge's jobs removed, according to their records; for people only.

    Records of crashed runs are missing, and rows that the table's filters and aggregation removed
    in the same jobs are included.
    """
    records = services.tracker.records(table.id)
    return sum(
        job.rows_read - job.rows
        for job in records
        if job.purge_id == purge_id and job.state == "finished"
    )


def _end(services: Services, purge: TrackedJob, end: Finished | Failed) -> None:
    """Record the end of a purge, then delete its stored state.

    After a crash in between, the redelivery records it again.
    """
    record(services, purge, end)
    delete_purge(services, purge.table_id, purge.id)
