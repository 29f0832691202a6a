"""Waiting for work of the instance, by polling.

A wait ends early if what is left of its work is a dead letter: nobody would ever do it.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Protocol, TypeVar
from urllib.parse import unquote_plus

from dormouse.errors import (
    CorruptDataError,
    DeadLetterError,
    NotFoundError,
    TimedOutError,
    UnavailableError,
)
from dormouse.messages.stages import STAGES, Message, OutboundMessage
from dormouse.ports import DeadLetter, QueueCounts, Services
from dormouse.showing import HtmlText, Shown, show_facts
from dormouse.state.sources import Source
from dormouse.system import Clock

if TYPE_CHECKING:
    from dormouse.client.instance import Instance
    from dormouse.client.table import TableHandle
    from dormouse.messages.requests import AdminRequest

# The ports that only the client uses; `aws` implements them.


class Queues(Protocol):
    """The queues: send messages, and count those that wait."""

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        """Send all messages. Raises UnavailableError if some may not have been sent."""

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Return the number of messages in each queue that wait or are in flight, not delayed."""

    def counts(self, queues: Sequence[str]) -> dict[str, QueueCounts]:
        """Return the message counts of each queue by state, some seconds old."""


QueueAges = Callable[[Sequence[str], int], dict[str, float]]
"""Returns the age in seconds of the oldest message at a time in milliseconds, for the queues where
it is known. Raises UnavailableError."""
SparkApplication = Callable[[], tuple[str, str] | None]
"""Returns the id and the state of where an instance's Spark jobs run; None if it has no Spark.
Raises UnavailableError."""
ResultLink = Callable[[str, int], str]
"""Returns a URL by which anybody can GET a file of a result for so many seconds, for callers
without the right to read the results bucket; empty if there is none."""


class IngestBucket(Protocol):
    """The ingest bucket, for uploads."""

    @property
    def name(self) -> str:
        """The name of the bucket."""

    def drop(self, key: str, local: Path, *, once: bool = False) -> Source:
        """Upload a local file; return the source that its notification will name.

        With `once`, an object that is there under `key` is not replaced; its source is returned.
        """

    def upload_url(self, key: str, seconds: int) -> str:
        """Return a URL by which anybody can PUT the content of `key` for so many seconds; empty if
        there is none.
        """


logger = logging.getLogger("dormouse")

WORKING_QUEUES = tuple(stage.queue for stage in STAGES if stage.changes_tables)
"""The queues of work that changes a table; garbage collection is not waited for."""

FILE_QUEUES = ("files", "ingest-jobs", "spark-jobs")
"""The queues of a file on its way into a table."""

WAIT_SECONDS = 600
"""How long to wait if the caller does not say."""

STALLED_LOOKS = 16
"""After so many looks without progress, dead letters are looked at; then after twice as many."""

PAUSE_SHARE, PAUSE_MOST_SECONDS = 4, 10.0
"""A look is followed by a pause so many times as long as it took, within bounds: who waits for a
folder does its work meanwhile."""

SAY_SECONDS = 60
"""After so long a wait says what it waits for; then after twice as long."""

NAMED = 3
"""How many things that are pending a text names."""

Watch = Callable[[int], None]
"""Called at every poll with the amount of work left."""


class Progress(Protocol):
    """The progress of something that has not ended."""

    @property
    def left(self) -> int:
        """The work left, as far as it is known; 0 if only the end is missing."""


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """The progress of an export or of a query: tasks done, and all tasks, once they are known."""

    done: int = 0
    tasks: int = 0

    @property
    def left(self) -> int:
        """The number of tasks that are not done."""
        return self.tasks - self.done


_Progress = TypeVar("_Progress", bound=Progress)
_P = ParamSpec("_P")

