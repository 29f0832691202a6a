"""delete_table: delete a table with all its rows.

Order: mark the registry entry as in deletion, which cannot be undone; put the tombstone, which
later proves that the table was deleted; have the entry in Glue deleted, if there is one; delete the
states, the objects, the keys of subjects, the entry. After a crash the redelivery or `sweep`
deletes the rest. The audit deletes objects that other processes put meanwhile (`leftovers`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from dormouse.errors import CorruptDataError, InvariantError, NotFoundError
from dormouse.features.versions import refuse_tagged
from dormouse.messages.requests import DeleteTable
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports import NO_TABLE, Services
from dormouse.state.jobs import Metric
from dormouse.state.state import DAY_MS
from dormouse.stored.paths import SPARK_CODE, data_prefix, table_prefix
from dormouse.tables.table import Table, Tombstone

DELETE_BATCH = 1000


def delete_table(services: Services, table: Table, request: DeleteTable) -> list[OutboundMessage]:
    """Delete the table; after a crash the redelivery or `sweep` deletes the rest.

    Return the message that deletes its entry in Glue, if it has one.
    Raises InvalidRequestError: the table has tags, and they are not to be released.
    """
    if not request.release_tags and not table.deleting:
        refuse_tagged(services, table, "the rows")
    try:
        return delete_whole_table(services, table)
    except NotFoundError:
        if services.tables.get(table.id) is not None:
            raise  # else another delivery of the request has deleted it meanwhile
        return []


def delete_whole_table(services: Services, table: Table) -> list[OutboundMessage]:
    """Delete a table's states, its objects and its registry entry, in an order that can resume.

    While it has an entry in Glue, return the message that deletes that; the sweep does the rest.

    The states are deleted first, so that readers find the table deleted. If the objects were
    deleted first, it would seem damaged.
    """
    table = services.tables.change(table.id, lambda t: replace(t, online=False, deleting=True))
    if services.tables.put_tombstone(Tombstone.of(table, services.clock.now_ms())) is None:
        raise InvariantError(f"table {table.id} is not in deletion, though it was just put there")
    try:
        record = services.publications.get(table.id)
    except CorruptDataError:  # it must not keep the table; an entry stays, of metadata that is gone
        record = None
    if record is not None and record.mirror:
        return [OutboundMessage("iceberg-changes", TableChanged(table.id))]
    for state in table.states():
        services.store(state).destroy()
    services.publications.delete(table.id)
    delete_table_objects(services, table.id)
    if table.schema.subject:
        services.keys.subjects.delete(table.id)
    services.tables.delete(table)
    return []


def delete_table_objects(services: Services, table_id: str) -> None:
    """Delete all objects of an id that has a tombstone, and what was sent of unfinished shards."""
    services.storage.abort_uploads(services.storage.list_uploads(data_prefix(table_id)))
    paths = (item.path for item in services.storage.list(table_prefix(table_id)))
    while batch := list(islice(paths, DELETE_BATCH)):
        services.storage.delete(batch)


# Which tombstones an audit checks, and from what age it reports objects of unknown ids.

RECHECK_MS = 60 * DAY_MS
"""How long after a deletion an audit looks for late DynamoDB items; objects are found at any time.

Only a process that opened the table before can write them: a function has 15 minutes, a Spark run
some hours, a command line on a computer that was asleep some days. Messages delivered later find no
table."""
MAX_RECHECKED = 1000
"""The most tombstones that one audit checks; each day it begins at others."""
UNREGISTERED_AGE_MS = DAY_MS
"""From what age an object is reported: a table's state is created before its registry entry."""


def tombstones_to_recheck(tombstones: list[Tombstone], now_ms: int) -> list[Tombstone]:
    """Return the tombstones that an audit checks: all, or `MAX_RECHECKED`, others each day."""
    if len(tombstones) <= MAX_RECHECKED:
        return tombstones
    start = now_ms // DAY_MS * MAX_RECHECKED % len(tombstones)
    return [*tombstones[start:], *tombstones[:start]][:MAX_RECHECKED]


