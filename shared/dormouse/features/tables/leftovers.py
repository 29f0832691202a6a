"""leftovers: what lies under ids that are no tables → gone with a proof, reported without one.

Whoever was at work on a table while it was deleted goes on: an ingest puts its shards, a commit its
delta, and only then they learn that the table is gone. An audit deletes that. Its proof is the
tombstone of the id, and that a consistent read of the registry, at that moment, has no entry: no
listing is believed about what there is not, and no time is compared, so clocks do not matter.

What lies under an id that has neither entry nor tombstone may be a table whose entry was lost. It
is never deleted, but told to people; so is nothing that is too young, for it may be a table that is
being made. An entry that cannot be read is an entry, and a tombstone that cannot be read no proof.

Deleting is all this does, and what it deletes never comes back under its name: so it may die at any
call, and any number may do it at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dormouse.errors import CorruptDataError
from dormouse.features.tables.delete_table import delete_table_objects
from dormouse.features.tables.tombstone_policy import (
    RECHECK_MS,
    UNREGISTERED_AGE_MS,
    tombstones_to_recheck,
)
from dormouse.model.metrics import Metric
from dormouse.ports import NO_TABLE, Services
from dormouse.stored.paths import SPARK_CODE, table_prefix
from dormouse.tables.tombstones import Tombstone


@dataclass(frozen=True, slots=True)
class Unregistered:
    """Objects of the data bucket that belong to no table known, under what should be its id."""

    table_id: str
    objects: int
    size_bytes: int
    newest_ms: int


def collect_leftovers(services: Services) -> list[str]:
    """Delete what came late for deleted tables; return the ids that nobody can account for.

    Raises:
        CorruptDataError: a tombstone is damaged; what is of others was deleted.
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
    """Yield what lies under ids that have neither an entry of the registry nor a tombstone.

    Raises:
        CorruptDataError: a tombstone is damaged, after all others were looked at.
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
    """Return the ids with objects that are not registered, and the proof, if there is one.

    Besides, what is wrong with tombstones that are damaged.
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
    """Return whether the registry has an entry of that very id, be it damaged."""
    try:
        return services.tables.get(table_id) is not None
    except CorruptDataError:
        return True


def _is_unaccounted(services: Services, table_id: str) -> bool:
    """Return whether anything is too old to be of a table that is just being made."""
    oldest_ms = services.clock.now_ms() - UNREGISTERED_AGE_MS
    listed = services.storage.list(table_prefix(table_id))
    return any(stored.modified_ms <= oldest_ms for stored in listed)


def _delete_items(services: Services, tombstone: Tombstone) -> None:
    """Delete the items of states that no listing of the bucket shows."""
    if tombstone.was_registered and tombstone.state_store != "dynamodb":
        return
    if _is_registered(services, tombstone.table_id):  # in deletion, or restored from a backup
        return
    for table in tombstone.states():
        if tombstone.was_registered:
            services.store(table).delete_late()
        else:  # who was refused may have died before it destroyed the state it had begun
            services.store(table).destroy()
