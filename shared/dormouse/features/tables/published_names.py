"""Names under which readers of Iceberg find tables: no two tables may have one in common."""

from __future__ import annotations

from dormouse.errors import InvalidRequestError
from dormouse.iceberg.serving.views import PARTS, published_name
from dormouse.ports.services import Services
from dormouse.tables.published import glue_name, is_mirrored, is_published
from dormouse.tables.table import Table


def check_published_names(services: Services, table: Table) -> None:
    """Check that readers find a table, as it is to be, under names of its own.

    A table with row rules has two: its own is that of a view, and its stored rows have another.

    Raises:
        InvalidRequestError: another table has one of them, or has it in Glue, where case does not
            count; or Glue can have no such name, or this instance no Glue.
    """
    if is_mirrored(table.properties):
        _check_glue(services, table)
    parts = table.name + PARTS
    if _has_parts(table) and services.tables.named(parts) is not None:
        raise _taken(table.name, parts)
    name = table.name.removesuffix(PARTS)
    other = services.tables.named(name) if name != table.name else None
    if other is not None and other.id != table.id and _has_parts(other):
        raise _taken(name, table.name)


def _check_glue(services: Services, table: Table) -> None:
    if services.mirror is None:
        raise InvalidRequestError(
            "an instance in a folder has no Glue", hint="leave iceberg_glue off"
        )
    own = glue_name(published_name(table))
    tables, _ = services.tables.list_readable()
    for other in tables:
        if other.id == table.id or not is_mirrored(other.properties):
            continue
        if published_name(other).lower() == own:
            raise InvalidRequestError(
                f"tables {table.name!r} and {other.name!r} would both be {own!r} in Glue, where "
                "names are in lower case",
                hint="rename one of them, or leave iceberg_glue off",
            )


def _has_parts(table: Table) -> bool:
    return is_published(table.properties) and published_name(table) != table.name


def _taken(name: str, parts: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"readers of Iceberg find the stored rows of table {name!r} under the name {parts!r}, "
        "which would be that of another table too",
        hint=f"rename the table {parts!r}, or give it another name from the start; or set "
        f"iceberg=off for {name!r}",
    )
