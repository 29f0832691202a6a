"""What a generation of a table starts with, if a restore began it.

Two things hold it until the state begins the generation: a pin of the version, which holds its
shards, and a record beside the state, which is a snapshot of the version. The record stays as long
as the generation. With it, a lost state can be rebuilt: of the objects that earlier generations
wrote, those count that it names, and as it says.
"""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.model.state import TableState
from dormouse.model.versions.pins import OwnerKind, PinOwner
from dormouse.ports.services import Services, Storage
from dormouse.state_store import REBUILD, Rejected, StateStore
from dormouse.stored.decoding import raise_corrupt
from dormouse.stored.paths import restored_path, restored_prefix
from dormouse.tables.table import Table

_HINT = "bring it back from a backup or an older object version"


def restorer(restored: str) -> PinOwner:
    """Return the owner of the pin that holds the version of a record."""
    return PinOwner(OwnerKind.RESTORE, restored)


def put_restored(storage: Storage, table_id: str, restored: str, version: TableState) -> None:
    """Put a record; one that an earlier attempt put stays."""
    from dormouse.statestore.snapshot.codec import encode_snapshot  # it imports Arrow

    storage.put(restored_path(table_id, restored), encode_snapshot(table_id, version))


def load_restored(storage: Storage, table: Table) -> TableState | None:
    """Return what the present generation of a table starts with; None if it began without rows.

    Raises:
        CorruptDataError: the record is damaged or lost.
    """
    if not table.restored:
        return None
    from dormouse.statestore.snapshot.codec import decode_snapshot

    path = restored_path(table.id, table.restored)
    try:
        body = storage.get(path)
    except NotFoundError as error:
        raise CorruptDataError(f"{path} is lost", hint=_HINT) from error
    with raise_corrupt(f"{path} is no restored version", hint=_HINT):
        return decode_snapshot(table.id, body, path)


def begin_restored(services: Services, table: Table) -> Rejected | None:
    """Begin the generation of a table with the version it is restored to, unless it has begun.

    Return why it could not, if another process has not begun it either.

    Raises:
        CorruptDataError: the record is damaged or lost, or the version is not pinned any more.
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

    Raises:
        CorruptDataError: it is not whole any more.
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


def obsolete_restored(services: Services, table: Table, before_ms: int) -> Iterator[str]:
    """Yield the paths of records that were put before a time and are not of this generation."""
    kept = restored_path(table.id, table.restored)
    for stored in services.storage.list(restored_prefix(table.id)):
        if stored.modified_ms < before_ms and stored.path != kept:
            yield stored.path
