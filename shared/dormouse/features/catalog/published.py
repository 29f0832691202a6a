"""The tables that the catalog has: those that are published, and what is published of each now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.iceberg.previous import parse_metadata
from dormouse.iceberg.rest import CatalogError, shown
from dormouse.ports import Services
from dormouse.publications import LOST_PUBLICATION
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


def table_names(services: Services) -> list[str]:
    """Return the names of the published tables. Tables whose entry is damaged are not among them.

    One that was set to be published moments ago may have nothing to be loaded yet.
    """
    tables, _ = services.tables.list_readable()
    return [each.name for each in tables if is_published(each.properties) and not each.deleting]


def find_metadata(services: Services, name: str) -> tuple[Table, str]:
    """Return a published table, and the path of the metadata that its readers find now.

    Raises:
        CatalogError: there is no such table, or nothing is published of it.
        CorruptDataError: its entry, or the record of what is published, is damaged.
    """
    table = services.tables.named(name)
    if table is None or table.deleting:
        raise _no_such_table(f"there is no table {shown(name)}")
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


def load_metadata(services: Services, name: str) -> Loaded:
    """Return a published table with its metadata. What was newest may be deleted, at the latest an
    hour later, before it is read: then there is newer metadata.

    Raises: as `find_metadata`, and
        CorruptDataError: the metadata is damaged or lost.
    """
    for _ in range(ATTEMPTS):
        table, path = find_metadata(services, name)
        try:
            content = services.storage.get(path)
        except NotFoundError:
            continue
        return Loaded(table, f"{services.storage.uri.rstrip('/')}/{path}", parse_metadata(content))
    raise CorruptDataError(
        f"the metadata published of table {name!r} is lost",
        hint=LOST_PUBLICATION.replace("NAME", name),
    )


def _no_such_table(message: str, hint: str = "") -> CatalogError:
    return CatalogError(404, "NoSuchTableException", message, hint=hint)
