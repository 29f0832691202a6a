"""reinitialise_table: a table loses its rows, perhaps its partitions and schema, and goes on.

Its shards are garbage then; `sweep` finds them.
"""

from __future__ import annotations

from msgspec import UnsetType

from dormouse.features.requests.resolve_table import living
from dormouse.features.tables.reset import ResetOptions, finish_reset, reset_table
from dormouse.key_forms.codec import KeyCodec
from dormouse.messages import OutboundMessage, TableChanged
from dormouse.ports import Services
from dormouse.requests import ReinitialiseTable
from dormouse.schema.schema import Schema
from dormouse.tables.table import Table


def reinitialise_table(services: Services, request: ReinitialiseTable) -> list[OutboundMessage]:
    """Empty the table once, however often the request comes.

    Raises:
        InvalidRequestError: a split point or the schema is no good, or partitions that are to stay
            do not fit the schema.
        NotFoundError: no table of that name exists, or it is being deleted.
        ContendedError: the table got another schema meanwhile; the message should come again.
        CorruptDataError: partitions are to stay, and which these are is lost.
    """
    table = living(services, request)
    if request.request_id in table.applied_requests:  # its first attempt may have crashed since
        finish_reset(services, table)
    else:
        reset_table(services, table, _reset_options(table, request), request_id=request.request_id)
    return [OutboundMessage("table-changes", TableChanged(table.id))]


def _reset_options(table: Table, request: ReinitialiseTable) -> ResetOptions:
    given = request.schema
    schema = None if isinstance(given, UnsetType) else Schema.from_json(given)
    points = KeyCodec(schema or table.schema).split_points_from_json(
        request.split_points, strings_base64=request.strings_base64
    )
    replaces = points or request.delete_partitions
    return ResetOptions(schema, points if replaces else None)