Named = tuple[str, ...]
"""Texts all of which are in a message that is about something."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """What a caller waits for, as messages name it.

    `names` returns the names of what is left, and `sent_to` the queues of the messages about it.
    With `queues`, messages from before `since_ms` may be about an earlier attempt at the same: such
    a dead letter counts only while no message waits or is worked on. If `is_known` says that
    nothing is recorded of it, and nobody has a message, there is nothing to wait for.
    """

    services: Services
    sent_to: Sequence[str]
    names: Callable[[], Iterable[Named]]
    queues: Queues | None = None
    since_ms: int = 0
    is_known: Callable[[], bool] = lambda: True

    def check(self) -> None:
        """Raise DeadLetterError if nobody works on what is left, and a dead letter is about it;
        NotFoundError if nothing is.
        """
        try:
            entry = self._dead_letter()
            is_known = entry is not None or self.is_known() or bool(self._working_queues())
        except UnavailableError:  # who waits may have no right to look at dead letters
            return
        if entry is not None:
            queue, letter = entry
            raise dead_letter_error("what is waited for failed at each attempt", queue, letter)
        if not is_known:
            raise NotFoundError(f"nothing is known of {self.examples()}")

    def examples(self) -> str:
        """Return the names of some of what is left, or where its messages are; empty if neither is
        known.
        """
        first = [name[0] for name in islice(self.names(), NAMED + 1)]
        if not first:
            return ", ".join(f"messages in {queue}" for queue in self._working_queues())
        return ", ".join([*first[:NAMED], *("…" for _ in first[NAMED:])])

    def _working_queues(self) -> list[str]:
        counts = self.queues.counts(self.sent_to) if self.queues is not None else {}
        return [queue for queue, c in counts.items() if c.waiting + c.in_flight + c.delayed]

    def _dead_letter(self) -> tuple[str, DeadLetter] | None:
        from dormouse.features.dead_letters import list_letters

        names: list[Named] = []
        for queue in self.sent_to:
            for letter in list_letters(self.services, queue):
                texts, names = set(texts_of(letter.body)), names or list(self.names())
                if any(texts.issuperset(name) for name in names) and (
                    letter.sent_ms >= self.since_ms or not self._working_queues()
                ):
                    return queue, letter
        return None


def dead_letter_error(what: str, queue: str, letter: DeadLetter) -> DeadLetterError:
    """Return the error that names a dead letter and what to do with it."""
    return DeadLetterError(
        f"{what}: its message is dead letter {letter.id} of queue {queue}: {letter.reason}",
        hint=f"repair the cause, then run `dormouse dlq redrive {queue} --id {letter.id}`; "
        f"or give it up: `dormouse dlq discard {queue} --id {letter.id}`",
    )


def source_names(sources: Iterable[Source]) -> Iterator[Named]:
    """Yield the names of files in messages: key and content."""
    return ((source.key, source.etag) for source in sources)


def texts_of(body: str) -> Iterator[str]:
    """Yield the texts in the JSON of a message; S3 encodes keys as in a URL, so also decoded."""
    try:
        stack = [json.loads(body)]
    except (ValueError, RecursionError):  # then nobody knows what it is about
        return
    while stack:
        match stack.pop():
            case dict() as entries:
                stack += entries.values()
            case list() as items:
                stack += items
            case str() as text:
                yield text
                yield unquote_plus(text)


@dataclass(frozen=True, slots=True)
class Polling:
    """Polling by a clock, with `look_every_seconds` between polls.

    `works_here` says that the work is done by this process: while it sleeps, and in the background.
    A wait without progress calls `stalls`, ever more rarely.
    """

    clock: Clock
    sleep: Callable[[float], None]
    look_every_seconds: float = 0.5
    works_here: bool = False
    stalls: Callable[[], None] = lambda: None

    def awaited(
        self,
        caller: "Instance | TableHandle",
        names: Callable[[], Iterable[Named]],
        sent_to: Sequence[str] = WORKING_QUEUES,
    ) -> Awaited:
        """Return what is waited for from now on, and may have been tried before."""
        return Awaited(caller.services, sent_to, names, caller.queues, self.clock.now_ms())

    def until_nothing(
        self,
        pending: Callable[[], int],
        *,
        timeout_seconds: float,
        looks: int = 1,
        watch: Watch | None = None,
        awaited: Awaited | None = None,
    ) -> None:
        """Wait until `pending` has returned zero `looks` times in a row.

        Raises:
            TimedOutError: it did not within `timeout_seconds`.
            DeadLetterError: nobody works on what is left of `awaited`.
        """
        deadline_ms = self.clock.now_ms() + float(timeout_seconds) * 1000
        zeros, last, stalled, due = 0, -1, 0, STALLED_LOOKS
        begun_ms, say_seconds = self.clock.now_ms(), SAY_SECONDS
        while True:
            looked_ms = self.clock.now_ms()
            count = pending()
            looked_seconds = (self.clock.now_ms() - looked_ms) / 1000
            if watch is not None:
                watch(count)
            # Work moves between the queues that are counted, so one look may miss it.
            zeros = zeros + 1 if count == 0 else 0
            if zeros == looks:
                return
            stalled = stalled + 1 if count == last else 0
            due, last = due if stalled else STALLED_LOOKS, count
            is_late = count > 0 and self.clock.now_ms() >= deadline_ms
            if count and (is_late or stalled == due):
                self.stalls()
                if awaited is not None:
                    awaited.check()
                due *= 2
            if is_late:
                raise TimedOutError(
                    f"not done after {timeout_seconds:g} seconds: {_pending(count, awaited)}",
                    hint="the work goes on; wait longer, or see what failed: `dormouse jobs NAME "
                    "--failed`, `dormouse dlq list`",
                )
            waited_seconds = (self.clock.now_ms() - begun_ms) // 1000
            if waited_seconds >= say_seconds:
                logger.warning("waiting for %d s: %s", waited_seconds, _pending(count, awaited))
                say_seconds = 2 * waited_seconds
            pause_seconds = min(PAUSE_SHARE * looked_seconds, PAUSE_MOST_SECONDS)
            self.sleep(max(self.look_every_seconds, pause_seconds))

    def until_ended(
        self,
        progress: Callable[[], _Progress | None],
        *,
        timeout_seconds: float,
        watch: Callable[[_Progress], None] | None = None,
        awaited: Awaited | None = None,
    ) -> None:
        """Wait until `progress` returns None; call `watch` with each progress until then.

        Raises:
            TimedOutError: it did not within `timeout_seconds`.
            DeadLetterError: nobody works on what is left of `awaited`.
        """

        def left() -> int:
            state = progress()
            if state is None:
                return 0
            if watch is not None:
                watch(state)
            return max(1, state.left)

        self.until_nothing(left, timeout_seconds=timeout_seconds, awaited=awaited)


def _pending(count: int, awaited: Awaited | None) -> str:
    names = awaited.examples() if awaited is not None else ""
    return f"{count} pending ({names})" if names else f"{count} pending"


def pending_names(tables: "Iterable[TableHandle]") -> Iterator[Named]:
    """Yield how messages name what is pending of tables, as far as it is known."""
    for table in tables:
        with suppress(CorruptDataError):  # `count_pending` returns these
            yield from table.pending_names()


def count_pending(
    tables: "Iterable[TableHandle]", damaged: Sequence[CorruptDataError], queues: Queues
) -> tuple[int, list[CorruptDataError]]:
    """Return how much is pending, and the damage that makes it unknown for some tables.

    `damaged` is what of the registry is.
    """
    count, errors = sum(queues.depths(WORKING_QUEUES).values()), list(damaged)
    for table in tables:
        try:
            count += table.pending()
        except CorruptDataError as error:
            errors.append(error)
    return count, errors


def administer(
    caller: "Instance | TableHandle",
    kind: "Callable[Concatenate[str, _P], AdminRequest]",
    *args: _P.args,
    **named: _P.kwargs,
) -> list[Message]:
    """Carry out a request under a new id; return the messages that follow, which are sent."""
    return carry_out(caller, kind(caller.services.ids.new(), *args, **named))


def carry_out(caller: "Instance | TableHandle", request: "AdminRequest") -> list[Message]:
    """Carry out a request; return the messages that follow, which are sent."""
    from dormouse.features import administration

    messages = administration.administer(caller.services, request, once=True)
    caller.queues.send(messages)
    return [each.message for each in messages]


@dataclass(frozen=True, slots=True, repr=False)
class Status(Shown):
    """A table in numbers, all but `pending` at one version.

    `shards` are those with rows that count, and `size_bytes` the size of their files; `references`
    the rows of a shard in a partition;
    `rows` is what the references say, an estimate where a partition was split not long ago.
    `files_waiting` counts the files that were dropped for the table, and are neither ingested nor
    refused. `pending` counts these, assigned jobs, purges, and messages in the instance's working
    queues, those of other tables too: 0 means that all is done.
    """

    rows: int
    size_bytes: int
    shards: int
    references: int
    partitions: int
    leaf_partitions: int
    version: int
    files_waiting: int
    pending: int

    def _shown(self) -> tuple[str, HtmlText]:
        return show_facts("status", asdict(self))
