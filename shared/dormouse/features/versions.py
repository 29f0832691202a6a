"""Versions of a table: read, pinned, tagged, restored, and what was ingested since one.

A table is read with its state at one version, and the schema that the rows of that version have.
Registry and state are read one after the other. A reset, which can change the schema, may happen in
between, or may have crashed before it reached the state.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import msgspec

from dormouse.errors import AlreadyExistsError, ContendedError, InvalidRequestError, NotFoundError
from dormouse.features.garbage import candidates
from dormouse.features.requests import request_key
from dormouse.features.reset import finish_reset, put_restored, restorer
from dormouse.keys import KeyRange
from dormouse.log.engine import StateStore
from dormouse.messages.requests import RestoreVersion, TagVersion, UntagVersion
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports import Services
from dormouse.state.partitions import PartitionTree, Shard
from dormouse.state.rules import VersionRecord
from dormouse.state.state import DAY_MS, Deletion, SourceSegment, TableState
from dormouse.state.versions import (
    AsOf,
    OwnerKind,
    Pin,
    PinOwner,
    check_tag,
    checked_as_of,
    iso_time,
    milliseconds_of,
)
from dormouse.stored.paths import EXPORTS, SOURCES
from dormouse.tables.table import Table

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
    Raises NotFoundError: the table was deleted, or the version has expired, does not exist yet, is
    from before the first one (NotBegunError), or has rows of an earlier schema.
    """
    is_newest = version is None and time_ms is None
    while True:
        store = services.store(table)
        if not is_newest:
            state = store.at(version=version, time_ms=time_ms)
        else:
            state = store.part(partial(ranges_of, table)) if ranges_of else store.current()
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
    if is_newest:
        tree = PartitionTree.from_split_points(())
        return table, state.reset(table.generation, tree, table.schema.widest_key_types)
    raise NotFoundError(
        f"version {state.version} of table {table.name!r} has rows of an earlier schema, which "
        "cannot be read any more",
        hint="the table was reset since, with a new schema; read a later version",
    )


def refuse_purged(table: Table, version: int, use: str) -> None:
    """Refuse a `use`, such as ``tagged``, of a version from before the last purge, whose rows would
    stay.
    Raises NotFoundError: the version is from before the last purge that ended.
    """
    if version < table.purged_version:
        raise NotFoundError(
            f"version {version} of table {table.name!r} cannot be {use}: it may have rows that "
            f"a purge has removed, which ended at version {table.purged_version}",
            hint=f"choose version {table.purged_version}, or a later one",
        )


def tags_of(services: Services, table: Table) -> list[Pin]:
    """Return the tags of a table, by version. Raises CorruptDataError: a pin is damaged."""
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


def unpin_ended(services: Services, table: Table) -> None:
    """Remove the pins of exports that have ended, or were never saved."""
    pins = services.store(table).pins
    for pin in pins.all():
        if pin.owner.kind is OwnerKind.EXPORT and _has_ended(services, table, pin):
            pins.remove(pin.owner)


def _has_ended(services: Services, table: Table, pin: Pin) -> bool:
    """Return whether no export is stored, and none is about to be; a damaged one is stored."""
    path = EXPORTS.path(table.id, pin.owner.name)
    if any(item.path == path for item in services.storage.list(path)):
        return False
    record = services.tracker.get(table.id, pin.owner.name)
    is_recorded = record is not None and record.is_finished
    return is_recorded or pin.pinned_ms < services.clock.now_ms() - REQUEST_MS


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


CLOCK_SKEW_MS = 5 * 60 * 1000
"""How far the clock of a caller may be ahead of ours: its present is not refused as the future."""

# tag_version, untag_version: name a version of a table, which is pinned as long as it has a tag.
#
# Each is one call of the state store (`log.pinning`), and repeatable. Untagging sends what it
# frees to garbage collection; if that message is lost, the sweep finds it.


def tag_version(services: Services, table: Table, request: TagVersion) -> None:
    """Tag a version of a table once, however often the request is delivered. A tag that moves is
    held by two pins meanwhile: a crash leaves the new one, under a name of its own.

    Raises:
        InvalidRequestError: it cannot be the name of a tag, or the number of a version.
        AlreadyExistsError: the tag names another version, and is not to move.
        NotFoundError: no table has that name, the version is not kept any more, or a purge ended
            after it.
        ContendedError: it took too long; nothing is tagged.
    """
    if request.version < 1:
        raise InvalidRequestError(f"{request.version} is not a version; the first of a table is 1")
    owner = _owner(request.tag)
    pins = services.store(table).pins
    pin = find_tag(services, table, request.tag)
    moving = PinOwner(OwnerKind.TAG, f"{request.tag}~")
    if pin is not None and request.moves and pin.version != request.version:
        _pinned(services, table, moving, request.version)
        pins.remove(owner)
        pin = None
    if pin is None:
        pin = _pinned(services, table, owner, request.version)
    if request.moves:
        pins.remove(moving)
    if pin.version != request.version:
        raise AlreadyExistsError(
            f"table {table.name!r} has a tag {request.tag!r} already, of version {pin.version}",
            hint="choose another name, remove that tag first, or ask for it to move",
        )


