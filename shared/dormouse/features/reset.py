"""The reset of a table: the registry counts a new generation, then the state begins it.

Order: save the split points of the new partitions, if there are any; change the registry, which
then names them and has the schema of the generation; commit to the state. Any process that finds
the state behind the registry finishes the reset as requested. Jobs created in between find the
state behind and are retried; jobs created before end without effect. A generation starts without
rows, or with those of an earlier version (`features.versions`).
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from dormouse.errors import ContendedError, CorruptDataError, InvalidRequestError, NotFoundError
from dormouse.features.requests import Kind
from dormouse.keys import Key, decode_key, encode_key
from dormouse.log.engine import StateStore
from dormouse.ports import Services, Storage
from dormouse.schema.schema import Schema, key_problem
from dormouse.state.partitions import PartitionTree
from dormouse.state.rules import REBUILD, Rejected, accepted
from dormouse.state.state import ResetTable, TableState
from dormouse.state.versions import OwnerKind, PinOwner
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.paths import RESTORED, TREES
from dormouse.tables.encryption import encrypted_schema
from dormouse.tables.table import Table, replace_schema

# What a generation of a table starts with, if a restore began it.
#
# Two things hold it until the state begins the generation: a pin of the version, which holds its
# shards, and a record beside the state, which is a snapshot of the version. The record stays as
# long as the generation. With it, a lost state can be rebuilt: of the objects that earlier
# generations wrote, those count that it names, and as it says.

_HINT = "bring it back from a backup or an older object version"


def restorer(restored: str) -> PinOwner:
    """Return the owner of the pin that holds the version of a record."""
    return PinOwner(OwnerKind.RESTORE, restored)


def put_restored(storage: Storage, table_id: str, restored: str, version: TableState) -> None:
    """Put a record; one that an earlier attempt put stays."""
    from dormouse.log.snapshot import encode_snapshot  # it imports Arrow

    storage.put(RESTORED.path(table_id, restored), encode_snapshot(table_id, version))


def load_restored(storage: Storage, table: Table) -> TableState | None:
    """Return what the present generation of a table starts with; None if it began without rows.
    Raises CorruptDataError: the record is damaged or lost.
    """
    if not table.restored:
        return None
    from dormouse.log.snapshot import decode_snapshot

    path = RESTORED.path(table.id, table.restored)
    try:
        body = storage.get(path)
    except NotFoundError as error:
        raise CorruptDataError(f"{path} is lost", hint=_HINT) from error
    with raise_corrupt(f"{path} is no restored version", hint=_HINT):
        return decode_snapshot(table.id, body, path)


def begin_restored(services: Services, table: Table) -> Rejected | None:
    """Begin the generation of a table with the version it is restored to, unless it has begun.

    Return why it could not, if another process has not begun it either.
    Raises CorruptDataError: the record is damaged or lost, or the version is not pinned any more.
    """
    store, earlier = services.store(table), load_restored(services.storage, table)
    if earlier is None:
        return None
    if restorer(table.restored) not in {pin.owner for pin in store.pins.all()}:
        if store.current().generation >= table.generation:
            return None  # it is finished, and the version was unpinned
        _pin_again(store, table, earlier)
    outcome = store.restore(earlier, generation=table.generation)
    return outcome if isinstance(outcome, Rejected) else None


def _pin_again(store: StateStore, table: Table, earlier: TableState) -> None:
    """Pin the version of a record once more, if it is still whole.

    Its pin may be gone though the restore goes on: a process slept for days after it had put the
    pin, and a sweep took it for one that was left behind.
    Raises CorruptDataError: it is not whole any more.
    """
    try:
        store.pins.add(restorer(table.restored), earlier)
    except NotFoundError as error:
        raise CorruptDataError(
            f"the version to which table {table.name!r} is being restored is not pinned any more, "
            "and not whole",
            hint=REBUILD,
        ) from error


def unpin_restored(services: Services, table: Table, before_ms: int) -> None:
    """Remove the pins of restores that are finished, or were begun before a time and never
    registered.
    """
    store = services.store(table)
    has_begun = store.current().generation >= table.generation
    for pin in store.pins.all():
        is_old = pin.owner.kind is OwnerKind.RESTORE and pin.pinned_ms < before_ms
        if is_old and (has_begun or pin.owner != restorer(table.restored)):
            store.pins.remove(pin.owner)


LOST_HINT = "reset the table again, and give the split points"


class _Tree(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys at which the leaves of a tree meet."""

    splits: tuple[bytes, ...]


_TREE = Kind("a tree of partitions", _Tree, LOST_HINT)


