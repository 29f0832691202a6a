"""The versions of a table: which there are, tags, and how one is selected: by its number, a tag, or
a time.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from msgspec import structs

from dormouse.client.access import TableAccess
from dormouse.errors import InvalidRequestError
from dormouse.ports import Services
from dormouse.requests import RestoreVersion, TagVersion, UntagVersion
from dormouse.showing import Listing
from dormouse.tables.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dormouse.model.pins import Pin
    from dormouse.model.state import TableState
    from dormouse.query.result import QueryResult


AsOf: TypeAlias = int | str | dt.datetime
"""A version, a tag, or an aware time; as text, too."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


def table_as_of(services: Services, table: Table, as_of: AsOf | None) -> tuple[Table, TableState]:
    """Return a table as it is now, and its state at a version, tag or time; the newest for None.

    Raises:
        InvalidRequestError: it is neither a version nor a tag nor a time with a zone.
        NotFoundError: the table was deleted, or has no such tag; or that version is not kept any
            more, is yet to come, or has rows of an earlier schema.
    """
    from dormouse.features.tables.versions import read_version

    if as_of is None:
        return read_version(services, table)
    if isinstance(as_of, str):
        as_of = parse_as_of(as_of)
    check_as_of(as_of)
    if isinstance(as_of, dt.datetime):
        return read_version(services, table, time_ms=(as_of - _EPOCH) // _MILLISECOND)
    if isinstance(as_of, str):
        from dormouse.features.versions.tags import tagged

        as_of = tagged(services, table, as_of).version
    return read_version(services, table, version=as_of)


def check_as_of(as_of: object) -> None:
    """Refuse what cannot be a version of any table.

    Raises:
        InvalidRequestError: it is not a version, or a time without a zone.
    """
    if isinstance(as_of, dt.datetime):
        if as_of.tzinfo is None:
            raise InvalidRequestError(
                f"the time {as_of} has no time zone", hint="give it one, as UTC"
            )
    elif isinstance(as_of, str):
        parse_as_of(as_of)
    elif isinstance(as_of, bool) or not isinstance(as_of, int) or as_of < 0:
        raise InvalidRequestError(
            f"{as_of!r} is not a version of a table",
            hint="give its number, its tag, or a time with its zone",
        )


def as_of_to_json(as_of: AsOf) -> int | str:
    """Return a version as requests name it.

    Raises:
        InvalidRequestError: it is neither a version nor a tag nor a time with a zone.
    """
    if isinstance(as_of, str):
        as_of = parse_as_of(as_of)
    check_as_of(as_of)
    return as_of.isoformat() if isinstance(as_of, dt.datetime) else as_of


def parse_as_of(text: str) -> AsOf:
    """Parse the number of a version, a tag, or a time; a time without a zone is UTC.

    Raises:
        InvalidRequestError: it is none of these.
    """
    from dormouse.features.versions.tags import is_tag

    if is_tag(text):
        return text
    if re.fullmatch(r"\d{1,18}", text, re.ASCII):
        return int(text)
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequestError(
            f"{text!r} is neither a version nor a tag nor a time",
            hint="a version is a whole number, a time is as 2026-01-31T12:00:00Z",
        ) from error
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


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
    from dormouse.features.tables.tags import tags_of as pins_of
    from dormouse.features.versions.changes import ingested_since
    from dormouse.keys.ranges import KeyRange
    from dormouse.query.planner import select
    from dormouse.query.rows import query_slices
    from dormouse.readers.reading import Slice
    from dormouse.sql.conditions import parse_condition

    since = parse_as_of(since) if isinstance(since, str) else since
    check_as_of(since)
    tags = {pin.owner.name: pin.version for pin in pins_of(services, table)}
    if isinstance(since, str) and since in tags:
        since = tags[since]  # its version need not be readable
    if not isinstance(since, int):
        since = table_as_of(services, table, since)[1].version
    shards, newest = ingested_since(services, table, since)
    plain = replace(
        table, properties=structs.replace(table.properties, filters="", aggregations="")
    )
    condition = None if where is None else parse_condition(where, table.schema)
    now_ms = services.clock.now_ms()
    selection = select(
        table.schema, newest, now_ms, columns=columns, condition=condition, limit=limit
    )
    parts = ([Slice(shard, KeyRange())] for shard in shards)
    return query_slices(services, plain, parts, selection)


def tags_of(services: Services, table: Table) -> Listing[Tag]:
    """Return the tags of a table, by version."""
    from dormouse.features.tables import tags

    columns = ("tag", "version", "time", "rows")
    found = map(_tag, tags.tags_of(services, table))
    return Listing(
        found, "tags", columns, lambda each: (each.tag, each.version, _time(each), each.rows)
    )


def tag_version(handle: TableAccess, as_of: int | dt.datetime, tag: str) -> Tag:
    """Tag a version, by its number or a time."""
    from dormouse.features.administration.administer import administer
    from dormouse.features.versions.tags import tagged

    services, table = handle.services, handle.current()
    _, state = table_as_of(services, table, as_of)
    request = TagVersion(services.ids.new(), table.name, state.version, tag)
    handle.queues.send(administer(services, request))
    return _tag(tagged(services, table, tag))


def untag_version(handle: TableAccess, tag: str) -> None:
    """Remove a tag."""
    from dormouse.features.administration.administer import administer

    services = handle.services
    request = UntagVersion(services.ids.new(), handle.current().name, tag)
    handle.queues.send(administer(services, request))


def restore_version(handle: TableAccess, as_of: AsOf) -> int:
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
