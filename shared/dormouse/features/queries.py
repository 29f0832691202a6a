"""A query over messages: what was asked, what was fixed when it began, and how it ended.

All that sub-queries need is fixed when a query begins: the version of the table, its schema, its
row rules, and which shards hold the rows. The end of a query is one object, its manifest, which is
put once: the first writer decides whether a query is finished, failed or cancelled. Until then
nothing of its result is visible; after that, exactly the files that the manifest names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from hashlib import blake2b
from operator import add
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec
from msgspec.structs import astuple, replace

from dormouse.errors import LimitExceededError
from dormouse.features.long_jobs import Parts, ReadTable
from dormouse.features.requests import Kind, ManifestKind, ResultFile
from dormouse.features.versions import query_of
from dormouse.jobs import SweepCheck
from dormouse.messages import stages
from dormouse.ports import Services, Storage
from dormouse.shards.reading import ReadCounters
from dormouse.state.jobs import TrackedJob
from dormouse.state.versions import Pin
from dormouse.stored import paths
from dormouse.tables.properties import Properties

if TYPE_CHECKING:
    from dormouse.statements.limits import Limits


QUERIES = "(queries)"
"""The id under which the tracker keeps the records of queries, which may be about several
tables."""
_ASK_AGAIN = "ask again, with another query_id"


class Query(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
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

    asked: stages.AnswerQuery
    question: str
    begun_ms: int
    cut: str
    tasks: int
    read: ReadTable | None = None
    in_turn: bool = False
    size_bytes: int = 0
    views: dict[str, ReadTable] = {}
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


def question(request: stages.AnswerQuery) -> str:
    """Return what tells one question from another that has the same id."""
    plain = replace(request, who="")
    return blake2b(msgspec.json.encode(plain), digest_size=16).hexdigest()


ColumnsRead: TypeAlias = Mapping[str, tuple[str, ...]]
"""The columns that were read, sorted, by the ids of their tables. A table whose rows were only
counted has none."""


class Spent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is spent, by a sub-query so far or by several that are done: `requests` and `read_bytes`
    on shards, `milliseconds` of functions.
    """

    rows: int = 0
    result_bytes: int = 0
    requests: int = 0
    read_bytes: int = 0
    milliseconds: int = 0

    def plus(self, other: Spent) -> Spent:
        """Return both together."""
        return Spent(*map(add, astuple(self), astuple(other)))


class TaskEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a sub-query that is done wrote and took.

    `schema` is that of the rows: an Arrow schema as a message of Arrow's, in base64. `columns` are
    those that it read, under whatever name they are in the rows, by the ids of tables.
    """

    files: tuple[ResultFile, ...]
    schema: str
    spent: Spent
    columns: ColumnsRead = {}
    versions: dict[str, tuple[int, ...]] = {}


EndState = Literal["finished", "failed", "cancelled"]


class QueryEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a query ended: the content of its manifest. It is put last, once, and never changes.

    `question` tells one question from another that has the same id. `error` is the class of the
    error of one that failed. `to` is the queue that this is sent to, if any. `files` are in the
    order of the rows; names are relative to the manifest. `versions` are those that were read, by
    the names of tables, and `columns` those, by the ids of tables.
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


QUERY = Kind("a query", Query, _ASK_AGAIN)
TASK_END = Kind("the end of a sub-query", TaskEnd, _ASK_AGAIN)
END = ManifestKind("the manifest of a query", QueryEnd, _ASK_AGAIN)


# Save and load what is stored of a query, all of it below its prefix in the results bucket.
#
# The manifest is put last, once. Nothing is ever changed.

_SUB_QUERY = "a sub-query"


def load_query(results: Storage, query_id: str) -> Query | None:
    """Return a query that has begun; None if there is none.
    Raises CorruptDataError: the stored query is damaged.
    """
    return QUERY.get(results, paths.query_path(query_id))


def parts_of(results: Storage, query_id: str, cut: str = "") -> Parts[TaskEnd]:
    """Return the sub-queries of a query; their ends alone, without the `cut` that names them."""
    path = partial(paths.query_task_path, query_id, cut)
    return Parts(results, _SUB_QUERY, path, TASK_END, partial(paths.query_done_path, query_id))


def done_tasks(results: Storage, query: Query) -> list[int]:
    """Return the sub-queries that are done, in order."""
    return parts_of(results, query.id).ended(query.tasks)


def task_messages(query: Query, ends: list[int]) -> list[stages.OutboundMessage]:
    """Return the messages of the sub-queries that can run now; if all are done, of the last one,
    which finishes the query.
    """
    rest = sorted({*range(query.tasks)}.difference(ends))
    next_tasks = rest[:1] if query.in_turn else rest
    tasks = next_tasks or [query.tasks - 1]
    return [
        stages.OutboundMessage("queries", stages.QueryTask(query.id, task, query.asked.who))
        for task in tasks
    ]


def spark_job(query: Query) -> stages.OutboundMessage:
    """Return the message that has Spark compute a statement."""
    home = next(iter(query.views.values()))
    job = stages.StatementJob(home.id, query.cut, query.id, query.asked.spark)
    return stages.OutboundMessage("spark-jobs", job)


def load_end(results: Storage, query_id: str) -> QueryEnd | None:
    """Return how a query ended; None if it has not.
    Raises CorruptDataError: the manifest is damaged.
    """
    return END.get(results, paths.query_manifest_path(query_id))


def delete_parts(results: Storage, query_id: str) -> None:
    """Delete all that a query stored but what it asked and how it ended."""
    both = (paths.query_path(query_id), paths.query_manifest_path(query_id))
    names = [
        each.path for each in results.list(paths.query_prefix(query_id)) if each.path not in both
    ]
    results.delete(names)


# What a query may take: rows, bytes, time and money, counted while it is answered.

LOOK_MS = 1000
"""How often a sub-query looks whether it was cancelled, and says how far it is."""
DOLLARS_PER_REQUEST = 0.4e-6
"""Of a GET request of S3; see docs/cost.md."""
DOLLARS_PER_GIB_SECOND = 13.3334e-6
"""Of a function on arm64; see docs/cost.md."""
LEAST_STATEMENT_BYTES = 16 * 1024 * 1024
"""What a statement may take of the memory at least, however small the function."""
MEMORY_SHARE = 3
"""A function has so many times the memory that sorting and merging may use."""
_LESS = "ask for less, or export the rows, with Spark if there are many"


class EndedError(Exception):
    """The query that is being answered has ended: it was cancelled, or failed elsewhere."""


def total(ends: Iterable[TaskEnd]) -> Spent:
    """Return what sub-queries that are done have spent together."""
    return reduce(Spent.plus, (end.spent for end in ends), Spent())


def effective_limits(limits: stages.QueryLimits, properties: Properties) -> stages.QueryLimits:
    """Return the limits of a query: those that it asks for, at most those of the properties."""

    def least(limit: int | None, most: int) -> int:
        return most if limit is None else min(limit, most)

    return replace(
        limits,
        rows=least(limits.rows, properties.query_limit_rows),
        result_bytes=least(limits.result_bytes, properties.query_limit_result_bytes),
        read_bytes=least(limits.read_bytes, properties.query_limit_read_bytes),
        seconds=least(limits.seconds, properties.query_limit_seconds),
    )


def statement_limits(services: Services, query: Query) -> Limits:
    """Return what a statement may take: half of the memory, as the other half reads, and the time
    that the query has left.
    """
    from dormouse.statements.limits import MOST_SECONDS, Limits

    left_ms = max(1000, query.deadline_ms - services.clock.now_ms())
    memory_bytes = max(LEAST_STATEMENT_BYTES, services.memory_bytes // 2)
    return Limits(memory_bytes, min(left_ms / 1000, MOST_SECONDS))


def dollars(usage: Spent, memory_bytes: int) -> float:
    """Return about what reads and functions cost on AWS."""
    gib_seconds = usage.milliseconds / 1000 * MEMORY_SHARE * memory_bytes / 2**30
    return usage.requests * DOLLARS_PER_REQUEST + gib_seconds * DOLLARS_PER_GIB_SECOND


def check_spent(limits: stages.QueryLimits, usage: Spent, memory_bytes: int) -> None:
    """Refuse to go on with a query that has taken more than it may.
    Raises LimitExceededError: it has; the message says of what.
    """
    amounts = (
        ("rows", usage.rows, limits.rows),
        ("bytes of its result", usage.result_bytes, limits.result_bytes),
        ("bytes read of shards", usage.read_bytes, limits.read_bytes),
    )
    for what, count, most in amounts:
        if most is not None and count > most:
            raise LimitExceededError(f"the query took more than {most:,} {what}", hint=_LESS)
    if limits.dollars is not None and dollars(usage, memory_bytes) > limits.dollars:
        raise LimitExceededError(f"the query cost more than ${limits.dollars:g}", hint=_LESS)


def check_time(limits: stages.QueryLimits, begun_ms: int, now_ms: int) -> None:
    """Refuse to go on with a query whose time is over. Raises LimitExceededError: it is."""
    seconds = limits.seconds
    if seconds is not None and now_ms >= begun_ms + seconds * 1000:
        raise LimitExceededError(f"the query took longer than {seconds:,} seconds", hint=_LESS)


@dataclass
class Watch:
    """Watches one sub-query while its rows are read.

    `before` is what other sub-queries have spent. `look` is called from time to time with what this
    one has, and returns whether the query has ended.
    """

    limits: stages.QueryLimits
    begun_ms: int
    memory_bytes: int
    before: Spent
    now_ms: Callable[[], int]
    look: Callable[[Spent], bool]
    rows: int = 0
    _started_ms: int = field(init=False)
    _looked_ms: int = field(init=False)

    def __post_init__(self) -> None:
        self._started_ms = self._looked_ms = self.now_ms()

    def spent(self, reads: ReadCounters, result_bytes: int) -> Spent:
        """Return what the sub-query has spent so far."""
        took_ms = self.now_ms() - self._started_ms
        return Spent(self.rows, result_bytes, reads.requests, reads.size_bytes, took_ms)

    def check(self, reads: ReadCounters, result_bytes: int) -> None:
        """Look whether to go on after a batch of rows.

        Raises:
            LimitExceededError: the query took too much.
            EndedError: it has ended.
        """
        now_ms = self.now_ms()
        check_time(self.limits, self.begun_ms, now_ms)
        usage = self.spent(reads, result_bytes)
        check_spent(self.limits, self.before.plus(usage), self.memory_bytes)
        if now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = now_ms
            if self.look(usage):
                raise EndedError


# Queries that have not ended in time, which a sweep continues; and what ended ones left.
#
# The pins of a table name the queries that read it: a pin is put before anything else, and removed
# after all else, also when it has expired. So no listing of results is needed.

FUNCTION_MS = 15 * 60 * 1000
"""How long a function may still be at work on a query that is not stored yet, or has ended; none
runs for longer."""


def overdue_queries(check: SweepCheck) -> Iterator[stages.OutboundMessage]:
    """Yield messages of queries that are due; delete the parts of queries without a result, and
    the pins of all that ended.
    """
    pins = check.services.store(check.table).pins
    for pin in pins.all(expired=True):
        query_id = query_of(pin)
        if query_id is not None:
            with check.going_on():
                yield from _followed(check, pin, query_id)


def _followed(check: SweepCheck, pin: Pin, query_id: str) -> list[stages.OutboundMessage]:
    services = check.services
    results, now_ms = services.results, services.clock.now_ms()
    end = load_end(results, query_id)
    if end is not None:
        if end.state != "finished":
            delete_parts(results, query_id)
            if now_ms < end.ended_ms + FUNCTION_MS:  # an attempt may still write: look again then
                return []
        services.store(check.table).pins.remove(pin.owner)
        return []
    query = load_query(results, query_id)
    if query is None:
        if pin.pinned_ms < now_ms - FUNCTION_MS:  # its message is dead, or was never sent
            services.store(check.table).pins.remove(pin.owner)
        return []
    if now_ms < query.deadline_ms and not check.is_due(query.begun_ms):
        return []
    return task_messages(query, done_tasks(results, query))