def _pinned(services: Services, table: Table, owner: PinOwner, version: int) -> Pin:
    """Return the pin of an owner, of a version that no purge has ended after."""
    pins = services.store(table).pins
    _, state = read_version(services, table, version=version)
    pin = pins.add(owner, state)
    newest = services.table(table.id)  # a purge may have ended meanwhile
    try:
        if newest is None:
            raise NotFoundError(f"table {table.name!r} is deleted")
        refuse_purged(newest, pin.version, "tagged")
    except NotFoundError:
        pins.remove(owner)
        raise
    return pin


def untag_version(services: Services, table: Table, request: UntagVersion) -> list[OutboundMessage]:
    """Remove a tag; return the shards that its version may have needed last as candidates.

    Raises:
        InvalidRequestError: it cannot be the name of a tag.
        NotFoundError: the table has no such tag.
    """
    owner = _owner(request.tag)
    if not services.store(table).pins.remove(owner):
        tagged(services, table, request.tag)  # raises NotFoundError
    state = services.store(table).current()
    return candidates(table, state, sorted(state.unreferenced))


def find_tag(services: Services, table: Table, tag: str) -> Pin | None:
    """Return the pin of a tag; None if the table has no such tag.
    Raises InvalidRequestError: it cannot be the name of a tag.
    """
    owner = _owner(tag)
    return next((pin for pin in tags_of(services, table) if pin.owner == owner), None)


def tagged(services: Services, table: Table, tag: str) -> Pin:
    """Return the pin of a tag.

    Raises:
        InvalidRequestError: it cannot be the name of a tag.
        NotFoundError: the table has no such tag.
    """
    pin = find_tag(services, table, tag)
    if pin is None:
        there = ", ".join(pin.owner.name for pin in tags_of(services, table)) or "none"
        raise NotFoundError(f"table {table.name!r} has no tag {tag!r}", hint=f"its tags: {there}")
    return pin


def _owner(tag: str) -> PinOwner:
    check_tag(tag)
    return PinOwner(OwnerKind.TAG, tag)


def read_as_of(
    services: Services, table: Table, as_of: AsOf | None, *, ranges_of: RangesOf | None = None
) -> tuple[Table, TableState]:
    """Return a table as it is now, and its state at a version, tag or time; the newest for None.

    With `ranges_of`, the newest state may have only what readers of these keys need.

    Raises:
        InvalidRequestError: it is neither a version nor a tag nor a time with a zone.
        NotFoundError: the table was deleted, or has no such tag; or that version or time is yet to
            come; or the version is not kept any more, or has rows of an earlier schema.
    """
    if as_of is None:
        return read_version(services, table, ranges_of=ranges_of)
    as_of = checked_as_of(as_of)
    if isinstance(as_of, dt.datetime):
        time_ms, now_ms = milliseconds_of(as_of), services.clock.now_ms()
        if time_ms > now_ms + CLOCK_SKEW_MS:
            raise NotFoundError(
                f"{as_of.isoformat()} is in the future: it is {iso_time(now_ms)}",
                hint="a time without a zone is UTC; without a time, the newest version is read",
            )
        return read_version(services, table, time_ms=time_ms)
    if isinstance(as_of, str):
        as_of = tagged(services, table, as_of).version
    return read_version(services, table, version=as_of)


# The rows that were ingested since a version, read from the shards that ingest wrote.
#
# Which shards these are is in the log: those that accepted ingests added. A compaction adds none,
# so what it rewrote does not come again. The log and the shards are kept for the delay of garbage
# collection.

_BEGINNINGS = {"reset table", "restore version"}
"""The changes after which the rows of earlier versions are not those of the table any more."""
_HINT = "read the table as it is now, and the changes since the version of that read"


@dataclass(frozen=True, slots=True)
class CommittedSince:
    """The shards that ingests added after a version, in order, the deletions after it, and the
    newest version. `versions` are those of commits, by the numbers that shards and deletions have.
    """

    shards: Sequence[Shard]
    deletions: tuple[Deletion, ...]
    newest: int
    versions: Mapping[int, int]


def ingested_since(services: Services, table: Table, version: int) -> CommittedSince:
    """Return what was ingested and deleted after a version.
    Raises NotFoundError: the version is yet to come; the log is not kept from it on any more, or a
    shard is deleted; or the table was reset, restored or rebuilt since.
    """
    store = services.store(table)
    history = store.history()
    newest = history[-1].version if history else 0
    if version > newest:
        raise NotFoundError(f"there is no version {version}; the newest is {newest}")
    _check_kept(table, history, version)
    since = [record for record in history if record.version > version]
    shards = [shard for record in since for shard in record.added]
    state = store.current()
    if state.generation < table.schema_generation:
        raise NotFoundError(
            f"table {table.name!r} is being reset and gets another schema: what was ingested since "
            f"version {version} cannot be read any more",
            hint=_HINT,
        )
    for shard in shards:
        if shard.id not in state.shards:
            raise _expired(table, version, f"shard {shard.id} is deleted")
    deletions = tuple(each for record in since for each in record.deleted)
    versions = {each.sequence: record.version for record in since for each in record.added}
    versions |= {each.number: record.version for record in since for each in record.deleted}
    return CommittedSince(shards, deletions, newest, versions)


