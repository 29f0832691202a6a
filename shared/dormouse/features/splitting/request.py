"""split_partitions: leaves are split because somebody asks, not because the table changed.

A message lost is repaired by the next planning where a leaf has too many rows; that of a forced
split is sent again when the request comes again. If that is late, the halves are split, too.
"""

from __future__ import annotations

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.planning.plan_table import splits
from dormouse.features.planning.splitting import FEWEST_ROWS, fewest_rows, splits_due
from dormouse.features.requests.resolve_table import living
from dormouse.features.requests.work import Begun, Splits
from dormouse.model.state import TableState
from dormouse.ports import Services
from dormouse.requests import SplitPartitions


def split_partitions(services: Services, request: SplitPartitions) -> Begun:
    """Have the leaves split that are to be, also of a table that is offline.

    Raises:
        NotFoundError: no such table or partition exists, or the table is being deleted.
        InvalidRequestError: the partition is split already, or has too few rows.
    """
    table = living(services, request)
    state = services.store(table).current()
    fewest = fewest_rows(table.properties, forced=request.forced)
    if request.partition:
        _check_leaf(state, request.partition, fewest)
        wanted = [request.partition]
    else:
        wanted = splits_due(state, fewest)
    messages = list(splits(table, state, wanted, forced=request.forced))
    if not messages:
        return Begun()
    return Begun(messages, Splits(state.generation, tuple(wanted), request.forced))


def _check_leaf(state: TableState, partition: str, fewest: int) -> None:
    if partition not in state.partitions:
        raise NotFoundError(
            f"there is no partition {partition!r}", hint="a report of the table shows its leaves"
        )
    if not state.partitions.get(partition).is_leaf:
        raise InvalidRequestError(f"partition {partition!r} is split already")
    rows = state.rows_in(partition)
    if rows < fewest:
        enough = fewest == FEWEST_ROWS
        raise InvalidRequestError(
            f"partition {partition!r} has {rows:,} rows, and is split from {fewest:,} on",
            hint="" if enough else "a forced split does not look at the number",
        )
