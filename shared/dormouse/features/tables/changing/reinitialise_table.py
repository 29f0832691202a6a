"""reinitialise_table: remove all rows of a table, and perhaps replace its partitions and schema.

Its old shards become garbage, which `sweep` finds; those of a tagged version stay while it has the
tag.
"""

from __future__ import annotations

from msgspec import UnsetType

from dormouse.features.requests.resolve_table import resolve_live_table
from dormouse.features.tables.reset import ResetOptions, finish_reset, reset_table
from dormouse.features.tables.tags import release_tags
from dormouse.key_forms.codec import KeyCodec
from dormouse.messages.requests import ReinitialiseTable
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports.services import Services
from dormouse.schema.schema import Schema
from dormouse.tables.table import Table


def reinitialise_table(services: Services, request: ReinitialiseTable) -> list[OutboundMessage]:
    """Reset the table once, however often the request is delivered.

    Raises:
        InvalidRequestError: a split point or the schema is invalid, or the present partitions are
            to stay and do not fit the schema.
        NotFoundError: no table has that name, or it is being deleted.
        ContendedError: the table got another schema meanwhile; retry the message.
        CorruptDataError: the present partitions are to stay, but their stored form is lost.
    """
    table = resolve_live_table(services, request)
    if request.request_id in table.applied_requests:  # the first attempt may have crashed
        finish_reset(services, table)
    else:
        reset_table(services, table, _reset_options(table, request), request_id=request.request_id)
    if request.release_tags:
        release_tags(services, table)
    return [OutboundMessage("table-changes", TableChanged(table.id))]


def _reset_options(table: Table, request: ReinitialiseTable) -> ResetOptions:
    given = request.schema
    schema = None if isinstance(given, UnsetType) else Schema.from_json(given)
    points = KeyCodec(schema or table.schema).split_points_from_json(
        request.split_points, strings_base64=request.strings_base64
    )
    replaces = points or request.delete_partitions
    return ResetOptions(schema, points if replaces else None)
