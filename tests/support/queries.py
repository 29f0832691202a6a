"""Queries and counts without a client: of a table, a state and a storage at hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from dormouse.access import EVERYTHING
from dormouse.encryption import KeyService, NoKeys
from dormouse.keys import KeyRange
from dormouse.ports import Cache, Storage
from dormouse.query import rows
from dormouse.query import rows as count
from dormouse.query.result import PeekableBatches, QueryResult
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
    """Make a selection and query it; rows of up to `look_up_bytes` are read at once."""
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
    result = rows.query_rows(resources, table, state, selection)
    if look_up_bytes == LOOK_UP_BYTES:
        return result
    return replace(result, batches=PeekableBatches(looked_up(result, look_up_bytes)))


def looked_up(result: QueryResult, look_up_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a query that reads up to so many bytes of rows at once."""
    with patch.object(rows, "LOOK_UP_BYTES", look_up_bytes):
        yield from result.batches


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
