"""The tables and views that the catalog has: what is published, and under which names.

A table with row rules is in the catalog as the table of its stored rows, and as a view of its own
name, if SQL can say the rules. Readers open its files, which hold all columns: so only tables are
listed of which the access rules of the instance hide nothing from the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dormouse.access.doors import find_table, visible_tables
from dormouse.errors import CorruptDataError, ForbiddenError, NotFoundError
from dormouse.iceberg.previous import parse_metadata
from dormouse.iceberg.serving.rest import CatalogError, shown
from dormouse.iceberg.serving.views import PARTS, View, published_name, view_of, why_no_view
from dormouse.ports.publications import LOST_PUBLICATION
from dormouse.ports.services import Services, root_uri
from dormouse.tables.published import is_published
from dormouse.tables.table import Table

ATTEMPTS = 3
"""How often the metadata is looked for, if what was newest is deleted while it is read."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A table, and the metadata that its readers find now, at a URI."""

    table: Table
    location: str
    metadata: Mapping[str, Any]


def table_names(services: Services, principal: str) -> list[str]:
    """Return the names of the published tables that a caller may read. Tables whose entry is
    damaged are not among them.

    One that was set to be published moments ago may have nothing to be loaded yet.
    """
    return [published_name(each) for each in _listed(services, principal)]


def view_names(services: Services, principal: str) -> list[str]:
    """Return the names of the views of such tables."""
    return [each.name for each in _listed(services, principal) if view_of(each) is not None]


def _listed(services: Services, principal: str) -> list[Table]:
    seen = visible_tables(services, principal)
    readable = (each.table for each in seen if each.is_whole and "read" in each.permission.verbs)
    return [table for table in readable if _is_listed(table)]


def _readable(services: Services, principal: str, name: str) -> Table | None:
    """Return a table that a caller may read whole; None if there is none, or none for this caller.

    Raises:
        ForbiddenError: the caller may not read it, or not all of its columns.
        CorruptDataError: the entry of the table, or the access rules are damaged.
    """
    found = find_table(services, principal, name, "read")
    if found is not None and not found.is_whole:
        raise ForbiddenError(
            f"rules about table {name!r} hide columns from you, and its files hold all it ever had",
            hint="query it by a service of the instance",
        )
    return None if found is None else found.table


def find_view(services: Services, principal: str, name: str) -> tuple[Table, View]:
    """Return the view of a name, and the table that it is of.

    Raises:
        CatalogError: there is no such view.
        ForbiddenError: the caller may not read the table, or not all of its columns.
        CorruptDataError: the entry of the table is damaged.
    """
    table = _readable(services, principal, name)
    if table is None or not _is_listed(table):
        raise CatalogError(404, "NoSuchViewException", f"there is no view {shown(name)}")
    view = view_of(table)
    if view is None:
        reason = why_no_view(table) or f"{shown(name)} is a table, not a view"
        raise CatalogError(404, "NoSuchViewException", reason)
    return table, view


def find_metadata(services: Services, principal: str, name: str) -> tuple[Table, str]:
    """Return a published table, and the path of the metadata that its readers find now.

    Raises:
        CatalogError: there is no such table, or nothing is published of it.
        ForbiddenError: the caller may not read it, or not all of its columns.
        CorruptDataError: its entry, or the record of what is published, is damaged.
    """
    table = _readable(services, principal, name) or _with_parts(services, principal, name)
    if table is None or table.deleting:
        raise _no_such_table(f"there is no table {shown(name)}")
    if is_published(table.properties) and name != (parts := published_name(table)):
        hint = f"its stored rows, before its filters and aggregations, are the table {parts!r}"
        raise _no_such_table(f"{shown(name)} is not a table, but a view or none", hint)
    if not is_published(table.properties):
        hint = f"`dormouse table set {table.name} iceberg=on` publishes it"
        raise _no_such_table(f"table {table.name!r} is not published", hint)
    record = services.publications.get(table.id)
    if record is None or not record.metadata:
        hint = (
            "it will be with its next change, or in some minutes; "
            f"`dormouse iceberg publish {table.name}` does it now"
        )
        raise _no_such_table(f"nothing is published of table {table.name!r} yet", hint)
    return table, record.metadata


def _with_parts(services: Services, principal: str, name: str) -> Table | None:
    """Return the table whose stored rows have a name."""
    own = name.removesuffix(PARTS)
    found = _readable(services, principal, own) if own != name else None
    is_named = found is not None and _is_listed(found) and published_name(found) == name
    return found if is_named else None


def _is_listed(table: Table) -> bool:
    return is_published(table.properties) and not table.deleting


def load_metadata(services: Services, principal: str, name: str) -> Loaded:
    """Return a published table with its metadata. What was newest may be deleted, at the latest an
    hour later, before it is read: then there is newer metadata.

    Raises: as `find_metadata`, and
        CorruptDataError: the metadata is damaged or lost.
    """
    for _ in range(ATTEMPTS):
        table, path = find_metadata(services, principal, name)
        try:
            content = services.storage.get(path)
        except NotFoundError:
            continue
        return Loaded(table, f"{root_uri(services.storage)}/{path}", parse_metadata(content))
    raise CorruptDataError(
        f"the metadata published of table {name!r} is lost",
        hint=LOST_PUBLICATION.replace("NAME", name),
    )


def _no_such_table(message: str, hint: str = "") -> CatalogError:
    return CatalogError(404, "NoSuchTableException", message, hint=hint)
