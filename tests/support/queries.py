"""Queries and counts without a client: of a table, a state and a storage at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dormouse.access import EVERYTHING
from dormouse.encryption import KeyService, NoKeys
from dormouse.keys import KeyRange
from dormouse.ports import Cache, Storage
from dormouse.query import rows
from dormouse.query import rows as count
from dormouse.query.result import QueryResult
from dormouse.query.rows import LOOK_UP_BYTES
from dormouse.query.selection import select
from dormouse.rows.predicates import Predicate
from dormouse.state.state import TableState
from dormouse.tables.table import Table


@dataclass(frozen=True, slots=True)
class Resources:
    """A `query.rows.QueryResources`."""

    storage: Storage
    scratch: Path
    memory_bytes: int
    cache: Cache = field(default_factory=Cache)
    keys: KeyService = NoKeys()

    def newest_version(self, table: Table) -> int | None:
        return None


def query_rows(
    storage: Storage,
    table: Table,
    state: TableState,
    ranges: Sequence[KeyRange],
    *,
    columns: Sequence[str] | None = None,
    where: Predicate | None = None,
    limit: int | None = None,
    now_ms: int,
    scratch: Path,
    memory_bytes: int,
    cache: Cache | None = None,
    look_up_bytes: int = LOOK_UP_BYTES,
) -> QueryResult:
    """Make a selection and query it."""
    condition = None if where is None else where.condition
    selection = select(
        table.schema,
        state.version,
        now_ms,
        ranges,
        columns=columns,
        condition=condition,
        limit=limit,
        permission=EVERYTHING,
    )
    resources = Resources(storage, scratch, memory_bytes, Cache() if cache is None else cache)
    return rows.query_rows(resources, table, state, selection, look_up_bytes=look_up_bytes)


def count_rows(
    storage: Storage,
    table: Table,
    state: TableState,
    ranges: Sequence[KeyRange],
    *,
    where: Predicate | None = None,
    now_ms: int,
    scratch: Path,
    memory_bytes: int,
    cache: Cache | None = None,
) -> int:
    """Make a selection and count its rows."""
    condition = None if where is None else where.condition
    selection = select(
        table.schema, state.version, now_ms, ranges, condition=condition, permission=EVERYTHING
    )
    resources = Resources(storage, scratch, memory_bytes, Cache() if cache is None else cache)
    return count.count_rows(resources, table, state, selection)
