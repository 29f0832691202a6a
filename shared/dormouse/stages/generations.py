"""How a table is emptied: the registry counts a new generation, then the state begins it.

Order: the partitions it is to begin with, if they are new; the registry, which names them; the
state. Whoever finds the state behind begins the generation just as it was asked for, so it does not
matter who does. Jobs made in between find the state behind and come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import msgspec

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.model.decoding import decode_json, told_as_corrupt
from dormouse.model.keys import Key, decode_key, encode_key
from dormouse.model.names import tree_path, tree_prefix
from dormouse.model.partitions import Partition, PartitionTree
from dormouse.model.state import TableState
from dormouse.model.tables import Table
from dormouse.model.transactions import ClearTable
from dormouse.ports import Services
from dormouse.statestore.protocol import accepted

LOST = "empty the table again, and give the split points"


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of a tree: the keys at which its leaves meet, hexadecimal `encode_key`."""

    split_points: tuple[str, ...]
    v: Literal[1] = 1


def empty(
    services: Services, table: Table, points: Sequence[Key] | None, *, request_id: str
) -> None:
    """Empty a table once for a request: its leaves meet at `points` then, or stay if that is None.

    Raises:
        InvalidRequestError: the points do not ascend.
        NotFoundError: the table is gone, or being deleted.
        CorruptDataError: its leaves are to stay, and which these are is lost.
    """
    tree = "" if points is None else _keep(services, table, points)

    def next_generation(kept: Table) -> Table:
        if points is None:  # what stays is what an emptying before was to leave, if it died
            begun(services, kept)
        now_ms = services.clock.now_ms()
        return replace(kept, generation=kept.generation + 1, emptied_ms=now_ms, tree=tree)

    begun(services, services.tables.change(table.id, next_generation, request_id=request_id))


def begun(services: Services, table: Table) -> TableState:
    """Give a table's state; let it begin the generation that the registry counts, unless it has.

    Raises:
        CorruptDataError: with which partitions it is to begin is lost.
    """
    store = services.store(table)
    state = store.current()
    if state.generation >= table.generation:
        return state
    try:
        partitions = _partitions(services, table, state)
    except NotFoundError as error:
        state = store.current()
        if state.generation >= table.generation:  # long ago; an audit has deleted them just now
            return state
        raise CorruptDataError(
            f"the partitions of generation {table.generation} of table {table.name!r} are gone",
            hint=LOST,
        ) from error
    clear = ClearTable(table.generation, partitions)
    (outcome,) = store.commit(clear, generation=state.generation)
    state = store.current()
    if state.generation < table.generation:
        accepted(outcome)
    return state


def spent_trees(services: Services, table: Table, state: TableState, before_ms: int) -> list[str]:
    """Give the paths of trees kept before a time that no generation is to begin with any more."""
    awaited = tree_path(table.id, table.tree) if state.generation < table.generation else ""
    return [
        stored.path
        for stored in services.storage.list(tree_prefix(table.id))
        if stored.modified_ms < before_ms and stored.path != awaited
    ]


def _keep(services: Services, table: Table, points: Sequence[Key]) -> str:
    """Keep a tree; give its id, which is new: of two deliveries, the one that counts names its own.

    A tree may be larger than an item of the registry.
    """
    PartitionTree.from_split_points(points)  # refused before anything is done
    tree = services.ids.new()
    stored = _Stored(tuple(encode_key(point).hex() for point in points))
    services.storage.put(tree_path(table.id, tree), msgspec.json.encode(stored))
    return tree


def _partitions(services: Services, table: Table, state: TableState) -> tuple[Partition, ...]:
    """Give the partitions with which a generation begins.

    Raises:
        NotFoundError: they are not kept any more.
    """
    tree = state.partitions
    if table.tree:
        path = tree_path(table.id, table.tree)
        body = services.storage.get(path)
        with told_as_corrupt(f"{path} is no tree of partitions", hint=LOST):
            points = decode_json(body, _Stored).split_points
            keys = [decode_key(bytes.fromhex(point)) for point in points]
            tree = PartitionTree.from_split_points(keys)
    return tuple(tree.by_id.values())
