"""set_online: put a table online, or offline, where it is neither compacted nor split."""

from __future__ import annotations

from dataclasses import replace

from dormouse.features.requests.resolve_table import resolve_table
from dormouse.messages.requests import SetOnline
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports.services import Services


def set_online(services: Services, request: SetOnline) -> list[OutboundMessage]:
    """Change the table; jobs that became due while it was offline are planned once it is online.

    Raises:
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    table = resolve_table(services, request)
    services.tables.change(
        table.id, lambda t: replace(t, online=request.online), request_id=request.request_id
    )
    return [OutboundMessage("table-changes", TableChanged(table.id))] if request.online else []