def reset_table(
    services: Services,
    table: Table,
    schema: Schema | None,
    points: Sequence[Key] | None,
    *,
    request_id: str,
) -> None:
    """Reset `table`, as read before, once for a request; with the schema and the split points of
    the new generation, or None for what stays the same.

    Raises:
        InvalidRequestError: the points do not ascend; the schema does not fit the properties; or
            the present partitions are to stay and do not fit the schema.
        NotFoundError: the table was deleted, or is being deleted.
        ContendedError: the row keys have changed since the points were parsed.
        CorruptDataError: the present partitions are to stay, but their stored form is lost.
    """
    path = "" if points is None else _keep(services, table, tuple(map(encode_key, points)))

    def next_generation(current: Table) -> Table:
        if schema is None and current.schema.key_types != table.schema.key_types:
            raise ContendedError(f"table {table.name!r} got another schema meanwhile")
        changed = current
        if schema is not None:
            fresh = replace_schema(current.schema, schema, current.properties)
            fresh = encrypted_schema(fresh, current.properties, services.keys, current.id)
            changed = replace(current, schema=fresh, schema_generation=current.generation + 1)
        # If an earlier reset is unfinished, the partitions that stay are those of that reset.
        tree = path or _staying(services, current, changed.schema)
        now_ms = services.clock.now_ms()
        generation = current.generation + 1
        return replace(changed, generation=generation, reset_ms=now_ms, tree=tree, restored="")

    finish_reset(services, services.tables.change(table.id, next_generation, request_id=request_id))


def finish_reset(services: Services, table: Table) -> TableState:
    """Return a table's state, after committing an unfinished reset to it, if there is one.
    Raises CorruptDataError: the partitions of the reset, or the version to restore, are lost.
    """
    store = services.store(table)
    state = store.current()
    if state.generation >= table.generation:
        return state
    begin = begin_restored if table.restored else _begin_empty
    rejected = begin(services, table)
    state = store.current()
    if state.generation < table.generation and rejected is not None:
        accepted(rejected)
    return state


def _begin_empty(services: Services, table: Table) -> Rejected | None:
    """Begin the generation of a table without rows, unless it has begun; return why it could not.
    Raises CorruptDataError: the partitions of the reset are lost.
    """
    store = services.store(table)
    state = store.current()
    try:
        splits = _splits(services, table, state)
    except NotFoundError as error:
        if store.current().generation >= table.generation:
            return None  # the reset is finished, and an audit deleted its split points
        raise CorruptDataError(
            f"the partitions of generation {table.generation} of table {table.name!r} are gone",
            hint=LOST_HINT,
        ) from error
    reset = ResetTable(table.generation, splits, table.schema.widest_key_types)
    (outcome,) = store.commit(reset, generation=state.generation)
    return outcome if isinstance(outcome, Rejected) else None


def is_for(generation: int, table: Table, state: TableState) -> bool:
    """Return whether a request or job of a generation still applies to the table.

    If the registry counts a later generation, a reset is under way and the schema may be new: the
    rows that are still in the state must not be read with it.
    """
    return generation == state.generation and generation >= table.generation


def _staying(services: Services, table: Table, schema: Schema) -> str:
    """Return the id of a saved copy of the table's partitions; empty if none is needed.

    If the types of the row keys change, the present split points are checked and saved: a partition
    split after the check might not fit the new types.
    Raises InvalidRequestError: the partitions do not fit the row keys of the schema.
    """
    state = finish_reset(services, table)
    types = schema.key_types
    if types == table.schema.key_types and schema.widest_key_types == state.key_types:
        return ""
    splits = state.partitions.splits
    for split in splits:
        if fault := key_problem(decode_key(split), types, fewest_parts=1):
            raise InvalidRequestError(
                f"the partitions of table {table.name!r} cannot stay: where they meet is no key of "
                f"the new schema ({fault})",
                hint="delete the partitions, or give split points",
            )
    return _keep(services, table, splits)


def _keep(services: Services, table: Table, splits: Sequence[bytes]) -> str:
    """Save split points under a new id, and return it.

    The registry names the id of the delivery that takes effect. The points are an object of their
    own since they may be larger than a registry item.
    """
    PartitionTree.from_splits(splits)  # raises if they do not ascend
    tree = services.ids.new()
    _TREE.put(services.storage, TREES.path(table.id, tree), _Tree(tuple(splits)))
    return tree


def _splits(services: Services, table: Table, state: TableState) -> tuple[bytes, ...]:
    """Return the keys at which leaves of the generation to begin meet.
    Raises NotFoundError: their saved split points were deleted.
    """
    if not table.tree:
        return state.partitions.splits
    path = TREES.path(table.id, table.tree)
    tree = _TREE.decode(services.storage.get(path), path)
    with raise_corrupt(f"{path} is not a tree of partitions", hint=LOST_HINT):
        return tuple(encode_key(decode_key(split)) for split in tree.splits)
