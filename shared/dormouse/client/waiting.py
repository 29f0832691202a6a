"""Waiting for work of the instance, by polling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from dormouse.client.ports import Queues
from dormouse.errors import CorruptDataError, TimedOutError
from dormouse.messages import STAGES
from dormouse.ports import Clock

WORKING_QUEUES = tuple(stage.queue for stage in STAGES if stage.changes_tables)
"""The queues of work that changes a table; garbage collection is not waited for."""

WAIT_SECONDS = 600
"""How long to wait if the caller does not say."""

Watch = Callable[[int], None]
"""Called at every poll with the amount of work left."""


class Progress(Protocol):
    """The progress of something that has not ended."""

    @property
    def left(self) -> int:
        """The work left, as far as it is known; 0 if only the end is missing."""


_Progress = TypeVar("_Progress", bound=Progress)


@dataclass(frozen=True, slots=True)
class Polling:
    """Polling by a clock, with `look_every_seconds` between polls.

    `works_here` says that the work is done by this process: while it sleeps, and in the background.
    """

    clock: Clock
    sleep: Callable[[float], None]
    look_every_seconds: float = 0.5
    works_here: bool = False

    def until_nothing(
        self,
        left: Callable[[], int],
        *,
        timeout_seconds: float,
        looks: int = 1,
        watch: Watch | None = None,
    ) -> None:
        """Wait until `left` has returned zero `looks` times in a row.

        Raises:
            TimedOutError: it did not within `timeout_seconds`.
        """
        deadline_ms = self.clock.now_ms() + timeout_seconds * 1000
        zeros = 0
        while True:
            count = left()
            if watch is not None:
                watch(count)
            zeros = zeros + 1 if count == 0 else 0
            if zeros == looks:
                return
            if self.clock.now_ms() >= deadline_ms:
                raise TimedOutError(
                    f"not done after {timeout_seconds:g} seconds: {count} pending",
                    hint="the work goes on; wait longer, or see what failed: `dormouse jobs NAME "
                    "--failed`, `dormouse dlq list`",
                )
            self.sleep(self.look_every_seconds)

    def until_ended(
        self,
        progress: Callable[[], _Progress | None],
        *,
        timeout_seconds: float,
        watch: Callable[[_Progress], None] | None = None,
    ) -> None:
        """Wait until `progress` returns None; call `watch` with each progress until then.

        Raises:
            TimedOutError: it did not within `timeout_seconds`.
        """

        def left() -> int:
            found = progress()
            if found is None:
                return 0
            if watch is not None:
                watch(found)
            return max(1, found.left)

        self.until_nothing(left, timeout_seconds=timeout_seconds)


class Pending(Protocol):
    """A table with work that is pending."""

    def pending(self) -> int:
        """Return how much it is. Raises CorruptDataError if that is unknown."""


def count_pending(
    tables: Iterable[Pending], damaged: Sequence[CorruptDataError], queues: Queues
) -> tuple[int, list[CorruptDataError]]:
    """Return how much is pending, and the damage that makes it unknown for some tables.

    `damaged` is what of the registry is.
    """
    count, found = sum(queues.depths(WORKING_QUEUES).values()), list(damaged)
    for table in tables:
        try:
            count += table.pending()
        except CorruptDataError as error:
            found.append(error)
    return count, found
