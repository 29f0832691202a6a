"""Acknowledge disputed shards that a check has found."""

from __future__ import annotations

from collections.abc import Sequence

from dormouse.client.table import TableHandle
from dormouse.errors import NotFoundError
from dormouse.features.checking.disputes import acknowledge


def acknowledge_disputes(handle: TableHandle, shards: Sequence[str]) -> None:
    """Resolve the disputes over some shards of a table; those unreferenced are then deleted.

    Raises:
        NotFoundError: the table was deleted.
        InvalidRequestError: a shard is not disputed; nothing was resolved.
        ContendedError: a dispute was resolved or raised at the same time.
    """
    table = handle.services.table(handle.table.id)
    if table is None:
        raise NotFoundError(f"table {handle.table.name!r} was deleted")
    handle.queues.send(acknowledge(handle.services, table, shards))
