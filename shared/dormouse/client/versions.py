"""The versions of a table: which there are, their tags, and what changed since one of them."""

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from dormouse.access import EVERYTHING, VisibleTable
from dormouse.errors import InvalidRequestError
from dormouse.features.access import allowed_table
from dormouse.features.versions import read_as_of
from dormouse.features.versions import tags_of as pins_of_tags
from dormouse.key_codec import KeyCodec, Keys, Ranges, list_keys
from dormouse.messages.stages import SelectionMessage
from dormouse.ports import Services
from dormouse.schema.schema import Schema, check_list
from dormouse.showing import Listing
from dormouse.sql.conditions import SPACE, check_statement, parse_condition
from dormouse.state.state import TableState
from dormouse.state.versions import AsOf, Pin, checked_as_of, iso_time, parse_as_of
from dormouse.tables.table import Table, table_not_found

if TYPE_CHECKING:
    from dormouse.query.result import QueryResult
    from dormouse.query.selection import Selection


def as_of_to_json(as_of: AsOf) -> int | str:
    """Return a version as requests name it.
    Raises InvalidRequestError: it is neither a version nor a tag nor a time with a zone.
    """
    as_of = checked_as_of(as_of)
    return as_of.isoformat() if isinstance(as_of, dt.datetime) else as_of


class Version(Struct, frozen=True):
    """A version that can be read. `time_ms` is milliseconds since 1970."""

    version: int
    time_ms: int
    rows: int
    changes: tuple[str, ...]  # empty if nothing is known of them any more, or none was accepted
    jobs: tuple[str, ...]
    tags: tuple[str, ...]


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
    pins = pins_of_tags(services, table)
    names: dict[int, tuple[str, ...]] = {}
    for pin in pins:
        names[pin.version] = (*names.get(pin.version, ()), pin.owner.name)
    by_number = {
        p.version: Version(p.version, p.time_ms, p.rows, (), (), names[p.version]) for p in pins
    }
    for record in services.store(table).history():
        tagged = names.get(record.version, ())
        by_number[record.version] = Version(
            record.version, record.time_ms, record.rows, record.changes, record.jobs, tagged
        )
    versions = sorted(by_number.values(), key=lambda version: version.version, reverse=True)
    columns = ("version", "time", "changes", "rows", "job", "tags")
    return Listing(versions, "versions", columns, _version_row)


def tags_of(services: Services, table: Table) -> Listing[Tag]:
    """Return the tags of a table, by version."""
    columns = ("tag", "version", "time", "rows")
    rows = map(tag_of, pins_of_tags(services, table))
    return Listing(
        rows, "tags", columns, lambda tag: (tag.tag, tag.version, iso_time(tag.time_ms), tag.rows)
    )


def tag_of(pin: "Pin") -> Tag:
    """Return the tag that a pin keeps."""
    owner = pin.owner.name
    return Tag(owner, pin.version, pin.time_ms, pin.rows, pin.pinned_ms, pin.size_bytes)


def _version_row(each: Version) -> tuple[object, ...]:
    changes, jobs, names = map(", ".join, (each.changes, each.jobs, each.tags))
    return each.version, iso_time(each.time_ms), changes, each.rows, jobs, names


@dataclass(frozen=True, slots=True)
class RowQuery:
    """What Python says of the rows it wants, by the arguments of `TableHandle.query`."""

    ranges: Ranges | None = None
    exact: Keys | None = None
    where: str | None = None
    columns: Sequence[str] | None = None
    limit: int | None = None
    as_of: AsOf | None = None

    def select(self, table: Table, version: int, now_ms: int) -> "Selection":
        """Return the rows of a version of a table.
        Raises InvalidRequestError: a key, column or condition does not fit the schema.
        """
        from dormouse.query.selection import select

        condition = None
        if self.where is not None:
            condition = parse_condition(self.where, table.schema, now_ms=now_ms, of_rows=True)
        return select(
            table.schema,
            version,
            now_ms,
            KeyCodec(table.schema).ranges_from_python(self.ranges, self.exact),
            permission=EVERYTHING,  # AWS decides about what this process reads
            columns=self.columns,
            condition=condition,
            limit=self.limit,
        )

    def message(self, schema: Schema) -> SelectionMessage:
        """Return the message that asks for the rows.
        Raises InvalidRequestError: a key or version is invalid, or no rows or columns are selected.
        """
        names = () if self.columns is None else check_list("columns", self.columns)
        keys = list_keys(self.exact)
        codec = KeyCodec(schema)
        spans = codec.spans_from_python(self.ranges)
        is_chosen = self.ranges is not None or self.exact is not None
        if (is_chosen and not keys and not spans) or names == []:
            raise InvalidRequestError(
                "no rows or columns are asked for", hint="leave out what is empty to get all"
            )
        return SelectionMessage(
            keys=codec.keys_to_json(keys),
            ranges=tuple(map(codec.range_to_json, spans)),
            where=self.where or "",
            columns=tuple(names),
            limit=self.limit,
            as_of=None if self.as_of is None else as_of_to_json(self.as_of),
        )


def named_table(services: Services, name: str) -> Table:
    """Return a table. Raises NotFoundError: none has that name; the hint names the nearest."""
    table = services.tables.named(name)
    if table is None or table.deleting:
        raise table_not_found(name, *services.tables.list_readable())
    return table


def open_table(
    services: Services, principal: str | None, name: str, as_of: str
) -> "tuple[VisibleTable, TableState]":
    """Open a table for a caller of this process; by default, for the process itself."""
    version = parse_as_of(as_of) if as_of else None
    if principal is not None:
        visible = allowed_table(services, principal, name, "read")
        table, state = read_as_of(services, visible.table, version)
        return VisibleTable.of(table, visible.permission), state
    table, state = read_as_of(services, named_table(services, name), version)
    return VisibleTable.whole(table), state


def is_delete(text: str) -> bool:
    """Return whether a statement begins with DELETE. Raises InvalidRequestError: it is no text."""
    check_statement(text)
    return re.match(SPACE + r"DELETE\b", text, re.IGNORECASE) is not None


def version_result(version: int) -> "QueryResult":
    """Return a row that has the version which a statement made."""
    import pyarrow as pa

    from dormouse.query.result import PeekableBatches, QueryResult
    from dormouse.shards.reading import ReadCounters

    row = pa.RecordBatch.from_pydict({"version": pa.array([version], pa.int64())})
    return QueryResult(row.schema, PeekableBatches(iter([row])), ReadCounters(), version)


def named_parameters(
    parameters: Sequence[object] | Mapping[str, object] | None,
) -> dict[str, object]:
    """Return parameters by name; those of a sequence are called 1, 2 and so on."""
    if parameters is None:
        return {}
    if isinstance(parameters, Mapping):
        return {str(name): value for name, value in parameters.items()}
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Iterable):
        raise InvalidRequestError("parameters are a list of values, or values by their names")
    return {str(number): value for number, value in enumerate(parameters, start=1)}
