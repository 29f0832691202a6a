"""A table and its state at one version, with the schema that the rows of that version have.

Registry and state are read one after the other. A reset, which can change the schema, may happen in
between, or may have crashed before it reached the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.keys import KeyRange
from dormouse.ports import Services
from dormouse.state.partitions import PartitionTree
from dormouse.state.state import DAY_MS, TableState
from dormouse.state.versions import AsOf, OwnerKind, Pin, PinOwner
from dormouse.stored.paths import export_path
from dormouse.tables.table import Table

REBUILDING = "rebuild-"
"""What the jobs are called that make the first whole version of a rebuilt or copied state. The
versions before the last of them have only a part of the rows.
"""


RangesOf: TypeAlias = Callable[[Table], Sequence[KeyRange]]
"""Returns the ranges of keys of a table that a reader of rows looks at."""


def read_version(
    services: Services,
    table: Table,
    *,
    version: int | None = None,
    time_ms: int | None = None,
    ranges_of: RangesOf | None = None,
) -> tuple[Table, TableState]:
    """Return the table as it is now and its state at a version, at a time, or the newest.

    With `ranges_of`, the newest state may have only what readers of these keys need.

    If the registry counts a reset with a new schema that the state has not begun, the newest state
    returned is already that of an empty table.

    Raises:
        NotFoundError: the table was deleted, or the version has expired, does not exist yet, is
            from before the first one (NotBegunError), or has rows of an earlier schema.
    """
    while True:
        state = _state(services, table, version, time_ms, ranges_of)
        if state.generation <= table.generation:
            break
        newest = services.table(table.id)
        if newest is None:
            raise NotFoundError(f"table {table.name!r} was deleted")
        if newest.generation == table.generation:  # the registry was restored from a backup
            break
        table = newest
    if state.generation >= table.schema_generation:
        return table, state
    if version is None and time_ms is None:
        tree = PartitionTree.from_split_points(())
        return table, state.reset(table.generation, tree, table.schema.key_types)
    raise NotFoundError(
        f"version {state.version} of table {table.name!r} has rows of an earlier schema, which "
        "cannot be read any more",
        hint="the table was reset since, with a new schema; read a later version",
    )


def refuse_purged(table: Table, version: int, wanted: str) -> None:
    """Refuse what is `wanted` of a version from before the last purge, whose rows would stay.

    Raises:
        NotFoundError: the version is from before the last purge that ended.
    """
    if version < table.purged_version:
        raise NotFoundError(
            f"version {version} of table {table.name!r} cannot be {wanted}: it may have rows that "
            f"a purge has removed, which ended at version {table.purged_version}",
            hint=f"choose version {table.purged_version}, or a later one",
        )


def _state(
    services: Services,
    table: Table,
    version: int | None,
    time_ms: int | None,
    ranges_of: RangesOf | None,
) -> TableState:
    store = services.store(table)
    if version is None and time_ms is None:
        return store.current() if ranges_of is None else store.part(lambda: ranges_of(table))
    return store.at(version=version, time_ms=time_ms)


# The tags of a table, and what must remove the rows that they hold.


def tags_of(services: Services, table: Table) -> list[Pin]:
    """Return the tags of a table, by version.

    Raises:
        CorruptDataError: a pin is damaged.
    """
    pins = services.store(table).pins.all()
    return sorted((p for p in pins if p.owner.kind is OwnerKind.TAG), key=lambda pin: pin.version)


def refuse_tagged(services: Services, table: Table, removed: str) -> None:
    """Refuse to remove rows, described by `removed`, while tags hold versions with them.

    Raises:
        InvalidRequestError: the table has tags; the message names them.
        CorruptDataError: a pin is damaged.
    """
    names = [pin.owner.name for pin in tags_of(services, table)]
    if names:
        raise InvalidRequestError(
            f"{removed} of table {table.name!r} cannot be removed: tags hold them: "
            f"{', '.join(names)}",
            hint="release the tags with it: --release-tags, or release_tags in Python and requests",
        )


def release_tags(services: Services, table: Table) -> None:
    """Remove all tags of a table."""
    for pin in tags_of(services, table):
        services.store(table).pins.remove(pin.owner)


def pin_version(
    services: Services, table: Table, state: TableState, owner: PinOwner, kept_ms: int
) -> tuple[Table, TableState]:
    """Pin the version that a long job is about to read; return the table and the state to read.

    That is the version of another delivery, if that was quicker.

    Raises:
        NotFoundError: shards of that version are deleted, or may be at any moment; or the other
            delivery's version has rows of an earlier schema.
        ContendedError: it took too long; nothing is pinned.
    """
    if not state.reference_count:
        return table, state
    expires_ms = services.clock.now_ms() + kept_ms
    pin = services.store(table).pins.add(owner, state, expires_ms=expires_ms)
    if pin.version == state.version:
        return table, state
    return read_version(services, table, version=pin.version)


# The pin of an export: it holds the version that is exported for as long as the export runs.
#
# The request pins the version before it saves the export. An export runs as long as its stored
# object is there, so the sweep removes the pin of one that has none: tasks need no right to the
# state. A pin that was put a moment ago may be of a request that is about to save its export.

REQUEST_MS = 15 * 60 * 1000
"""How long a request may take between its pin and its export; no function runs for longer."""
LONGEST_MS = 14 * DAY_MS
"""For how long the pin of an export that never ends holds its version: as long as messages live."""


def pin_export(services: Services, table: Table, state: TableState, export_id: str) -> TableState:
    """Pin the version that an export is about to read, as `pin_version` does; return its state."""
    owner = PinOwner(OwnerKind.EXPORT, export_id)
    return pin_version(services, table, state, owner, LONGEST_MS)[1]


def unpin_ended(services: Services, table: Table) -> None:
    """Remove the pins of exports that have ended, or were never saved."""
    pins = services.store(table).pins
    for pin in pins.all():
        if pin.owner.kind is OwnerKind.EXPORT and _has_ended(services, table, pin):
            pins.remove(pin.owner)


def _has_ended(services: Services, table: Table, pin: Pin) -> bool:
    """Return whether no export is stored, and none is about to be; a damaged one is stored."""
    path = export_path(table.id, pin.owner.name)
    if any(stored.path == path for stored in services.storage.list(path)):
        return False
    record = services.tracker.get(table.id, pin.owner.name)
    is_recorded = record is not None and record.is_finished
    return is_recorded or pin.pinned_ms < services.clock.now_ms() - REQUEST_MS


# The pins of queries: each holds a version of a table that a query reads.


def owner_of(query_id: str, as_of: AsOf | None = None) -> PinOwner:
    """Return the owner of the pin of a table that a query reads as of some version.

    A statement may read several versions of one table, each held by a pin of its own.
    """
    return PinOwner(OwnerKind.QUERY, f"{query_id}@{'' if as_of is None else as_of}")


def query_of(pin: Pin) -> str | None:
    """Return the query that a pin is of; None if it is of something else."""
    if pin.owner.kind is not OwnerKind.QUERY:
        return None
    return pin.owner.name.partition("@")[0]


def unpin(services: Services, table: Table, query_id: str) -> None:
    """Remove all pins of a query on a table."""
    pins = services.store(table).pins
    for pin in pins.all():
        if query_of(pin) == query_id:
            pins.remove(pin.owner)
