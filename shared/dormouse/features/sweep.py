"""sweep: send again, on a schedule, the messages of work that has not finished in time.

This is only repair: if every message is delivered, it finds nothing to do.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, cast

from dormouse import jobs
from dormouse.errors import CorruptDataError
from dormouse.features import garbage
from dormouse.features.batch_files import missed_files
from dormouse.features.deletion import delete_whole_table
from dormouse.features.garbage import mark_lasting_shards
from dormouse.features.planning import LOOKED_AT_ONCE
from dormouse.features.publishing import collect_iceberg
from dormouse.features.requests import list_jobs
from dormouse.features.reset import unpin_restored
from dormouse.features.seal_sources import obsolete_segments
from dormouse.features.spark import list_spark_requests
from dormouse.features.versions import unpin_ended
from dormouse.items.records import REFUSALS_KEPT_SECONDS
from dormouse.log.engine import StateStore
from dormouse.messages.stages import STAGES, OutboundMessage, TableChanged, load
from dormouse.ports import Services, Storage, StoredObject
from dormouse.quiet import QuietTable
from dormouse.shards.run_markers import discard_shards, obsolete_run_markers
from dormouse.state.jobs import Finished, Started, TrackedJob
from dormouse.state.state import DAY_MS, TableState
from dormouse.state.versions import OwnerKind
from dormouse.stored import paths
from dormouse.stored.checksums import crc32
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table, is_published

RESENT_JOBS = "sent-again"
"""The id of the tracker's record of when the jobs of a table were last sent again."""
ORPHANS_JOB = "garbage-orphans"
"""The id of the tracker's record of the deletion of orphans: shards of no commit."""
MAX_CLOCK_SKEW_MS = 5 * 60 * 1000
"""A generous limit of the clock skew between a function and the object store."""


QUIET_MS = 60 * 60 * 1000
"""A table without jobs is quiet that nobody has committed to for so long."""


def sweep_in_turn(
    services: Services, table: Table, *, audit: bool = False
) -> Iterator[OutboundMessage]:
    """Sweep a table, as `sweep` does; a quiet one ever more rarely, see `_is_quiet_due`.

    Most tables of most instances are quiet: 200 tables each five minutes are 1.7 million sweeps a
    month, of a list or more each.

    Raises:
        as `sweep`.
    """
    if audit or table.deleting or _is_in_turn(services, table):
        yield from sweep(services, table, audit=audit)


def _is_in_turn(services: Services, table: Table) -> bool:
    store, now_ms = services.store(table), services.clock.now_ms()
    quiet = services.quiet.get("sweep", table, store, now_ms)
    if quiet is None:
        state = store.current()
        if state.jobs or now_ms - state.time_ms < QUIET_MS:
            return True
        # a lost state is reported by each sweep; of a large table each plans another part
        if not len(state.partitions) or len(state.references) > LOOKED_AT_ONCE:
            return True
        age_off = row_rules(table.schema, table.properties).age_off
        if not (state.unreferenced or state.deletions or age_off):  # no change comes with time
            quiet = services.quiet.note("sweep", table, state, now_ms)
    turn_ms = jobs.SWEEP_SECONDS * 1000
    turns = QUIET_MS // turn_ms
    is_turn = now_ms // turn_ms % turns == crc32(table.id.encode()) % turns
    return is_turn and (quiet is None or _is_quiet_due(store, quiet, now_ms))


def _is_quiet_due(store: StateStore, quiet: QuietTable, now_ms: int) -> bool:
    """Return whether a quiet table is swept in its turn of this hour.

    It is 1, 2, 4, 8 and 16 hours after its last change, and then with each audit; and each time
    while a query or an export holds a version of it, whose messages may be lost.
    """
    if now_ms - quiet.time_ms < DAY_MS and jobs.is_retry_due(
        quiet.time_ms, now_ms - QUIET_MS, now_ms, QUIET_MS
    ):
        return True
    holders = (OwnerKind.QUERY, OwnerKind.EXPORT)
    return any(pin.owner.kind in holders for pin in store.pins.all(expired=True))