def _check_kept(table: Table, history: Sequence[VersionRecord], version: int) -> None:
    if history and history[0].version > max(version, 1):
        raise _expired(table, version, f"the log is kept from version {history[0].version} on")
    for record in history:
        if record.version > version and not _BEGINNINGS.isdisjoint(record.changes):
            raise NotFoundError(
                f"table {table.name!r} was reset or restored at version {record.version}, so that "
                f"its rows are not those of version {version} and what was ingested since",
                hint=_HINT,
            )


def _expired(table: Table, version: int, reason: str) -> NotFoundError:
    return NotFoundError(
        f"what was ingested into table {table.name!r} since version {version} is not kept any "
        f"more: {reason}",
        hint=f"{_HINT}; a longer gc_delay_seconds keeps changes for longer",
    )


# restore_version: make an earlier version of a table its newest.
#
# It is a reset (`features.reset`) whose generation starts with the rows of a version instead
# of none. So what was queued before is refused, jobs are released, and sources that were ingested
# after the version are forgotten: their files can come again.
#
# Order of writes: a pin of the version; copies of segments of sources that the newest state does
# not name; the record of the version; the registry, which counts the generation; the state; the pin
# is removed. The pin holds the shards from the look that proves them whole until the state has them
# again. A crash before the registry leaves a pin and objects that the sweep removes; after it, any
# process finishes the reset. Each attempt has a pin and a record of its own, so that no attempt
# needs what a sweep may just remove because an earlier one left it.
#
# A purge that ends and a restore both change the registry: the later of the two sees the other.


def restore_version(
    services: Services, table: Table, request: RestoreVersion
) -> list[OutboundMessage]:
    """Restore a table once, however often the request is delivered.

    Raises:
        InvalidRequestError: the version is named wrongly, or is the newest.
        NotFoundError: no table has that name; or the version is not kept, has rows of an earlier
            schema or rows that were purged since, or lacks a shard.
        ContendedError: the table was reset meanwhile; retry the message.
        CorruptDataError: an object that the version needs is damaged.
    """
    if request.request_id not in table.applied_requests:
        table = _register(services, table, request)
    state = finish_reset(services, table)
    pins = services.store(table).pins
    for pin in pins.all():  # of all attempts at the request
        is_restore = pin.owner.kind is OwnerKind.RESTORE
        if is_restore and pin.owner.name.startswith(request_key(request)):
            pins.remove(pin.owner)
    garbage = candidates(table, state, sorted(state.unreferenced))
    return [OutboundMessage("table-changes", TableChanged(table.id)), *garbage]


def _register(services: Services, table: Table, request: RestoreVersion) -> Table:
    """Pin the version, record it, and count its generation in the registry; return the table."""
    if not table.restored:
        finish_reset(services, table)  # a reset that begins later would take the shards away
    store, restored = services.store(table), request_key(request) + services.ids.new()
    table, earlier = read_as_of(services, table, request.as_of)
    _check_version(table, earlier, store.current())
    earlier = store.pins.state(store.pins.add(restorer(restored), earlier))

    def next_generation(newest: Table) -> Table:
        if newest.generation != table.generation:
            raise ContendedError(f"table {newest.name!r} was reset meanwhile")
        refuse_purged(newest, earlier.version, "restored")
        now_ms, generation = services.clock.now_ms(), newest.generation + 1
        return replace(newest, generation=generation, reset_ms=now_ms, tree="", restored=restored)

    try:
        segments = _segments(services, table, store, earlier)
        version = replace(earlier, source_segments=segments)
        put_restored(services.storage, table.id, restored, version)
        return services.tables.change(table.id, next_generation, request_id=request.request_id)
    except (NotFoundError, ContendedError):
        store.pins.remove(restorer(restored))
        raise


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


def _segments(
    services: Services, table: Table, store: StateStore, earlier: TableState
) -> tuple[SourceSegment, ...]:
    """Return the version's segments of sources; copies of those that the newest state lacks.

    An audit deletes segments that neither the newest state nor a pinned version names. It may have
    read the pins before this version was pinned, so only a segment that is still named now is safe.
    """
    ids = {segment.id for segment in store.current().all_source_segments}
    return tuple(
        segment if segment.id in ids else _copied(services, table, segment)
        for segment in earlier.source_segments
    )


def _copied(services: Services, table: Table, segment: SourceSegment) -> SourceSegment:
    """Copy a segment under a new id, which no audit deletes before it is old."""
    try:
        body = services.storage.get(SOURCES.path(table.id, segment.id))
    except NotFoundError as error:
        raise NotFoundError(
            f"table {table.name!r} cannot be restored: it is not known any more which files that "
            "version had ingested",
            hint="restore a later version",
        ) from error
    copy = msgspec.structs.replace(segment, id=services.ids.new())
    services.storage.put(SOURCES.path(table.id, copy.id), body)
    return copy
