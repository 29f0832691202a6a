"""delete_table: a table with all its rows → gone."""

from __future__ import annotations

from dataclasses import replace

from dormouse.model.names import table_prefix
from dormouse.model.tables import Table
from dormouse.ports import Services
from dormouse.requests import DeleteTable
from dormouse.stages.requests.named import bound

DELETE_BATCH = 1000


def delete_table(services: Services, request: DeleteTable) -> None:
    """Delete the table; what a crash leaves of it is deleted by the redelivery, or by `sweep`.

    Raises:
        NotFoundError: no table of that name exists.
    """
    table = bound(services, request)
    if table is not None:
        delete_all_of(services, table)


def delete_all_of(services: Services, table: Table) -> None:
    """Delete a table's state, its objects and its registry entry, in an order that can resume.

    The state goes first: from then on who looks is told that it is gone. Were it the objects, it
    would seem to be damaged.
    """
    services.tables.change(table.id, lambda t: replace(t, online=False, deleting=True))
    services.store(table).destroy()
    batch: list[str] = []
    for stored in services.storage.list(table_prefix(table.id)):
        batch.append(stored.path)
        if len(batch) == DELETE_BATCH:
            services.storage.delete(batch)
            batch = []
    services.storage.delete(batch)
    services.tables.delete(table)
