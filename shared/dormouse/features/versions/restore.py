"""restore_version: make an earlier version of a table its newest.

It is a reset (`features.tables.reset`) whose generation starts with the rows of a version instead
of none. So what was queued before is refused, jobs are released, and sources that were ingested
after the version are forgotten: their files can come again.

Order of writes: a pin of the version; copies of segments of sources that the newest state does not
name; the record of the version; the registry, which counts the generation; the state; the pin is
removed. The pin holds the shards from the look that proves them whole until the state has them
again. A crash before the registry leaves a pin and objects that the sweep removes; after it, any
process finishes the reset. Each attempt has a pin and a record of its own, so that no attempt needs
what a sweep may just remove because an earlier one left it.

A purge that ends and a restore both change the registry: the later of the two sees the other.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from dormouse.errors import ContendedError, InvalidRequestError, NotFoundError
from dormouse.features.garbage.collect_garbage import candidates
from dormouse.features.requests.resolve_table import request_key, resolve_live_table
from dormouse.features.tables.reset import finish_reset
from dormouse.features.tables.restored import put_restored, restorer
from dormouse.features.tables.versions import REBUILDING, refuse_purged
from dormouse.features.versions.as_of import read_as_of
from dormouse.messages.requests import RestoreVersion
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.model.source_segments import SourceSegment
from dormouse.model.state import TableState
from dormouse.model.versions.pins import OwnerKind
from dormouse.ports.services import Services
from dormouse.state_store import StateStore, VersionRecord
from dormouse.stored.paths import sources_path
from dormouse.tables.table import Table


def restore_version(services: Services, request: RestoreVersion) -> list[OutboundMessage]:
    """Restore a table once, however often the request is delivered.

    Raises:
        InvalidRequestError: the version is named wrongly, or is the newest.
        NotFoundError: no table has that name; or the version is not kept, has rows of an earlier
            schema or rows that were purged since, or lacks a shard.
        ContendedError: the table was reset meanwhile; retry the message.
        CorruptDataError: an object that the version needs is damaged.
    """
    table = resolve_live_table(services, request)
    if request.request_id not in table.applied_requests:
        table = _register(services, table, request)
    state = finish_reset(services, table)
    _unpin(services, table, request)
    garbage = candidates(table, state, sorted(state.unreferenced))
    return [OutboundMessage("table-changes", TableChanged(table.id)), *garbage]


def _register(services: Services, table: Table, request: RestoreVersion) -> Table:
    """Pin the version, record it, and count its generation in the registry; return the table."""
    if not table.restored:
        finish_reset(services, table)  # a reset that begins later would take the shards away
    store, restored = services.store(table), request_key(request) + services.ids.new()
    table, earlier = read_as_of(services, table, request.as_of)
    _check_version(table, earlier, store.current())
    _check_whole(table, earlier, store.history())
    earlier = store.pins.state(store.pins.add(restorer(restored), earlier))

    def next_generation(kept: Table) -> Table:
        if kept.generation != table.generation:
            raise ContendedError(f"table {kept.name!r} was reset meanwhile")
        refuse_purged(kept, earlier.version, "restored")
        now_ms, generation = services.clock.now_ms(), kept.generation + 1
        return replace(kept, generation=generation, reset_ms=now_ms, tree="", restored=restored)

    try:
        segments = _segments(services, table, store, earlier)
        version = replace(earlier, source_segments=segments)
        put_restored(services.storage, table.id, restored, version)
        return services.tables.change(table.id, next_generation, request_id=request.request_id)
    except (NotFoundError, ContendedError):
        store.pins.remove(restorer(restored))
        raise


def _unpin(services: Services, table: Table, request: RestoreVersion) -> None:
    """Remove the pins of all attempts at a request that is done."""
    pins = services.store(table).pins
    for pin in pins.all():
        is_restore = pin.owner.kind is OwnerKind.RESTORE
        if is_restore and pin.owner.name.startswith(request_key(request)):
            pins.remove(pin.owner)


def _check_version(table: Table, earlier: TableState, newest: TableState) -> None:
    """Refuse the newest version, one from before the table began, one with rows that were purged,
    and one of which the table has lost a shard.
    """
    if earlier.version == newest.version:
        raise InvalidRequestError(
            f"version {earlier.version} of table {table.name!r} is the newest already"
        )
    if not len(earlier.partitions):
        raise NotFoundError(
            f"table {table.name!r} had not begun at version {earlier.version}",
            hint="`dormouse versions NAME` lists its versions; `table reinitialise` empties it",
        )
    refuse_purged(table, earlier.version, "restored")
    for shard, references in earlier.reference_counts.items():
        if references and shard not in newest.shards:
            raise NotFoundError(
                f"version {earlier.version} of table {table.name!r} cannot be restored: shard "
                f"{shard} was deleted, or left the table when it was reset",
                hint="if the version can still be read, export its rows and ingest the files",
            )


def _check_whole(table: Table, earlier: TableState, history: list[VersionRecord]) -> None:
    """Refuse a version that was never the table's: a part of a state that was being rebuilt."""
    rebuilding = [
        each.version for each in history if any(job.startswith(REBUILDING) for job in each.jobs)
    ]
    if rebuilding and earlier.version < rebuilding[-1]:
        raise NotFoundError(
            f"version {earlier.version} of table {table.name!r} has a part of the rows only: the "
            f"state was being rebuilt up to version {rebuilding[-1]}",
            hint="restore that version, or a later one",
        )


def _segments(
    services: Services, table: Table, store: StateStore, earlier: TableState
) -> tuple[SourceSegment, ...]:
    """Return the version's segments of sources; copies of those that the newest state lacks.

    An audit deletes segments that neither the newest state nor a pinned version names. It may have
    read the pins before this version was pinned, so only a segment that is still named now is safe.
    """
    named = {segment.id for segment in store.current().all_source_segments}
    return tuple(
        segment if segment.id in named else _copied(services, table, segment)
        for segment in earlier.source_segments
    )


def _copied(services: Services, table: Table, segment: SourceSegment) -> SourceSegment:
    """Copy a segment under a new id, which no audit deletes before it is old."""
    try:
        body = services.storage.get(sources_path(table.id, segment.id))
    except NotFoundError as error:
        raise NotFoundError(
            f"table {table.name!r} cannot be restored: it is not known any more which files that "
            "version had ingested",
            hint="restore a later version",
        ) from error
    copy = msgspec.structs.replace(segment, id=services.ids.new())
    services.storage.put(sources_path(table.id, copy.id), body)
    return copy