def sweep(
    services: Services,
    table: Table,
    *,
    audit: bool = False,
    is_lost: Callable[[str], bool] = jobs.unknown,
) -> Iterator[OutboundMessage]:
    """Yield messages for unfinished work of a table; an `audit` also compares its buckets.

    `is_lost` says whether no queue has a message of a job, where queues can be looked into.

    An audit sends again files that were never ingested, and deletes orphans: shards that no commit
    references, and unfinished uploads of shards. It lists all objects of a table, so it runs more
    rarely.

    Raises:
        CorruptDataError: the state is lost; nothing was sent or deleted. Or a stored Spark request,
            export, pin or run marker is damaged, or what is published; everything else was done.
        NotFoundError: something is lost that published metadata names; everything else was done.
    """
    if table.deleting:
        yield from delete_whole_table(services, table)
        return
    state = _current_state(services, table)
    storage = _KnownFolders(services.storage, table.id)
    services = replace(services, storage=cast(Storage, storage))
    spark, damaged_requests = list_spark_requests(services, table.id)
    spark_jobs = {request.job.job_id: request.requested_ms for request in spark}
    with_spark = spark_jobs.keys() | damaged_requests.keys()
    is_due = _is_due(services, table)
    check = jobs.SweepCheck(services, table, state, is_due, spark_jobs, with_spark, is_lost)
    overdue = _overdue_work(check)  # before pins are removed: one may be the last of a query
    services.store(table).pins.remove_expired()
    unpin_restored(services, table, services.clock.now_ms() - _orphan_age_ms(table))
    unpin_ended(services, table)
    yield OutboundMessage("table-changes", TableChanged(table.id, swept=True))
    yield from overdue
    with check.going_on():
        yield from _overdue_garbage(services, table, state)
    if audit or is_published(table.properties):
        with check.going_on():
            yield from _unwithdrawn(services, table)
            collect_iceberg(services, table, at_once=audit)
    if audit:
        yield from missed_files(services, table, (request.job for request in spark))
        with check.going_on():
            _delete_orphans(services, table)
        # what was sent of shards whose run died before they were complete
        oldest_ms = services.clock.now_ms() - garbage.abandoned_after_ms(table)
        uploads = services.storage.list_uploads(paths.data_prefix(table.id))
        services.storage.abort_uploads(each for each in uploads if each.started_ms <= oldest_ms)
        check.damaged.extend(_delete_obsolete(services, table))
        mark_lasting_shards(services, table)
    for error in (*damaged_requests.values(), *check.damaged):
        raise error


