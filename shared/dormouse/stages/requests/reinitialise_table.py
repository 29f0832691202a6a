"""reinitialise_table: a table loses its rows, and perhaps its partitions, and goes on.

Its shards are garbage then; `sweep` finds them.
"""

from __future__ import annotations

from dormouse.errors import InvalidRequestError
from dormouse.messages import Outgoing, TableChanged
from dormouse.ports import Services
from dormouse.requests import ReinitialiseTable
from dormouse.stages.generations import empty
from dormouse.stages.requests.json_keys import split_points_of_json
from dormouse.stages.requests.named import living


def reinitialise_table(services: Services, request: ReinitialiseTable) -> list[Outgoing]:
    """Empty the table once, however often the request comes.

    Raises:
        InvalidRequestError: a split point is no good, or partitions are to be kept and given.
        NotFoundError: no table of that name exists, or it is being deleted.
        CorruptDataError: partitions are to be kept, and which these are is lost.
    """
    if request.keep_partitions and request.split_points:
        raise InvalidRequestError(
            "the partitions cannot be kept and be given by split points",
            hint='give split points with "keep_partitions": false',
        )
    table = living(services, request)
    points = split_points_of_json(
        table.schema, request.split_points, strings_base64=request.strings_base64
    )
    wanted = None if request.keep_partitions else points
    empty(services, table, wanted, request_id=request.request_id)
    return [Outgoing("table-changes", TableChanged(table.id))]
