"""What a statement in SQL reads and is given: tables as its caller may see them, parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dormouse.access.doors import allowed_table
from dormouse.access.visible import VisibleTable
from dormouse.errors import InvalidRequestError
from dormouse.features.versions.as_of import read_as_of
from dormouse.model.versions.as_of import parse_as_of
from dormouse.ports.services import Services
from dormouse.tables.table import table_not_found

if TYPE_CHECKING:
    from dormouse.model.state import TableState


def open_table(
    services: Services, principal: str | None, name: str, as_of: str
) -> tuple[VisibleTable, TableState]:
    """Open a table for a caller of this process; by default, for the process itself."""
    version = parse_as_of(as_of) if as_of else None
    if principal is not None:
        seen = allowed_table(services, principal, name, "read")
        table, state = read_as_of(services, seen.table, version)
        return VisibleTable.of(table, seen.permission), state
    found = services.tables.named(name)
    if found is None or found.deleting:
        raise table_not_found(name, services.tables.list_readable()[0])
    table, state = read_as_of(services, found, version)
    return VisibleTable.whole(table), state


def named_parameters(
    parameters: Sequence[object] | Mapping[str, object] | None,
) -> dict[str, object]:
    """Return parameters by name; those of a sequence are called 1, 2 and so on."""
    if parameters is None:
        return {}
    if isinstance(parameters, Mapping):
        return {str(name): value for name, value in parameters.items()}
    if isinstance(parameters, str | bytes):
        raise InvalidRequestError("parameters are a list of values, or values by their names")
    return {str(number): value for number, value in enumerate(parameters, start=1)}