class _KnownFolders:
    """A data root whose folders of one table were looked at once: one that is not there is not
    listed. Most tables have few of a dozen, and a list costs as much as twelve reads.

    What comes into a new folder meanwhile is young, and a matter of the next sweep.
    """

    def __init__(self, storage: Storage, table_id: str) -> None:
        self._storage, self._folders = storage, cache(lambda below: {*storage.folders(below)})
        self._parents = paths.table_prefix(table_id), paths.state_prefix(table_id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def list(self, prefix: str) -> Iterator[StoredObject]:
        """Yield the objects whose path begins with `prefix`, in path order."""
        for parent in self._parents:
            name, slash, _ = prefix.removeprefix(parent).partition("/")
            if prefix.startswith(parent) and slash and name not in self._folders(parent):
                return iter(())
        return self._storage.list(prefix)


def _current_state(services: Services, table: Table) -> TableState:
    """Return the newest state of a table.

    An audit must call it after it has listed objects, so that the state references each shard that
    was committed before the listing.
    Raises CorruptDataError: the state is lost; to an audit every shard would seem to be an orphan.
    """
    state = services.store(table).current()
    if not len(state.partitions):
        raise CorruptDataError(
            f"table {table.name!r} has lost its state; its shards were left alone",
            hint="rebuild the state from them: dormouse rebuild NAME",
        )
    return state


def _overdue_work(check: jobs.SweepCheck) -> list[OutboundMessage]:
    """Return messages for work that began so long ago that a message or event of it may be lost.

    The work may also just wait in a long queue, or fail each time, so it is sent again with a
    growing delay (backoff). The tracker records the last time; without that, every sweep would send
    all of it.
    """
    messages = [
        message for stage in STAGES if stage.overdue for message in load(stage.overdue)(check)
    ]
    if messages:
        subject = f"{len(messages)} jobs sent again"
        job = TrackedJob(check.table.id, RESENT_JOBS, "sweep")
        jobs.record(check.services, job, Finished(subject=subject))
    return messages


def _is_due(services: Services, table: Table) -> Callable[[int], bool]:
    """Return a test of whether work that began at a time is due to be sent again."""
    now_ms, retry_ms = services.clock.now_ms(), table.properties.job_retry_seconds * 1000

    @cache
    def since_ms() -> int:  # most tables have nothing that is old
        earlier = services.tracker.get(table.id, RESENT_JOBS)
        return earlier.updated_ms if earlier is not None else 0

    def is_due(begun_ms: int) -> bool:
        is_old = now_ms - begun_ms >= retry_ms
        return is_old and jobs.is_retry_due(begun_ms, since_ms(), now_ms, retry_ms)

    return is_due


def _overdue_garbage(services: Services, table: Table, state: TableState) -> list[OutboundMessage]:
    """Return candidates that have been due for another whole delay: their message must be lost."""
    delay_seconds = 2 * table.properties.gc_delay_seconds
    now_ms = services.clock.now_ms()
    due, _ = garbage.collectable(state, state.unreferenced, now_ms, delay_seconds)
    due = garbage.unpinned(services.store(table), state, due)
    return garbage.candidates(table, state, garbage.unpublished(services, table, state, due))


def _unwithdrawn(services: Services, table: Table) -> list[OutboundMessage]:
    """Return the message that withdraws what is published of a table that is to be no more."""
    is_planned = is_published(table.properties)  # with the table
    record = None if is_planned else services.publications.get(table.id)
    is_there = record is not None and record.metadata
    return [OutboundMessage("iceberg-changes", TableChanged(table.id))] if is_there else []


def _delete_obsolete(services: Services, table: Table) -> list[CorruptDataError]:
    """Delete obsolete run markers, notes of jobs and deletions, Spark requests, trees and records
    of resets, source segments, and old rows that ingests rejected.

    Return the errors of run markers that are damaged.
    """
    storage, now_ms = services.storage, services.clock.now_ms()
    delete = storage.delete
    retry_ms = table.properties.job_retry_seconds * 1000
    orphan_age_ms = _orphan_age_ms(table)
    endings, damaged = obsolete_run_markers(
        storage,
        table.id,
        lambda: _current_state(services, table),
        # Twice the age: by then a shard that was written late, which the marker does not list, has
        # been deleted as an orphan.
        before_ms=now_ms - 2 * orphan_age_ms,
    )
    delete(endings)
    # notes of runs that a process saved after their job was completed
    delete(list_jobs(storage, paths.SPARK_JOBS.prefix(table.id), now_ms - retry_ms)[1])
    notes = jobs.job_notes(services, table.id)
    deletions = list(storage.list(paths.DELETIONS.prefix(table.id)))
    state = _current_state(services, table)
    hiding = {paths.DELETIONS.path(table.id, each.id) for each in state.deletions}
    delete([each.path for each in deletions if each.path not in hiding])
    delete([path for job, each in notes.items() if job not in state.jobs for path in each.paths])

    def delete_old(folder: paths.TableFolder, age_ms: int, but: str = "") -> None:
        needed = folder.path(table.id, but)
        objects = [o for o in storage.list(folder.prefix(table.id)) if o.path != needed]
        delete([each.path for each in objects if each.modified_ms < now_ms - age_ms])

    is_resetting = state.generation < table.generation  # then it needs the tree
    delete_old(paths.TREES, orphan_age_ms, but=table.tree if is_resetting else "")
    delete_old(paths.RESTORED, orphan_age_ms, but=table.restored)
    delete(obsolete_segments(services, table, now_ms - orphan_age_ms))
    delete_old(paths.REJECTED, REFUSALS_KEPT_SECONDS * 1000)
    return damaged


def _orphan_age_ms(table: Table) -> int:
    return table.properties.orphan_age_seconds * 1000


def _delete_orphans(services: Services, table: Table) -> None:
    """Delete shards that the state does not reference and that are too old for a later commit."""
    objects = services.storage.list(paths.data_prefix(table.id))
    modified_ms = {shard: o.modified_ms for o in objects if (shard := paths.shard_id_of(o.path))}
    state = _current_state(services, table)
    now_ms = services.clock.now_ms()
    oldest_ms = now_ms - _orphan_age_ms(table)
    if now_ms - table.reset_ms >= table.properties.gc_delay_seconds * 1000:
        # Shards written before the table was reset cannot be committed any more.
        oldest_ms = max(oldest_ms, table.reset_ms - MAX_CLOCK_SKEW_MS)
    shards = garbage.unpinned(
        services.store(table), state, garbage.orphans(state, modified_ms, oldest_ms)
    )
    if not garbage.is_following(services, table, state):
        shards = []
    if not shards:
        jobs.finalise(services, table.id, ORPHANS_JOB, failed=True)
        return
    subject = f"{len(shards)} shards nobody committed"
    job = TrackedJob(table.id, ORPHANS_JOB, "garbage")
    with jobs.tracked(services, job, Started(subject=subject, files=len(shards))):
        discard_shards(services.storage, table.id, shards, state)
    jobs.record(services, job, Finished(files=len(shards)))
