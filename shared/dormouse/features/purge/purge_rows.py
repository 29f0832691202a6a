"""purge_rows: one step of a purge → shards looked at, jobs that rewrite those which match.

A step looks at shards it knows nothing of yet, has the free ones that hold rows to remove
rewritten by compaction jobs which leave those rows out, and sends the purge round again. The purge
is finished by the step which finds, at one version of the table, no such shard referenced at all.

Shards never change, so what was found out about one holds for ever: it is kept beside the table's
shards, and a step that was cut off is gone on with by its redelivery. Two steps at once look at
some shards twice, and cannot have one rewritten twice. The sweep begins a chain of steps of its own
from time to time, in case the others were lost; so a chain ends by itself, too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from dormouse.errors import CorruptDataError, DormouseError, InvalidRequestError, NotFoundError
from dormouse.features.planning.assign_jobs import assign
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
from dormouse.jobs.tracking import record
from dormouse.keys.ranges import KeyRange
from dormouse.messages import OutboundMessage, PurgeStep
from dormouse.model.job_records import JobState
from dormouse.model.shards import Reference, Shard
from dormouse.model.state import TableState
from dormouse.model.transactions import AssignJob
from dormouse.ports import Services
from dormouse.readers.reading import Slice
from dormouse.stored.paths import purge_job_id, purge_of
from dormouse.tables.table import Table

STEP_SECONDS = 240
"""How long a step looks at shards it has not begun with yet, well below its function's time-out."""
CONCURRENT_READS = 4
LEAST_WAIT_SECONDS, MOST_WAIT_SECONDS = 1, 120
WAITS_PER_AGE = 8
"""A purge waits for its jobs by this part of its age: short ones end soon, long ones ask rarely."""


def purge_rows(
    services: Services, message: PurgeStep, *, step_seconds: float = STEP_SECONDS
) -> Iterator[OutboundMessage]:
    """Go on with a purge, unless it is finished; give the jobs and the step that follow.

    Raises:
        CorruptDataError: a shard is damaged, so that nobody knows what rows it holds; the others
            were seen to. Or what is kept of the purge is.
    """
    table = services.table(message.table_id)
    request = load_purge(services, table.id, message.purge_id) if table is not None else None
    if table is None or request is None:
        return
    told = services.tracker.get(table.id, request.id)
    if told is not None and told.state == "finished":  # rows that came since are to stay
        delete_purge(services, table.id, request.id)
        return
    state = services.store(table).current()
    if not is_for(request.generation, table, state):
        _end(services, table, request.id, "finished", "the table was cleared since")
        return
    try:
        matcher = RowMatcher.of(request, table.schema)
    except InvalidRequestError as error:
        _end(services, table, request.id, "failed", error.explanation)
        return
    if told is None or told.state != "running":
        record(services, table.id, request.id, "purge", "running")
    try:
        done = yield from _step(services, table, state, matcher, message, step_seconds)
    except DormouseError as error:
        record(services, table.id, request.id, "purge", "failed", reason=error.explanation)
        raise
    if done is not None:  # no failure from here on makes it one that has failed
        _end(services, table, request.id, "finished", done.reason, done.rows_removed)


@dataclass(frozen=True, slots=True)
class _Finished:
    """What the last step of a purge found."""

    reason: str
    rows_removed: int


def _step(
    services: Services,
    table: Table,
    state: TableState,
    matcher: RowMatcher,
    message: PurgeStep,
    seconds: float,
) -> Generator[OutboundMessage, None, _Finished | None]:
    request = matcher.request
    known = load_matches(services, table.id, request.id)
    unknown = unchecked_shards(state, request, known)
    found, damaged = _look(services, table, matcher, unknown, seconds)
    if len(found):
        save_matches(services, table.id, request.id, found)
        known |= found
    references = references_to(state, known.matching)
    left = len(unknown) - len(found)
    if not references and not left:
        removed = _rows_removed(services, table, request.id)
        reason = f"looked at {len(known)} shards, rewrote {len(known.matching)}"
        return _Finished(reason, removed)
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


def _look(
    services: Services, table: Table, matcher: RowMatcher, shards: list[Shard], seconds: float
) -> tuple[ShardMatches, CorruptDataError | None]:
    """Look at shards for some seconds; at some of them in any case. Tell of one that is damaged.

    A whole shard is looked at, wherever its references are: it is the object that is to go.
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
        except NotFoundError:  # merged and collected since: the next step has a newer state
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
            for shard, verdict in zip(some, threads.map(matches, some), strict=True):
                if isinstance(verdict, CorruptDataError):
                    damaged = verdict
                elif verdict is not None:
                    found[shard.id] = verdict
    return shard_matches(found), damaged


def _assign(
    services: Services,
    table: Table,
    state: TableState,
    request: PurgeRequest,
    references: Iterable[Reference],
) -> Iterator[OutboundMessage]:
    """Assign jobs for the free references. What dies before they are sent, the sweep sends."""
    jobs = [
        AssignJob(purge_job_id(request.id, services.ids.new()), partition, inputs)
        for partition, inputs in rewrite_jobs(state, references, request.max_job_bytes)
    ]
    return assign(services, table, state.generation, jobs, request.spark)


def _rows_removed(services: Services, table: Table, purge_id: str) -> int:
    """Sum what the purge's jobs left out, as far as they lived to tell; for people only.

    What the table's own filters and aggregation took out in passing is among it.
    """
    records = services.tracker.records(table.id)
    return sum(
        job.rows_read - job.rows
        for job in records
        if purge_of(job.job_id) == purge_id and job.state == "finished"
    )


def _end(
    services: Services, table: Table, purge_id: str, state: JobState, reason: str, rows: int = 0
) -> None:
    """Record how the purge ended, then delete what is kept of it. After a crash in between, the
    redelivery records it again."""
    record(services, table.id, purge_id, "purge", state, reason=reason, rows=rows)
    delete_purge(services, table.id, purge_id)
