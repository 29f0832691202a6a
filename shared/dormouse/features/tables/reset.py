"""How a table is emptied: the registry counts a new generation, then the state begins it.

Order: the partitions it is to begin with, if they are new; the registry, which names them, and has
the schema of the generation; the state. Whoever finds the state behind begins the generation just
as it was asked for, so it does not matter who does. Jobs made in between find the state behind and
come again; those made before are over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from dormouse.errors import ContendedError, CorruptDataError, InvalidRequestError, NotFoundError
from dormouse.key_forms.stored import decode_key, encode_key
from dormouse.keys.ranges import Key
from dormouse.model.partitions import Partition, PartitionTree
from dormouse.model.state import TableState
from dormouse.model.transactions import ClearTable
from dormouse.ports import Services
from dormouse.schema.key_types import key_problem
from dormouse.schema.schema import Schema
from dormouse.state_store import accepted
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.json_objects import decode_stored, encode_stored
from dormouse.stored.paths import tree_path, tree_prefix
from dormouse.tables.evolution import replace_schema
from dormouse.tables.table import Table

LOST_HINT = "empty the table again, and give the split points"


@dataclass(frozen=True, slots=True)
class ResetOptions:
    """What a generation begins with: `schema`, and leaves that meet at `points`.

    None for what stays as it is.
    """

    schema: Schema | None = None
    points: Sequence[Key] | None = None


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of a tree: the keys at which its leaves meet, hexadecimal `encode_key`."""

    split_points: tuple[str, ...]


FORMAT = 2
_KIND = "a tree of partitions"


def reset_table(
    services: Services, table: Table, options: ResetOptions, *, request_id: str
) -> None:
    """Empty a table, which is known as `table`, once for a request.

    Raises:
        InvalidRequestError: the points do not ascend; the schema does not fit the properties, or
            partitions that are to stay do not fit the schema.
        NotFoundError: the table is gone, or being deleted.
        ContendedError: its row keys are not what they were when the points were read.
        CorruptDataError: its leaves are to stay, and which these are is lost.
    """
    given = "" if options.points is None else _keep(services, table, options.points)

    def next_generation(kept: Table) -> Table:
        if options.schema is None and kept.schema.key_types != table.schema.key_types:
            raise ContendedError(f"table {table.name!r} got another schema meanwhile")
        changed = _with_schema(kept, options.schema)
        # What stays is what an emptying before was to leave, if it died.
        tree = given or _staying(services, kept, changed.schema)
        now_ms = services.clock.now_ms()
        return replace(changed, generation=kept.generation + 1, reset_ms=now_ms, tree=tree)

    finish_reset(services, services.tables.change(table.id, next_generation, request_id=request_id))


def finish_reset(services: Services, table: Table) -> TableState:
    """Return a table's state; let it begin the generation that the registry counts, unless it has.

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
            hint=LOST_HINT,
        ) from error
    clear = ClearTable(table.generation, partitions, table.schema.key_types)
    (outcome,) = store.commit(clear, generation=state.generation)
    state = store.current()
    if state.generation < table.generation:
        accepted(outcome)
    return state


def is_for(generation: int, table: Table, state: TableState) -> bool:
    """Return whether what was asked for in a generation is still for the table.

    If the registry counts a later one, the table is as good as emptied, and its schema may be
    another: what is still in the state must not be read, or judged, by it.
    """
    return generation == state.generation and generation >= table.generation


def stale_trees(services: Services, table: Table, state: TableState, before_ms: int) -> list[str]:
    """Return the paths of trees kept before a time that no generation is to begin with any more."""
    awaited = tree_path(table.id, table.tree) if state.generation < table.generation else ""
    return [
        stored.path
        for stored in services.storage.list(tree_prefix(table.id))
        if stored.modified_ms < before_ms and stored.path != awaited
    ]


def _with_schema(kept: Table, schema: Schema | None) -> Table:
    """Return the table with the schema that its next generation is to have."""
    if schema is None:
        return kept
    fresh = replace_schema(kept.schema, schema, kept.properties)
    return replace(kept, schema=fresh, schema_generation=kept.generation + 1)


def _staying(services: Services, kept: Table, schema: Schema) -> str:
    """Return the id of a tree that is as the table's partitions are; empty if they just stay.

    With row keys of other types, those of now are fixed: one that is split meanwhile need not fit.

    Raises:
        InvalidRequestError: the partitions do not fit the row keys of the schema.
    """
    state = finish_reset(services, kept)
    types = schema.key_types
    if types == state.key_types:
        return ""
    points = [leaf.range.min for leaf in state.partitions.leaves() if leaf.range.min]
    for point in points:
        if fault := key_problem(point, types, fewest_parts=1):
            raise InvalidRequestError(
                f"the partitions of table {kept.name!r} cannot stay: where they meet is no key of "
                f"the new schema ({fault})",
                hint="delete the partitions, or give split points",
            )
    return _keep(services, kept, points)


def _keep(services: Services, table: Table, points: Sequence[Key]) -> str:
    """Keep a tree; give its id, which is new: of two deliveries, the one that counts names its own.

    A tree may be larger than an item of the registry.
    """
    PartitionTree.from_split_points(points)  # refused before anything is done
    tree = services.ids.new()
    stored = _Stored(tuple(encode_key(point).hex() for point in points))
    path = tree_path(table.id, tree)
    services.storage.put(path, encode_stored(_KIND, FORMAT, path, stored))
    return tree


def _partitions(services: Services, table: Table, state: TableState) -> tuple[Partition, ...]:
    """Return the partitions with which a generation begins.

    Raises:
        NotFoundError: they are not kept any more.
    """
    tree = state.partitions
    if table.tree:
        path = tree_path(table.id, table.tree)
        body = services.storage.get(path)
        with raise_corrupt(f"{path} is no tree of partitions", hint=LOST_HINT):
            points = decode_stored(_KIND, FORMAT, path, body, _Stored).split_points
            keys = [decode_key(bytes.fromhex(point)) for point in points]
            tree = PartitionTree.from_split_points(keys)
    return tuple(tree.by_id.values())
