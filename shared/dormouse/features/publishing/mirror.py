"""Let the entry of a table in Glue name the metadata that is published.

The record of the publication comes first and is right; Glue repeats it for AWS's engines. Each step
is recorded, so a run that is cut off is continued by the next: the name before the entry is made,
what it names after it was put, no name after it was deleted.

The entry is read before the record is looked at again, and replaced only as it was read. So a slow
publisher never puts older metadata over newer.
"""

from __future__ import annotations

from dataclasses import replace

from dormouse.errors import AlreadyExistsError, ContendedError
from dormouse.iceberg.serving.hive_types import hive_type
from dormouse.iceberg.serving.views import published_name
from dormouse.model.versions.publications import PublicationRecord
from dormouse.ports.publications import Mirror, MirroredTable
from dormouse.ports.services import Services, root_uri
from dormouse.stored.paths import iceberg_prefix
from dormouse.tables.published import glue_name, is_mirrored
from dormouse.tables.table import Table

ATTEMPTS = 8
"""How many steps one run makes, also in vain because another process was quicker."""


def follow_in_glue(services: Services, table_id: str) -> None:
    """Put, replace or delete the entry of a table, as what is published of it asks.

    Raises:
        AlreadyExistsError: Glue has an entry of that name which is not of this table.
        ContendedError: other publishers were quicker each time.
    """
    mirror = services.mirror
    for _ in range(ATTEMPTS):
        record = services.publications.get(table_id) if mirror is not None else None
        if mirror is None or record is None:
            return
        table = services.tables.get(table_id)
        wanted = _wanted_name(mirror, table, record)
        if record.mirror not in ("", wanted):
            entry = mirror.get(record.mirror)
            if entry is not None and entry.table_id == table_id:
                mirror.delete(record.mirror)
            done = replace(record, mirror="", mirrored="")
        elif not wanted or table is None or record.mirrored == record.metadata:
            return
        elif not record.mirror:
            done = replace(record, mirror=wanted)
        elif _put(services, mirror, table, record):
            done = replace(record, mirrored=record.metadata)
        else:
            continue
        services.publications.replace(table_id, record, done)
    raise ContendedError(f"others keep changing the entry of table {table_id} in Glue; try again")


def _wanted_name(mirror: Mirror, table: Table | None, record: PublicationRecord) -> str:
    """Return the name of the entry that there should be; empty if there should be none."""
    if table is None or table.deleting or not is_mirrored(table.properties):
        return ""
    return glue_name(published_name(table)) if mirror.database and record.metadata else ""


def _put(services: Services, mirror: Mirror, table: Table, record: PublicationRecord) -> bool:
    """Put the entry; return False if it, or the record, is another by now.

    Raises:
        AlreadyExistsError: there is an entry of another table.
    """
    old = mirror.get(record.mirror)
    if services.publications.get(table.id) != record:
        return False
    if old is not None and old.table_id != table.id:
        raise AlreadyExistsError(
            f"Glue has a table {mirror.database}.{record.mirror} that is not an entry of table "
            f"{table.name!r}, and was left as it is",
            hint="delete it there, rename this table, or set iceberg_glue=off",
        )
    root = root_uri(services.storage)
    wanted = MirroredTable(
        table.id,
        f"{root}/{record.metadata}",
        f"{root}/{iceberg_prefix(table.id).rstrip('/')}",
        [(field.name.lower(), hive_type(field.type)) for field in table.schema.fields],
    )
    return (old is not None and old.metadata == wanted.metadata) or mirror.put(
        record.mirror, wanted, old
    )
