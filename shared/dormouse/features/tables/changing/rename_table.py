"""rename_table: change the name of a table; its id, rows and jobs stay the same."""

from __future__ import annotations

from dataclasses import replace

from dormouse.access.renames import check_table_rename
from dormouse.errors import NotFoundError
from dormouse.features.requests.resolve_table import resolve_table
from dormouse.features.tables.publications import publications
from dormouse.features.tables.published_names import check_published_names
from dormouse.messages.requests import RenameTable
from dormouse.messages.stages import OutboundMessage
from dormouse.ports.services import Services
from dormouse.tables.origins import Origin
from dormouse.tables.published import is_mirrored
from dormouse.tables.table import Table, check_name


def rename_table(services: Services, request: RenameTable) -> list[OutboundMessage]:
    """Rename the table, unless this request has renamed it before; its entry in Glue follows.

    Files dropped under the old name that no job has yet are refused, with the reason.

    Raises:
        InvalidRequestError: the new name is invalid, readers of Iceberg find another table under
            it, or access rules would let callers do more with the table.
        AlreadyExistsError: another table has the new name.
        NotFoundError: no table has the old name, or it is being deleted.
    """
    new_name = check_name(request.new_name)
    table = resolve_table(services, request)
    now_ms = services.clock.now_ms()

    def renamed(kept: Table) -> Table:
        if kept.name != request.name:
            raise NotFoundError(f"table {request.name!r} is called {kept.name!r} by now")
        check_table_rename(services.tables.access_rules(), kept.name, new_name)
        # Files that it ingested under this name are known under the next one, too.
        origins = tuple(dict.fromkeys((*kept.origins, Origin("", kept.name))))
        renamed = replace(kept, name=new_name, renamed_ms=now_ms, origins=origins)
        check_published_names(services, renamed)
        return renamed

    changed = services.tables.change(table.id, renamed, request_id=request.request_id)
    return publications(changed) if is_mirrored(changed.properties) else []
