"""A query over messages: what was asked, what was fixed when it began, and how it ended.

All that sub-queries need is fixed when a query begins: the version of the table, its schema, its
row rules, and which shards hold the rows. The end of a query is one object, its manifest, which is
put once: the first writer decides whether a query is finished, failed or cancelled. Until then
nothing of its result is visible; after that, exactly the files that the manifest names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from dormouse.messages.queries import AnswerQuery
from dormouse.model.jobs.job_events import TrackedJob
from dormouse.query.selection import Selection
from dormouse.query.selection_codec import StoredSelection, load_selection, store_selection
from dormouse.schema.schema import Schema
from dormouse.stored import checksums
from dormouse.stored.decoding import decode_json, raise_corrupt
from dormouse.stored.json_objects import (
    check_format,
    decode_stored,
    encode_stored,
    with_checksum,
)
from dormouse.tables.properties import properties_of
from dormouse.tables.table import Table

QUERIES = "(queries)"
"""The id under which the tracker keeps the records of queries, which may be about several
tables."""
FORMAT = 1
_QUERY, _TASK = "a query", "the end of a sub-query"
_ASK_AGAIN = "ask again, with another query_id"


@dataclass(frozen=True, slots=True)
class ReadTable:
    """The version of a table that a query reads, and what reading its rows needs.

    `filters` and `aggregations` are the row rules when the query began.
    """

    id: str
    name: str
    schema: Schema
    selection: Selection
    filters: str = ""
    aggregations: str = ""

    @property
    def table(self) -> Table:
        """The table when the query began, with the properties that reading its rows needs."""
        rules = {"filters": self.filters, "aggregations": self.aggregations}
        return Table(self.id, self.name, self.schema, properties_of({}, rules))


@dataclass(frozen=True, slots=True)
class Query:
    """A query that has begun.

    `asked` is the message, with who really asked, and with the limits that hold; `question` tells
    what was asked from other questions. `cut` is the id of the files that say what the
    sub-queries are, and `tasks` is their number: if several deliveries begin the query at once, the
    one that is saved first counts. With `in_turn`, each sub-query begins when the one before has
    ended, because a limit may make it needless. `size_bytes` is about how much of shards will be
    read. A statement in SQL has no `read`: it is one sub-query, which opens its own tables. One for
    Spark has `views`: what it may read, by the names that it has for that in `text`; its job has
    the id `cut`.
    """

    asked: AnswerQuery
    question: str
    begun_ms: int
    cut: str
    tasks: int
    read: ReadTable | None = None
    in_turn: bool = False
    size_bytes: int = 0
    views: Mapping[str, ReadTable] = field(default_factory=dict)
    text: str = ""

    @property
    def id(self) -> str:
        """The id of the query."""
        return self.asked.query_id

    @property
    def tracked_job(self) -> TrackedJob:
        """Its job in the tracker."""
        return tracked_query(self.id)

    @property
    def limit(self) -> int | None:
        """How many rows the sub-queries return together, at most; None for all."""
        return None if self.read is None else self.read.selection.limit

    @property
    def deadline_ms(self) -> int:
        """When the query fails if it has not ended."""
        return self.begun_ms + (self.asked.limits.seconds or 0) * 1000


def tracked_query(query_id: str) -> TrackedJob:
    """Return the job of a query in the tracker."""
    return TrackedJob(QUERIES, query_id, "query")


def question(asked: AnswerQuery) -> str:
    """Return what tells one question from another that has the same id."""
    plain = replace(asked, who="", connection=UNSET)
    return blake2b(msgspec.json.encode(plain), digest_size=16).hexdigest()


ColumnsRead: TypeAlias = Mapping[str, tuple[str, ...]]
"""The columns that were read, sorted, by the ids of their tables. A table whose rows were only
counted has none."""


def all_versions(ends: Iterable[TaskEnd]) -> dict[str, tuple[int, ...]]:
    """Return the versions that several sub-queries have read, by the names of tables; all have read
    the same of each.
    """
    return {name: versions for end in ends for name, versions in end.versions.items()}


def all_columns(ends: Iterable[TaskEnd]) -> ColumnsRead:
    """Return what several sub-queries have read together."""
    found: dict[str, set[str]] = {}
    for end in ends:
        for table_id, columns in end.columns.items():
            found.setdefault(table_id, set()).update(columns)
    return {table_id: tuple(sorted(columns)) for table_id, columns in found.items()}


class ResultFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of a result; `name` is relative to the query's prefix."""

    name: str
    rows: int
    size_bytes: int


class TaskEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a sub-query that is done wrote and took.

    `schema` is that of the rows: an Arrow schema as a message of Arrow's, in base64. `requests` and
    `read_bytes` are what was read of shards, `milliseconds` how long the function ran. `columns`
    are those that it read, under whatever name they are in the rows, by the ids of tables.
    """

    files: tuple[ResultFile, ...]
    rows: int
    schema: str
    requests: int = 0
    read_bytes: int = 0
    milliseconds: int = 0
    columns: ColumnsRead = {}
    versions: dict[str, tuple[int, ...]] = {}


EndState = Literal["finished", "failed", "cancelled"]


class QueryEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a query ended: the content of its manifest. It is put last, once, and never changes.

    `question` tells one question from another that has the same id. `error` is the class of the
    error of one that failed. `to` is the queue that this is sent to, if any. `files` are in the
    order of the rows; names are relative to the manifest. `versions` are those that were read, by
    the names of tables, and `columns` those, by the ids of tables. `checksum` covers all other
    bytes.
    """

    query: str
    state: EndState
    question: str
    ended_ms: int
    begun_ms: int = 0
    who: str = ""
    reason: str = ""
    error: str = ""
    to: str = ""
    format: str = ""
    schema: str = ""
    versions: Mapping[str, tuple[int, ...]] = {}
    columns: ColumnsRead = {}
    files: tuple[ResultFile, ...] = ()
    rows: int = 0
    size_bytes: int = 0
    tasks: int = 0
    requests: int = 0
    read_bytes: int = 0
    function_milliseconds: int = 0
    v: int = FORMAT
    checksum: str = checksums.BLANK


class _StoredTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    name: str
    selection: StoredSelection
    filters: str
    aggregations: str


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON form of a query."""

    asked: AnswerQuery
    question: str
    begun_ms: int
    cut: str
    tasks: int
    in_turn: bool
    size_bytes: int
    read: _StoredTable | None
    views: dict[str, _StoredTable] | UnsetType = UNSET
    text: str | UnsetType = UNSET


def encode_query(query: Query, path: str) -> bytes:
    """Return the stored form of a query, for `path`."""
    read = None if query.read is None else _stored(query.read)
    views = {name: _stored(table) for name, table in query.views.items()}
    body = _Stored(
        query.asked,
        query.question,
        query.begun_ms,
        query.cut,
        query.tasks,
        query.in_turn,
        query.size_bytes,
        read,
        views or UNSET,
        query.text or UNSET,
    )
    return encode_stored(_QUERY, FORMAT, path, body)


def decode_query(stored: bytes, path: str) -> Query:
    """Parse the result of `encode_query`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is no query.
    """
    with raise_corrupt(f"{path} is no query", hint=_ASK_AGAIN):
        body = decode_stored(_QUERY, FORMAT, path, stored, _Stored)
        read = None if body.read is None else _loaded(body.read)
        return Query(
            body.asked,
            body.question,
            body.begun_ms,
            body.cut,
            body.tasks,
            read,
            body.in_turn,
            body.size_bytes,
            {name: _loaded(table) for name, table in (body.views or {}).items()},
            body.text or "",
        )


def _stored(read: ReadTable) -> _StoredTable:
    selection = store_selection(read.selection, read.schema)
    return _StoredTable(read.id, read.name, selection, read.filters, read.aggregations)


def _loaded(stored: _StoredTable) -> ReadTable:
    schema, selection = load_selection(stored.selection)
    rules = (stored.filters, stored.aggregations)
    return ReadTable(stored.id, stored.name, schema, selection, *rules)


def encode_task_end(end: TaskEnd, path: str) -> bytes:
    """Return the stored form of the end of a sub-query, for `path`."""
    return encode_stored(_TASK, FORMAT, path, end)


def decode_task_end(stored: bytes, path: str) -> TaskEnd:
    """Parse the result of `encode_task_end`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is no such object.
    """
    with raise_corrupt(f"{path} is not the end of a sub-query", hint=_ASK_AGAIN):
        return decode_stored(_TASK, FORMAT, path, stored, TaskEnd)


def encode_end(end: QueryEnd) -> bytes:
    """Return the manifest of a query, with its checksum."""
    return with_checksum(msgspec.json.format(msgspec.json.encode(end), indent=2))


def decode_end(stored: bytes, path: str) -> QueryEnd:
    """Parse the result of `encode_end`.

    Raises:
        CorruptDataError: the object at `path` is damaged or is no manifest of a query.
    """
    with raise_corrupt(f"{path} is no manifest of a query", hint=_ASK_AGAIN):
        checksums.verify(stored)
        end = decode_json(stored, QueryEnd)
        check_format(end.v, FORMAT)
        return replace(end, checksum=checksums.BLANK)
