"""What follows from a change of a table for its readers of Iceberg."""

from __future__ import annotations

from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.tables.published import is_published
from dormouse.tables.table import Table


def publications(*tables: Table) -> list[OutboundMessage]:
    """Return the message that publishes a changed table, or withdraws what is published of it.

    `tables` are the table before and after: a change may turn publishing off.
    """
    if not any(is_published(table.properties) for table in tables):
        return []
    return [OutboundMessage("iceberg-changes", TableChanged(tables[0].id))]
