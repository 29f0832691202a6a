"""What people decide about what a check of a table found."""

from __future__ import annotations

from collections.abc import Sequence

from dormouse.client.access import TableAccess
from dormouse.errors import NotFoundError
from dormouse.features.checking.disputes import acknowledge


def acknowledge_disputes(handle: TableAccess, shards: Sequence[str]) -> None:
    """Resolve the disputes over some shards of a table: what nothing references is then collected.

    Raises:
        NotFoundError: the table was deleted.
        InvalidRequestError: one of them is not disputed; nothing was resolved.
        ContendedError: a dispute was resolved, or another one raised, just then.
    """
    table = handle.services.table(handle.table.id)
    if table is None:
        raise NotFoundError(f"table {handle.table.name!r} was deleted")
    handle.queues.send(acknowledge(handle.services, table, shards))
