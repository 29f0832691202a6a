"""leftovers: delete objects under ids of deleted tables, and report those of unknown ids.

A job that runs while its table is deleted goes on: an ingest puts its shards, a commit its delta,
and only then they find that the table is gone. An audit deletes those objects if it has proof: the
id has a tombstone, and a consistent read of the registry finds no entry. It never concludes from a
listing that something does not exist, and compares no times, so clocks do not matter.

Objects under an id that has neither entry nor tombstone may belong to a table whose entry was lost.
They are never deleted, only reported, once they are old enough not to belong to a table that is
just being created. An unreadable entry counts as an entry; an unreadable tombstone is no proof.

All operations are deletions of names that are never reused, so a crash at any call and concurrent
audits do no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dormouse.errors import CorruptDataError
from dormouse.features.tables.changing.delete_table import delete_table_objects
from dormouse.features.tables.tombstone_policy import (
    RECHECK_MS,
    UNREGISTERED_AGE_MS,
    tombstones_to_recheck,
)
from dormouse.model.jobs.metrics import Metric
from dormouse.ports.services import NO_TABLE, Services
from dormouse.stored.paths import SPARK_CODE, table_prefix
from dormouse.tables.tombstones import Tombstone


@dataclass(frozen=True, slots=True)
class Unregistered:
    """Objects of the data bucket under an id without a registry entry or a tombstone."""

    table_id: str
    objects: int
    size_bytes: int
    newest_ms: int


def collect_leftovers(services: Services) -> list[str]:
    """Delete what was written late for deleted tables; return the unregistered ids.

    Raises:
        CorruptDataError: a tombstone is damaged; the leftovers of other tables were deleted.
    """
    unaccounted = []
    found, damaged = _unregistered(services)
    for table_id, tombstone in found:
        if tombstone is not None:
            delete_table_objects(services, table_id)
        elif _is_unaccounted(services, table_id):
            unaccounted.append(table_id)
    now_ms = services.clock.now_ms()
    tombstones, unread = services.tables.tombstones(now_ms - RECHECK_MS)
    for tombstone in tombstones_to_recheck(tombstones, now_ms):
        _delete_items(services, tombstone)
    services.metrics.emit(NO_TABLE, {Metric.UNREGISTERED: len(unaccounted)})
    for error in (*damaged, *unread):
        raise error
    return unaccounted


def list_unregistered(services: Services) -> Iterator[Unregistered]:
    """Yield the objects under ids that have neither a registry entry nor a tombstone.

    Raises:
        CorruptDataError: a tombstone is damaged; raised after all others were yielded.
    """
    found, damaged = _unregistered(services)
    for table_id, tombstone in found:
        if tombstone is None and _is_unaccounted(services, table_id):
            listed = list(services.storage.list(table_prefix(table_id)))
            size_bytes, newest_ms = (
                sum(o.size_bytes for o in listed),
                max((o.modified_ms for o in listed), default=0),
            )
            yield Unregistered(table_id, len(listed), size_bytes, newest_ms)
    for error in damaged:
        raise error


def _unregistered(
    services: Services,
) -> tuple[list[tuple[str, Tombstone | None]], list[CorruptDataError]]:
    """Return the unregistered ids with objects, each with its tombstone if any.

    The second value has the errors of damaged tombstones.
    """
    registered = {table.id for table in services.tables.list_readable()[0]}
    found, damaged = [], []
    for table_id in services.storage.folders():
        if table_id == SPARK_CODE or table_id in registered:
            continue
        try:
            tombstone = services.tables.tombstone(table_id)
        except CorruptDataError as error:
            damaged.append(error)
            continue
        if not _is_registered(services, table_id):
            found.append((table_id, tombstone))
    return found, damaged


def _is_registered(services: Services, table_id: str) -> bool:
    """Return whether the registry has an entry with this id, even a damaged one."""
    try:
        return services.tables.get(table_id) is not None
    except CorruptDataError:
        return True


def _is_unaccounted(services: Services, table_id: str) -> bool:
    """Return whether any object is too old to belong to a table that is just being created."""
    oldest_ms = services.clock.now_ms() - UNREGISTERED_AGE_MS
    listed = services.storage.list(table_prefix(table_id))
    return any(stored.modified_ms <= oldest_ms for stored in listed)


def _delete_items(services: Services, tombstone: Tombstone) -> None:
    """Delete the items of a deleted table that no bucket listing shows: of its states in DynamoDB,
    and the record of what is published, which a publisher may have begun meanwhile.
    """
    if _is_registered(services, tombstone.table_id):  # in deletion, or restored from a backup
        return
    services.publications.delete(tombstone.table_id)
    if tombstone.was_registered and tombstone.state_store != "dynamodb":
        return
    for table in tombstone.states():
        if tombstone.was_registered:
            services.store(table).delete_late()
        else:  # a refused delivery may have crashed before it destroyed the state that it began
            services.store(table).destroy()
