"""alter_schema: add, drop and rename columns of a table, and set units; no shard is rewritten.

A change is checked against the schema that it replaces: of two concurrent changes, the second sees
the result of the first. Shards written by jobs that began before stay correct, since columns are
found by their ids.
"""

from __future__ import annotations

from dataclasses import replace

from dormouse.access.renames import check_column_renames
from dormouse.errors import NotFoundError
from dormouse.features.requests.resolve_table import resolve_table
from dormouse.features.tables.publications import publications
from dormouse.messages.requests import AlterSchema
from dormouse.messages.stages import OutboundMessage
from dormouse.ports.services import Services
from dormouse.schema.schema import parse_field
from dormouse.tables.evolution import Alteration, apply_alteration
from dormouse.tables.table import Table


def alter_schema(services: Services, request: AlterSchema) -> list[OutboundMessage]:
    """Change the schema; a published table is published with it.

    Raises:
        NotFoundError: no table has that name, or it is being deleted.
        InvalidRequestError: a change is not possible, or would show a column that access rules
            hide; nothing is changed.
    """
    table = resolve_table(services, request)
    alteration = Alteration(
        add=tuple(parse_field(body, f"add[{i}]") for i, body in enumerate(request.add)),
        drop=request.drop,
        rename=request.rename,
        units=request.units,
    )

    def change(kept: Table) -> Table:
        if kept.deleting:
            raise NotFoundError(f"table {kept.name!r} is being deleted")
        if request.rename:
            check_column_renames(services.tables.access_rules(), kept.name, request.rename)
        return replace(kept, schema=apply_alteration(kept.schema, alteration, kept.properties))

    changed = services.tables.change(table.id, change, request_id=request.request_id)
    return publications(changed)
