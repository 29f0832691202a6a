"""rename_table: a table gets another name; its id, rows and jobs stay as they are."""

from __future__ import annotations

from dataclasses import replace

from dormouse.errors import NotFoundError
from dormouse.features.requests.resolve_table import named
from dormouse.ports import Services
from dormouse.requests import RenameTable
from dormouse.tables.table import Table, check_name


def rename_table(services: Services, request: RenameTable) -> None:
    """Rename the table, unless this very request did already.

    Files dropped under the old name that no job has taken up yet are refused, and say so.

    Raises:
        InvalidRequestError: the new name is no good.
        AlreadyExistsError: another table has it.
        NotFoundError: no table of the old name exists, or it is being deleted.
    """
    new_name = check_name(request.new_name)
    table = named(services, request)
    now_ms = services.clock.now_ms()

    def renamed(kept: Table) -> Table:
        if kept.name != request.name:
            raise NotFoundError(f"table {request.name!r} is called {kept.name!r} by now")
        return replace(kept, name=new_name, renamed_ms=now_ms)

    services.tables.change(table.id, renamed, request_id=request.request_id)
