"""delete_table: a table with all its rows → gone.

Order: the registry says that it is in deletion, which nothing undoes; its tombstone, the proof for
all that comes late; its states, its objects, its entry. A crash leaves what the redelivery deletes,
or `sweep`. What others put meanwhile the audit deletes (`leftovers`).
"""

from __future__ import annotations

from dataclasses import replace

from dormouse.errors import InvariantError, NotFoundError
from dormouse.features.requests.resolve_table import bound
from dormouse.ports import Services
from dormouse.requests import DeleteTable
from dormouse.stored.paths import table_prefix
from dormouse.tables.table import Table
from dormouse.tables.tombstones import Tombstone

DELETE_BATCH = 1000


def delete_table(services: Services, request: DeleteTable) -> None:
    """Delete the table; what a crash leaves of it is deleted by the redelivery, or by `sweep`.

    Raises:
        NotFoundError: no table of that name exists.
    """
    table = bound(services, request)
    if table is None:
        return
    try:
        delete_whole_table(services, table)
    except NotFoundError:
        if services.tables.get(table.id) is not None:
            raise  # else another delivery of the request has deleted it meanwhile


def delete_whole_table(services: Services, table: Table) -> None:
    """Delete a table's states, its objects and its registry entry, in an order that can resume.

    The states go first: from then on who looks is told that it is gone. Were it the objects, it
    would seem to be damaged.
    """
    table = services.tables.change(table.id, lambda t: replace(t, online=False, deleting=True))
    if services.tables.put_tombstone(Tombstone.of(table, services.clock.now_ms())) is None:
        raise InvariantError(f"table {table.id} is not in deletion, though it was just put there")
    for state in table.states():
        services.store(state).destroy()
    delete_table_objects(services, table.id)
    services.tables.delete(table)


def delete_table_objects(services: Services, table_id: str) -> None:
    """Delete all objects of an id that has a tombstone."""
    batch: list[str] = []
    for stored in services.storage.list(table_prefix(table_id)):
        batch.append(stored.path)
        if len(batch) == DELETE_BATCH:
            services.storage.delete(batch)
            batch = []
    services.storage.delete(batch)
