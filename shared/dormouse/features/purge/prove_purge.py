"""prove_purge: count the matching rows in the table and in every object of it.

It relies on no record of a purge. It lists all objects, referenced or not, and the noncurrent
versions that a versioned bucket keeps of deleted ones, and reads each that can hold matching rows.
What was sent of an unfinished upload cannot be read, so it is reported as if it held such rows.
Then it looks for keys of removed rows in what is published for readers of Iceberg.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from dormouse.errors import ContendedError, CorruptDataError, NotFoundError
from dormouse.features.garbage.garbage import abandoned_after_ms
from dormouse.features.purge.proof import Proof, RemainingObject
from dormouse.features.purge.prove_published import PublishedProof, list_published
from dormouse.features.purge.row_matcher import RowMatcher
from dormouse.features.tables.versions import read_version
from dormouse.jobs.records import REFUSALS_KEPT_SECONDS
from dormouse.keys.ranges import KeyRange
from dormouse.model.shards import Shard
from dormouse.model.state import TableState
from dormouse.model.versions.pins import Pin
from dormouse.ports.services import NoncurrentObject, Services, StoredObject
from dormouse.ports.uploads import UnfinishedUpload
from dormouse.readers.reading import Slice
from dormouse.shards.format.footer import read_footer
from dormouse.stored.paths import (
    data_prefix,
    rejected_prefix,
    run_of_shard,
    shard_id_of,
    shard_path,
)
from dormouse.tables.table import Table

CONCURRENT_READS = 4
EARLIER_SCHEMA = "its rows are of an earlier schema, and are not checked"

UNFINISHED = "its upload is not finished, or was broken off; the daily audit deletes what was sent"
REJECTED = "rows of files that could not be read; the daily audit deletes it, or you"
_REPLACED = "it was replaced, and is kept for queries that began before"
_KEPT = "it was deleted, and the bucket keeps earlier versions"

Progress = Callable[[int, int], None]
"""Called with how many objects were checked, and of how many."""


def prove_purge(
    services: Services, table: Table, matcher: RowMatcher, watch: Progress | None = None
) -> Proof:
    """Check every object; nothing is changed.

    A condition on the present schema cannot be evaluated on an object of an earlier one, so such an
    object is reported as if it held matching rows.

    Raises:
        ContendedError: the table got another schema meanwhile.
        UnavailableError: storage or state cannot be read at the moment; there is no result.
    """
    newest, state = read_version(services, table)
    if newest.schema_generation != table.schema_generation:
        raise ContendedError(
            f"table {table.name!r} was reset just now, and got another schema",
            hint="select the rows by the columns that it has now",
        )
    published = list_published(services, table)
    # Listed after the state is read, so all objects that the state refers to exist by then. What
    # changes between the listings is found at least once: an upload that is completed meanwhile as
    # an object, an object that is deleted as noncurrent.
    uploads = list(services.storage.list_uploads(data_prefix(table.id)))
    objects = list(services.storage.list(data_prefix(table.id)))
    earlier = list(services.storage.list_noncurrent(data_prefix(table.id)))

    def check(stored: StoredObject | NoncurrentObject) -> RemainingObject | None:
        if isinstance(stored, NoncurrentObject):
            return _check_noncurrent(services, table, matcher, stored)
        return _check_object(services, table, state, matcher, stored)

    remains = [_unfinished(table, upload) for upload in uploads]
    checked = [*objects, *earlier]
    with ThreadPoolExecutor(CONCURRENT_READS) as threads:
        for done, found in enumerate(threads.map(check, checked), start=1):
            if found is not None:
                remains.append(found)
            if watch is not None:
                watch(done, len(checked))
    found_in = {shard for found in remains if found.rows and (shard := shard_id_of(found.path))}
    referenced = {shard for shard in found_in if state.reference_counts.get(shard, 0)}
    rows = _rows_of_table(services, table, state, matcher, referenced)
    holding = {shard for found in remains if (shard := shard_id_of(found.path))}
    clean = _still_there(services, table, objects) - holding
    proof = PublishedProof(services, table, state, matcher, clean, holding)
    remains += [found for each in published if (found := proof.check(each)) is not None]
    rejected = list(services.storage.list(rejected_prefix(table.id)))
    remains += [RemainingObject(each.path, None, REJECTED, _kept_to_ms(each)) for each in rejected]
    remains = list(_with_pins(services, table, remains))
    counted = len(checked) + len(uploads) + len(published) + len(rejected)
    return Proof(state.version, rows, counted, len(referenced), tuple(remains))


def _with_pins(
    services: Services, table: Table, remains: Iterable[RemainingObject]
) -> Iterator[RemainingObject]:
    """Yield what remains, with the pinned version that holds a replaced shard beyond its delay: a
    tag, a query or an export, also one that a killed process has not confirmed.
    """
    pinned: list[tuple[Pin, TableState]] | None = None
    for found in remains:
        if found.reason == _REPLACED and pinned is None:
            pinned = list(services.store(table).pins.held())
        shard = shard_id_of(found.path) or ""
        holding = [pin for pin, state in pinned or () if state.reference_counts.get(shard, 0)]
        if found.reason != _REPLACED or not holding:
            yield found
            continue
        pin = max(holding, key=lambda each: (each.expires_ms is None, each.expires_ms or 0))
        reason = f"it was replaced, and version {pin.version} needs it, which {pin.owner.key} pins"
        ends_ms = None if pin.expires_ms is None else max(pin.expires_ms, found.until_ms or 0)
        yield replace(found, reason=reason, until_ms=ends_ms)


def _still_there(services: Services, table: Table, checked: Sequence[StoredObject]) -> set[str]:
    """Return the shards that were checked: those whose objects were not deleted meanwhile."""
    there = {stored.path for stored in services.storage.list(data_prefix(table.id))}
    paths = (stored.path for stored in checked if stored.path in there)
    return {shard for path in paths if (shard := shard_id_of(path))}


def _unfinished(table: Table, upload: UnfinishedUpload) -> RemainingObject:
    until_ms = upload.started_ms + abandoned_after_ms(table)
    return RemainingObject(upload.path, None, UNFINISHED, until_ms)


def _check_object(
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


def _check_noncurrent(
    services: Services, table: Table, matcher: RowMatcher, earlier: NoncurrentObject
) -> RemainingObject | None:
    """Check a noncurrent version of a deleted object."""
    there = replace(services, storage=earlier.storage)
    found = _check_object(there, table, TableState(), matcher, earlier.stored)
    if found is None:
        return None
    reason = _KEPT if found.rows is not None else f"{_KEPT}; {found.reason}"
    return RemainingObject(found.path, found.rows, reason, earlier.until_ms)


def _shard(
    services: Services, table: Table, state: TableState, stored: StoredObject
) -> Shard | None:
    """Return the shard in an object, from the state or else from its footer.

    None if its rows are of an earlier schema.
    """
    shard_id = shard_id_of(stored.path)
    known = state.shards.get(shard_id) if shard_id is not None else None
    if known is not None:
        return known
    footer = read_footer(services.storage, stored.path, stored.size_bytes)
    if stored.path != shard_path(table.id, footer.shard_id):
        raise CorruptDataError(f"its footer has the id of shard {footer.shard_id!r}")
    if footer.provenance.generation < table.schema_generation:
        return None
    return Shard.of(footer.shard_id, footer.rows, stored.size_bytes, footer.min_key, footer.max_key)


def _count(services: Services, table: Table, matcher: RowMatcher, slice: Slice) -> int:
    memory_bytes = services.memory_bytes // CONCURRENT_READS
    return matcher.count(
        services.storage, table.id, slice, scratch=services.scratch, memory_bytes=memory_bytes
    )


def _why(
    table: Table, state: TableState, shard: str, stored: StoredObject
) -> tuple[str, int | None]:
    """Return why an object exists, and from when on it can be deleted."""
    if state.reference_counts.get(shard, 0):
        return "it is part of the table", None
    if shard in state.disputed:
        return "it is disputed, and kept until the dispute is resolved", None
    since_ms = state.unreferenced.get(shard)
    if since_ms is not None:
        until_ms = since_ms + table.properties.gc_delay_seconds * 1000
        return _REPLACED, until_ms
    if run_of_shard(shard)[0] in state.jobs:
        return "a job that is not finished wrote it", None
    return "no commit refers to it; the daily audit deletes it", _audited_ms(table, stored)


def _kept_to_ms(rejected: StoredObject) -> int:
    """Return from when on the daily audit deletes rows that an ingest rejected."""
    return rejected.modified_ms + REFUSALS_KEPT_SECONDS * 1000


def _audited_ms(table: Table, stored: StoredObject) -> int:
    """Return from when on the daily audit deletes an unreferenced object."""
    return stored.modified_ms + table.properties.orphan_age_seconds * 1000


def _rows_of_table(
    services: Services, table: Table, state: TableState, matcher: RowMatcher, shards: set[str]
) -> int:
    """Count the matching rows that a query of this version reads."""
    return sum(
        _count(services, table, matcher, Slice(state.shards[reference.shard], span))
        for span, references in state.partitions_to_read(KeyRange())
        for reference in references
        if reference.shard in shards
    )
