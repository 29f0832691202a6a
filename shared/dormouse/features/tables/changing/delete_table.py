"""delete_table: delete a table with all its rows.

Order: mark the registry entry as in deletion, which cannot be undone; put the tombstone, which
later proves that the table was deleted; have the entry in Glue deleted, if there is one; delete the
states, the objects, the entry. After a crash the redelivery or `sweep` deletes the rest. The audit
deletes objects that other processes put meanwhile (`leftovers`).
"""

from __future__ import annotations

from dataclasses import replace

from dormouse.errors import CorruptDataError, InvariantError, NotFoundError
from dormouse.features.requests.resolve_table import find_table
from dormouse.features.tables.tags import refuse_tagged
from dormouse.messages.requests import DeleteTable
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports.services import Services
from dormouse.stored.paths import data_prefix, table_prefix
from dormouse.tables.table import Table
from dormouse.tables.tombstones import Tombstone

DELETE_BATCH = 1000


def delete_table(services: Services, request: DeleteTable) -> list[OutboundMessage]:
    """Delete the table; after a crash the redelivery or `sweep` deletes the rest.

    Return the message that deletes its entry in Glue, if it has one.

    Raises:
        NotFoundError: no table has that name.
        InvalidRequestError: the table has tags, and they are not to be released.
    """
    table = find_table(services, request)
    if table is None:
        return []
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
    if _has_mirror(services, table):
        return [OutboundMessage("iceberg-changes", TableChanged(table.id))]
    for state in table.states():
        services.store(state).destroy()
    services.publications.delete(table.id)
    delete_table_objects(services, table.id)
    services.tables.delete(table)
    return []


def _has_mirror(services: Services, table: Table) -> bool:
    try:
        record = services.publications.get(table.id)
    except CorruptDataError:  # it must not keep the table; an entry stays, of metadata that is gone
        return False
    return record is not None and bool(record.mirror)


def delete_table_objects(services: Services, table_id: str) -> None:
    """Delete all objects of an id that has a tombstone, and what was sent of unfinished shards."""
    services.storage.abort_uploads(services.storage.list_uploads(data_prefix(table_id)))
    batch: list[str] = []
    for stored in services.storage.list(table_prefix(table_id)):
        batch.append(stored.path)
        if len(batch) == DELETE_BATCH:
            services.storage.delete(batch)
            batch = []
    services.storage.delete(batch)
