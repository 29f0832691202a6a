"""What a query may take: rows, bytes, time and money, counted while it is answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from dormouse.errors import LimitExceededError
from dormouse.features.queries.query import Query
from dormouse.messages.queries import QueryLimits
from dormouse.ports.services import Services
from dormouse.readers.read_counters import ReadCounters
from dormouse.tables.properties import Properties

if TYPE_CHECKING:
    from dormouse.statements.limits import Limits

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


@dataclass(frozen=True, slots=True)
class Spent:
    """What is spent, by a sub-query so far or by several that are done."""

    rows: int = 0
    result_bytes: int = 0
    requests: int = 0
    read_bytes: int = 0
    milliseconds: int = 0

    def plus(self, other: Spent) -> Spent:
        """Return both together."""
        return Spent(
            self.rows + other.rows,
            self.result_bytes + other.result_bytes,
            self.requests + other.requests,
            self.read_bytes + other.read_bytes,
            self.milliseconds + other.milliseconds,
        )


def effective_limits(asked: QueryLimits, properties: Properties) -> QueryLimits:
    """Return the limits of a query: those that it asks for, at most those of the properties."""

    def least(wanted: int | None, most: int) -> int:
        return most if wanted is None else min(wanted, most)

    return replace(
        asked,
        rows=least(asked.rows, properties.query_limit_rows),
        result_bytes=least(asked.result_bytes, properties.query_limit_result_bytes),
        read_bytes=least(asked.read_bytes, properties.query_limit_read_bytes),
        seconds=least(asked.seconds, properties.query_limit_seconds),
    )


def statement_limits(services: Services, query: Query) -> Limits:
    """Return what a statement may take: half of the memory, as the other half reads, and the time
    that the query has left.
    """
    from dormouse.statements.limits import MOST_SECONDS, Limits

    left_ms = max(1000, query.deadline_ms - services.clock.now_ms())
    memory_bytes = max(LEAST_STATEMENT_BYTES, services.memory_bytes // 2)
    return Limits(memory_bytes, min(left_ms / 1000, MOST_SECONDS))


def dollars(spent: Spent, memory_bytes: int) -> float:
    """Return about what reads and functions cost on AWS."""
    gib_seconds = spent.milliseconds / 1000 * MEMORY_SHARE * memory_bytes / 2**30
    return spent.requests * DOLLARS_PER_REQUEST + gib_seconds * DOLLARS_PER_GIB_SECOND


def check_spent(limits: QueryLimits, spent: Spent, memory_bytes: int) -> None:
    """Refuse to go on with a query that has taken more than it may.

    Raises:
        LimitExceededError: it has; the message says of what.
    """
    taken = (
        ("rows", spent.rows, limits.rows),
        ("bytes of its result", spent.result_bytes, limits.result_bytes),
        ("bytes read of shards", spent.read_bytes, limits.read_bytes),
    )
    for what, count, most in taken:
        if most is not None and count > most:
            raise LimitExceededError(f"the query took more than {most:,} {what}", hint=_LESS)
    if limits.dollars is not None and dollars(spent, memory_bytes) > limits.dollars:
        raise LimitExceededError(f"the query cost more than ${limits.dollars:g}", hint=_LESS)


def check_time(limits: QueryLimits, begun_ms: int, now_ms: int) -> None:
    """Refuse to go on with a query whose time is over.

    Raises:
        LimitExceededError: it is.
    """
    seconds = limits.seconds
    if seconds is not None and now_ms >= begun_ms + seconds * 1000:
        raise LimitExceededError(f"the query took longer than {seconds:,} seconds", hint=_LESS)


@dataclass
class Watch:
    """Watches one sub-query while its rows are read.

    `before` is what other sub-queries have spent. `look` is called from time to time with what this
    one has, and returns whether the query has ended.
    """

    limits: QueryLimits
    begun_ms: int
    memory_bytes: int
    before: Spent
    now_ms: Callable[[], int]
    look: Callable[[Spent], bool]
    rows: int = 0
    _started_ms: int = field(init=False)
    _looked_ms: int = field(init=False)

    def __post_init__(self) -> None:
        """Begin."""
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
        spent = self.spent(reads, result_bytes)
        check_spent(self.limits, self.before.plus(spent), self.memory_bytes)
        if now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = now_ms
            if self.look(spent):
                raise EndedError
