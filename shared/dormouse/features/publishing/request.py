"""publish_iceberg: publish a table again, from its state, on request."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from dormouse.errors import ContendedError, CorruptDataError, InvalidRequestError
from dormouse.features.requests.resolve_table import resolve_live_table
from dormouse.messages.requests import PublishIceberg
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports.services import Services
from dormouse.tables.published import is_published

ATTEMPTS = 8
"""How often a record is marked again because a publisher was quicker."""


def request_publication(services: Services, request: PublishIceberg) -> list[OutboundMessage]:
    """Request what is new of a table, or all of it, to be published.

    Raises:
        InvalidRequestError: the table is not published.
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    table = resolve_live_table(services, request)
    if not is_published(table.properties):
        raise InvalidRequestError(
            f"table {table.name!r} is not published",
            hint=f"`dormouse table set {table.name} iceberg=on` publishes it",
        )
    if request.all:
        publish_again(services, table.id, "all")
    return [OutboundMessage("iceberg-changes", TableChanged(table.id))]


def publish_again(services: Services, table_id: str, what: Literal["all", "purged"]) -> bool:
    """Let the next publication of a table write more than what is new; return whether there is a
    record of one.

    A record that is damaged is deleted: the next publication begins another. Readers of what was
    published before may then find shards deleted.

    Raises:
        ContendedError: publishers were quicker each time.
    """
    for _ in range(ATTEMPTS):
        try:
            record = services.publications.get(table_id)
        except CorruptDataError:
            if what != "all":
                raise
            services.publications.delete(table_id)
            return False
        if record is None or not record.metadata:
            return False
        wanted = "purged" if "purged" in (what, record.again) else what
        if services.publications.replace(table_id, record, replace(record, again=wanted)):
            return True
    raise ContendedError(f"publishers keep changing the record of table {table_id}; try again")
