"""The versions of a table: which there are, tags, and how one is selected: by its number, a tag, or
a time.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from dormouse.errors import NotBegunError
from dormouse.messages.requests import RestoreVersion, TagVersion, UntagVersion
from dormouse.model.versions.as_of import AsOf, checked_as_of
from dormouse.ports.services import Services
from dormouse.showing import Listing
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dormouse.client.table import TableHandle
    from dormouse.features.tables.versions import RangesOf
    from dormouse.model.state import TableState
    from dormouse.model.versions.pins import Pin
    from dormouse.query.result import QueryResult


def table_as_of(
    services: Services, table: Table, as_of: AsOf | None, *, ranges_of: RangesOf | None = None
) -> tuple[Table, TableState]:
    """Return a table as it is now, and its state at a version, tag or time; the newest for None.

    With `ranges_of`, the newest state may have only what readers of these keys need.

    Raises: as `features.versions.as_of.read_as_of`.
    """
    from dormouse.features.versions.as_of import read_as_of

    return read_as_of(services, table, as_of, ranges_of=ranges_of)


def as_of_to_json(as_of: AsOf) -> int | str:
    """Return a version as requests name it.

    Raises:
        InvalidRequestError: it is neither a version nor a tag nor a time with a zone.
    """
    as_of = checked_as_of(as_of)
    return as_of.isoformat() if isinstance(as_of, dt.datetime) else as_of


@dataclass(frozen=True, slots=True)
class Version:
    """A version that can be read: when it was made, by which changes and jobs, and its rows.

    `changes` is empty if nothing is known of them any more, or none was accepted.
    """

    version: int
    time_ms: int
    rows: int
    changes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tag:
    """A version with a name; `size_bytes` is the size of its snapshot, without its shards."""

    tag: str
    version: int
    time_ms: int
    rows: int
    tagged_ms: int
    size_bytes: int


def versions_of(services: Services, table: Table) -> Listing[Version]:
    """Return the versions that are kept or tagged, the newest first."""
    from dormouse.features.tables import tags

    pins = tags.tags_of(services, table)
    names: dict[int, tuple[str, ...]] = {}
    for pin in pins:
        names[pin.version] = (*names.get(pin.version, ()), pin.owner.name)
    found = {pin.version: Version(pin.version, pin.time_ms, pin.rows) for pin in pins}
    for each in services.store(table).history():
        kept = Version(each.version, each.time_ms, each.rows, each.changes, each.jobs)
        found[each.version] = kept
    newest_first = sorted(found.values(), key=lambda version: version.version, reverse=True)
    versions = (replace(one, tags=names.get(one.version, ())) for one in newest_first)
    columns = ("version", "time", "changes", "rows", "job", "tags")
    return Listing(versions, "versions", columns, _version_row)


def changes_of(
    services: Services,
    table: Table,
    since: AsOf,
    columns: Sequence[str] | None,
    where: str | None,
    limit: int | None,
) -> QueryResult:
    """Return the rows ingested since a version, a few shards at a time."""
    from dormouse.access.rules import EVERYTHING
    from dormouse.features.tables.tags import tags_of as pins_of
    from dormouse.features.versions.changes import ingested_since
    from dormouse.keys.ranges import KeyRange
    from dormouse.query.planner import select
    from dormouse.query.rows import query_slices
    from dormouse.readers.reading import Slice
    from dormouse.sql.conditions import parse_condition

    since = checked_as_of(since)
    tags = {pin.owner.name: pin.version for pin in pins_of(services, table)}
    if isinstance(since, str) and since in tags:
        since = tags[since]  # its version need not be readable
    if not isinstance(since, int):
        try:
            since = table_as_of(services, table, since)[1].version
        except NotBegunError:
            since = 0  # all rows came later
    shards, newest = ingested_since(services, table, since)
    plain = replace(
        table, properties=structs.replace(table.properties, filters="", aggregations="")
    )
    now_ms = services.clock.now_ms()
    condition = None if where is None else parse_condition(where, table.schema, now_ms=now_ms)
    selection = select(
        table.schema,
        newest,
        now_ms,
        permission=EVERYTHING,  # AWS decides about what this process reads
        columns=columns,
        condition=condition,
        limit=limit,
    )
    parts = ([Slice(shard, KeyRange())] for shard in shards)
    return query_slices(services, plain, parts, selection).for_programs()


def tags_of(services: Services, table: Table) -> Listing[Tag]:
    """Return the tags of a table, by version."""
    from dormouse.features.tables import tags

    columns = ("tag", "version", "time", "rows")
    found = map(_tag, tags.tags_of(services, table))
    return Listing(
        found, "tags", columns, lambda each: (each.tag, each.version, _time(each), each.rows)
    )


def tag_version(handle: TableHandle, as_of: int | dt.datetime, tag: str) -> Tag:
    """Tag a version, by its number or a time."""
    from dormouse.features.administration.administer import administer
    from dormouse.features.versions.tags import tagged

    services, table = handle.services, handle.current()
    _, state = table_as_of(services, table, as_of)
    request = TagVersion(services.ids.new(), table.name, state.version, tag)
    handle.queues.send(administer(services, request))
    return _tag(tagged(services, table, tag))


def untag_version(handle: TableHandle, tag: str) -> None:
    """Remove a tag."""
    from dormouse.features.administration.administer import administer

    services = handle.services
    request = UntagVersion(services.ids.new(), handle.current().name, tag)
    handle.queues.send(administer(services, request))


def restore_version(handle: TableHandle, as_of: AsOf) -> int:
    """Make an earlier version the newest; return the number of the newest then."""
    from dormouse.features.administration.administer import administer

    services, table = handle.services, handle.current()
    request = RestoreVersion(services.ids.new(), table.name, as_of_to_json(as_of))
    handle.queues.send(administer(services, request))
    return services.store(handle.current()).current().version


def _tag(pin: Pin) -> Tag:
    owner = pin.owner.name
    return Tag(owner, pin.version, pin.time_ms, pin.rows, pin.pinned_ms, pin.size_bytes)


def _version_row(each: Version) -> tuple[object, ...]:
    changes, jobs, tags = ", ".join(each.changes), ", ".join(each.jobs), ", ".join(each.tags)
    return each.version, _time(each), changes, each.rows, jobs, tags


def _time(each: Version | Tag) -> str:
    return dt.datetime.fromtimestamp(each.time_ms / 1000, dt.UTC).isoformat(timespec="seconds")
