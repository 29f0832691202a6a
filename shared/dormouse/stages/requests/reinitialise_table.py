"""reinitialise_table: a table loses its rows, and perhaps its partitions, and goes on.

Order: the registry counts a new generation, then the state begins it. Jobs made in between find
the state behind and come again. The shards are garbage; `sweep` finds them.
"""

from __future__ import annotations

from dataclasses import replace

from dormouse.errors import InvalidRequestError
from dormouse.messages import Outgoing, TableChanged
from dormouse.model.partitions import Partition, PartitionTree
from dormouse.model.tables import Table
from dormouse.model.transactions import ClearTable
from dormouse.ports import Services
from dormouse.requests import ReinitialiseTable
from dormouse.stages.requests.json_keys import split_points_of_json
from dormouse.stages.requests.named import named
from dormouse.statestore.protocol import accepted


def reinitialise_table(services: Services, request: ReinitialiseTable) -> list[Outgoing]:
    """Empty the table once, however often the request comes.

    Raises:
        InvalidRequestError: a split point is no good, or partitions are to be kept and given.
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    if request.keep_partitions and request.split_points:
        raise InvalidRequestError(
            "the partitions cannot be kept and be given by split points",
            hint='give split points with "keep_partitions": false',
        )
    table = named(services, request)
    points = split_points_of_json(
        table.schema, request.split_points, strings_base64=request.strings_base64
    )

    def next_generation(kept: Table) -> Table:
        now_ms = services.clock.now_ms()
        return replace(kept, generation=kept.generation + 1, emptied_ms=now_ms)

    table = services.tables.change(table.id, next_generation, request_id=request.request_id)
    empty(services, table, () if request.keep_partitions else _tree(points))
    return [Outgoing("table-changes", TableChanged(table.id))]


def empty(services: Services, table: Table, partitions: tuple[Partition, ...] = ()) -> None:
    """Let the state begin the generation that the registry counts, unless it has.

    Its partitions stay if none are given.
    """
    store = services.store(table)
    state = store.current()
    if state.generation < table.generation:
        kept = tuple(state.partitions.by_id.values())
        clear = ClearTable(table.generation, partitions or kept)
        (outcome,) = store.commit(clear, generation=state.generation)
        if store.current().generation < table.generation:
            accepted(outcome)


def _tree(points: list[tuple[int | str | bytes, ...]]) -> tuple[Partition, ...]:
    return tuple(PartitionTree.from_split_points(points).by_id.values())
