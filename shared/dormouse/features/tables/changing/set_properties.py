"""set_properties and set_defaults: change the properties of a table, or of the instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dormouse.features.requests.resolve_table import resolve_table
from dormouse.features.tables.publications import publications
from dormouse.features.tables.published_names import check_published_names
from dormouse.messages.requests import SetDefaults, SetProperties
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports.services import Services
from dormouse.tables.properties import parse_settings, property_named
from dormouse.tables.table import Table, check_change, merge_settings


def set_properties(services: Services, request: SetProperties) -> list[OutboundMessage]:
    """Change the table's own properties, and plan its jobs again.

    Raises:
        InvalidRequestError: an unknown name, a bad value, one that never changes, filters or
            aggregations that do not fit the schema, or names for readers of Iceberg that another
            table has.
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    put, unset = _checked(request.properties, request.unset)
    table = resolve_table(services, request)
    defaults = services.tables.defaults()

    def change(kept: Table) -> Table:
        changed = kept.with_settings(merge_settings(kept.settings, put, unset), defaults)
        check_change(kept, changed)
        check_published_names(services, changed)
        return changed

    changed = services.tables.change(table.id, change, request_id=request.request_id)
    planned = OutboundMessage("table-changes", TableChanged(table.id))
    return [planned, *publications(table, changed)]


def set_defaults(services: Services, request: SetDefaults) -> None:
    """Change the instance's properties.

    Raises:
        InvalidRequestError: an unknown name, a bad value, or one that a table cannot take.
    """
    put, unset = _checked(request.properties, request.unset)
    kept = services.tables.defaults()
    wanted = merge_settings(kept, put, unset)
    for table in services.tables.all():
        changed = table.with_settings(table.settings, wanted)
        check_change(table, changed)
        check_published_names(services, changed)
    services.tables.change_defaults(lambda kept: merge_settings(kept, put, unset))


def _checked(
    properties: Mapping[str, object], unset: Sequence[str]
) -> tuple[dict[str, int | str], tuple[str, ...]]:
    return parse_settings(properties), tuple(property_named(name).name for name in unset)