# leftovers: delete objects under ids of deleted tables, and report those of unknown ids.
#
# A job that runs while its table is deleted goes on: an ingest puts its shards, a commit its delta,
# and only then they find that the table is gone. An audit deletes those objects if it has proof:
# the id has a tombstone, and a consistent read of the registry finds no entry. It never concludes
# from a listing that something does not exist, and compares no times, so clocks do not matter.
#
# Objects under an id that has neither entry nor tombstone may belong to a table whose entry was
# lost. They are never deleted, only reported, once they are old enough not to belong to a table
# that is just being created. An unreadable entry counts as an entry; an unreadable tombstone is no
# proof.
#
# All operations are deletions of names that are never reused, so a crash at any call and concurrent
# audits do no harm.


@dataclass(frozen=True, slots=True)
class Unregistered:
    """Objects of the data bucket under an id without a registry entry or a tombstone."""

    table_id: str
    objects: int
    size_bytes: int
    newest_ms: int


def collect_leftovers(services: Services) -> list[str]:
    """Delete what was written late for deleted tables; return the unregistered ids.
    Raises CorruptDataError: a tombstone is damaged; the leftovers of other tables were deleted.
    """
    unaccounted = []
    leftovers, damaged = _unregistered(services)
    for table_id, tombstone in leftovers:
        if tombstone is not None:
            delete_table_objects(services, table_id)
        elif _is_unaccounted(services, table_id):
            unaccounted.append(table_id)
    now_ms = services.clock.now_ms()
    tombstones, unread = services.tables.tombstones(now_ms - RECHECK_MS)
    for tombstone in tombstones_to_recheck(tombstones, now_ms):
        _delete_items(services, tombstone)
    if services.metrics:
        services.metrics.emit(NO_TABLE, {Metric.UNREGISTERED: len(unaccounted)})
    for error in (*damaged, *unread):
        raise error
    return unaccounted


def list_unregistered(services: Services) -> Iterator[Unregistered]:
    """Yield the objects under ids that have neither a registry entry nor a tombstone.
    Raises CorruptDataError: a tombstone is damaged; raised after all others were yielded.
    """
    ids, damaged = _unregistered(services)
    for table_id, tombstone in ids:
        if tombstone is None and _is_unaccounted(services, table_id):
            objects = list(services.storage.list(table_prefix(table_id)))
            size_bytes = sum(o.size_bytes for o in objects)
            newest_ms = max((o.modified_ms for o in objects), default=0)
            yield Unregistered(table_id, len(objects), size_bytes, newest_ms)
    for error in damaged:
        raise error


def _unregistered(
    services: Services,
) -> tuple[list[tuple[str, Tombstone | None]], list[CorruptDataError]]:
    """Return the unregistered ids with objects, each with its tombstone if any.

    The second value has the errors of damaged tombstones.
    """
    registered = {table.id for table in services.tables.list_readable()[0]}
    ids, damaged = [], []
    for table_id in services.storage.folders():
        if table_id == SPARK_CODE or table_id in registered:
            continue
        try:
            tombstone = services.tables.tombstone(table_id)
        except CorruptDataError as error:
            damaged.append(error)
            continue
        if not _is_registered(services, table_id):
            ids.append((table_id, tombstone))
    return ids, damaged


def _is_registered(services: Services, table_id: str) -> bool:
    """Return whether the registry has an entry with this id, even a damaged one."""
    try:
        return services.tables.get(table_id) is not None
    except CorruptDataError:
        return True


def _is_unaccounted(services: Services, table_id: str) -> bool:
    """Return whether any object is too old to belong to a table that is just being created."""
    oldest_ms = services.clock.now_ms() - UNREGISTERED_AGE_MS
    objects = services.storage.list(table_prefix(table_id))
    return any(item.modified_ms <= oldest_ms for item in objects)


def _delete_items(services: Services, tombstone: Tombstone) -> None:
    """Delete the items of a deleted table that no bucket listing shows: of its states, the record
    of what is published, and keys of subjects, which others may have made meanwhile.
    """
    if _is_registered(services, tombstone.table_id):  # in deletion, or restored from a backup
        return
    services.publications.delete(tombstone.table_id)
    if tombstone.has_subjects:
        services.keys.subjects.delete(tombstone.table_id)
    for table in tombstone.states():
        if tombstone.was_registered:
            services.store(table).delete_late()
        else:  # a refused delivery may have crashed before it destroyed the state that it began
            services.store(table).destroy()
