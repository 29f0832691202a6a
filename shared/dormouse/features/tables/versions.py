"""A table and its state at one version, with the schema that the rows of that version have.

Registry and state are read one after the other. A reset, which can change the schema, may happen in
between, or may have crashed before it reached the state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from dormouse.errors import NotFoundError
from dormouse.keys.ranges import KeyRange
from dormouse.model.partitions import PartitionTree
from dormouse.model.state import TableState
from dormouse.ports.services import Services
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
