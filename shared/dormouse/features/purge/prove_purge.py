"""prove_purge: which rows match, in the table and in each object that lies where its shards do.

It trusts no record of a purge: it lists the objects, those which no commit refers to as well, and
what a versioned bucket keeps of those that were deleted, and reads in each what could match.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from dormouse.errors import ContendedError, CorruptDataError, NotFoundError
from dormouse.features.purge.row_matcher import RowMatcher
from dormouse.features.tables.versions import read_version
from dormouse.keys.ranges import KeyRange
from dormouse.model.shards import Shard
from dormouse.model.state import TableState
from dormouse.ports import NoncurrentObject, Services, StoredObject
from dormouse.readers.reading import Slice
from dormouse.shards.footer import read_footer
from dormouse.stored.paths import data_prefix, run_of_shard, shard_id_of, shard_path
from dormouse.tables.table import Table

CONCURRENT_READS = 4
EARLIER_SCHEMA = "its rows are of an earlier schema, and are not looked at"

_KEPT = "it was deleted, and the bucket keeps earlier versions"

Progress = Callable[[int, int], None]
"""Is told how many objects were looked at, of how many."""


@dataclass(frozen=True, slots=True)
class RemainingObject:
    """An object that holds matching rows, or may: `rows` is None if it cannot be read.

    `reason` says why it is there, `until_ms` from when on it is deleted; None if that is open.
    """

    path: str
    rows: int | None
    reason: str
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found at one version: rows of the table that match, and objects that hold such."""

    version: int
    rows: int
    objects: int
    shards: int
    remains: tuple[RemainingObject, ...]

    @property
    def is_complete(self) -> bool:
        """Return whether no row that matches is left, neither in the table nor in any object."""
        return not self.rows and not self.remains


def prove_purge(
    services: Services, table: Table, matcher: RowMatcher, watch: Progress | None = None
) -> Proof:
    """Look at every object; nothing is changed.

    What was stored before the table got its schema, which a condition of now cannot judge, counts
    as holding such rows.

    Raises:
        ContendedError: the table got another schema meanwhile.
        UnavailableError: storage or state could not be read for now; nothing is known.
    """
    newest, state = read_version(services, table)
    if newest.schema_generation != table.schema_generation:
        raise ContendedError(
            f"table {table.name!r} was emptied just now, and got another schema",
            hint="say which rows are meant by the columns it has now",
        )
    # Listed after the state was read, so that every object the state knows of was there by then;
    # what is deleted meanwhile and kept as an earlier version is seen at least once.
    objects = list(services.storage.list(data_prefix(table.id)))
    earlier = list(services.storage.list_noncurrent(data_prefix(table.id)))

    def look(stored: StoredObject | NoncurrentObject) -> RemainingObject | None:
        if isinstance(stored, NoncurrentObject):
            return _look_at_earlier(services, table, matcher, stored)
        return _look(services, table, state, matcher, stored)

    remains, looked_at = [], [*objects, *earlier]
    with ThreadPoolExecutor(CONCURRENT_READS) as threads:
        for done, found in enumerate(threads.map(look, looked_at), start=1):
            if found is not None:
                remains.append(found)
            if watch is not None:
                watch(done, len(looked_at))
    holding = {shard for found in remains if found.rows and (shard := shard_id_of(found.path))}
    referenced = {shard for shard in holding if state.reference_counts.get(shard, 0)}
    rows = _rows_of_table(services, table, state, matcher, referenced)
    return Proof(state.version, rows, len(looked_at), len(referenced), tuple(remains))


def _look(
    services: Services,
    table: Table,
    state: TableState,
    matcher: RowMatcher,
    stored: StoredObject,
) -> RemainingObject | None:
    try:
        shard = _shard(services, table, state, stored)
        if shard is None:
            return RemainingObject(stored.path, None, EARLIER_SCHEMA, _audited_ms(table, stored))
        rows = 0
        if matcher.request.can_match(shard):
            rows = _count(services, table, matcher, Slice(shard, KeyRange()))
    except NotFoundError:  # collected since it was listed
        return None
    except CorruptDataError as error:
        return RemainingObject(stored.path, None, f"it cannot be read: {error.explanation}")
    if not rows:
        return None
    reason, until_ms = _why(table, state, shard.id, stored)
    return RemainingObject(stored.path, rows, reason, until_ms)


def _look_at_earlier(
    services: Services, table: Table, matcher: RowMatcher, earlier: NoncurrentObject
) -> RemainingObject | None:
    """Look at what the bucket keeps of an object that the table has no more."""
    there = replace(services, storage=earlier.storage)
    found = _look(there, table, TableState(), matcher, earlier.stored)
    if found is None:
        return None
    reason = _KEPT if found.rows is not None else f"{_KEPT}; {found.reason}"
    return RemainingObject(found.path, found.rows, reason, earlier.until_ms)


def _shard(
    services: Services, table: Table, state: TableState, stored: StoredObject
) -> Shard | None:
    """Return the shard an object is, by its own footer if no commit refers to it; None if it has
    rows of an earlier schema.
    """
    shard_id = shard_id_of(stored.path)
    known = state.shards.get(shard_id) if shard_id is not None else None
    if known is not None:
        return known
    footer = read_footer(services.storage, stored.path, stored.size_bytes)
    if stored.path != shard_path(table.id, footer.shard_id):
        raise CorruptDataError(f"it says that it is shard {footer.shard_id!r}")
    if footer.origin.generation < table.schema_generation:
        return None
    return Shard(footer.shard_id, footer.rows, stored.size_bytes, footer.min_key, footer.max_key)


def _count(services: Services, table: Table, matcher: RowMatcher, slice: Slice) -> int:
    memory_bytes = services.memory_bytes // CONCURRENT_READS
    return matcher.count(
        services.storage, table.id, slice, scratch=services.scratch, memory_bytes=memory_bytes
    )


def _why(
    table: Table, state: TableState, shard: str, stored: StoredObject
) -> tuple[str, int | None]:
    """Say why an object is there, and from when on it is deleted."""
    if state.reference_counts.get(shard, 0):
        return "it is part of the table", None
    if shard in state.disputed:
        return "it is disputed, and kept until that is settled", None
    since_ms = state.unreferenced.get(shard)
    if since_ms is not None:
        until_ms = since_ms + table.properties.gc_delay_seconds * 1000
        return "it was replaced, and waits for queries that began before", until_ms
    if run_of_shard(shard)[0] in state.jobs:
        return "a job that is not finished wrote it", None
    return "no commit refers to it; the daily audit deletes it", _audited_ms(table, stored)


def _audited_ms(table: Table, stored: StoredObject) -> int:
    """Return from when on an audit deletes an object that no commit refers to."""
    return stored.modified_ms + table.properties.orphan_age_seconds * 1000


def _rows_of_table(
    services: Services, table: Table, state: TableState, matcher: RowMatcher, shards: set[str]
) -> int:
    """Count the matching rows that a query of the same version finds stored."""
    return sum(
        _count(services, table, matcher, Slice(state.shards[reference.shard], span))
        for span, references in state.partitions_to_read(KeyRange())
        for reference in references
        if reference.shard in shards
    )
