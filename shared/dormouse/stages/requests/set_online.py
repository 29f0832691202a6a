"""set_online: a table goes online, or offline: then it is neither compacted nor split."""

from __future__ import annotations

from dataclasses import replace

from dormouse.errors import NotFoundError
from dormouse.messages import Outgoing, SetOnline, TableChanged
from dormouse.ports import Services
from dormouse.stages.requests.named import named


def set_online(services: Services, request: SetOnline) -> list[Outgoing]:
    """Change it; what became due while it was offline is planned once it is online.

    Raises:
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    table = named(services, request.name)
    if table.deleting:
        raise NotFoundError(f"table {request.name!r} is being deleted")
    services.tables.update(replace(table, online=request.online))
    return [Outgoing("table-changes", TableChanged(table.id))] if request.online else []
