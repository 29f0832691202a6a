"""The queues of an instance in numbers, and its dead letters: shown, redriven, discarded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct

from dormouse.client.ports import QueueAges, Queues
from dormouse.errors import UnavailableError
from dormouse.messages.stages import QUEUES
from dormouse.ports.services import DeadLetter, Services
from dormouse.stored.names import dead_letter_queue

if TYPE_CHECKING:
    from dormouse.features.dead_letters.dead_letters import Redriven


SAMPLE = 50
"""How many dead letters of a queue are read for a summary."""


class Queue(Struct, frozen=True):
    """A queue: its messages, some seconds ago. `oldest_seconds` is null if it is unknown."""

    queue: str
    waiting: int
    in_flight: int
    delayed: int
    dead: int
    oldest_seconds: float | None


@dataclass(frozen=True, slots=True)
class DeadSummary:
    """The dead letters of a queue: how many, since when, and why, the commonest reason first.

    `oldest_ms` and `reasons` are of the first fifty at most; None if none can be read.
    """

    queue: str
    dead: int
    oldest_ms: int | None
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeadLetterQueues:
    """All dead letters of an instance. Queues are named as in `messages.QUEUES`."""

    services: Services
    queues: Queues

    def summary(self) -> list[DeadSummary]:
        """Return every queue with its dead letters, in the order of the flow."""
        counts = self.queues.counts([dead_letter_queue(queue) for queue in QUEUES])
        return [
            self._summary(queue, dead.waiting + dead.in_flight)
            for queue, dead in ((queue, counts[dead_letter_queue(queue)]) for queue in QUEUES)
        ]

    def show(self, queue: str) -> list[DeadLetter]:
        """Return the dead letters of a queue, the oldest first; they stay where they are.

        Raises:
            NotFoundError: there is no such queue.
        """
        from dormouse.features.dead_letters.dead_letters import list_letters, resolve_queue

        return list_letters(self.services, resolve_queue(queue))

    def redrive(self, queue: str, ids: Collection[str] = ()) -> Redriven:
        """Send dead letters back to their queue, those of `ids` or all, and delete them here.

        Raises:
            NotFoundError: there is no such queue, or no dead letter has one of the ids.
            UnavailableError: the queues do not answer; call it again for what is left.
        """
        from dormouse.features.dead_letters.dead_letters import redrive, resolve_queue

        return redrive(self.services, resolve_queue(queue), ids)

    def discard(self, queue: str, ids: Collection[str] = ()) -> Redriven:
        """Delete dead letters for good, those of `ids` or all; what they ask for is never done.

        Raises:
            NotFoundError: there is no such queue, or no dead letter has one of the ids.
            UnavailableError: the queues do not answer; call it again for what is left.
        """
        from dormouse.features.dead_letters.dead_letters import discard, resolve_queue

        return discard(self.services, resolve_queue(queue), ids)

    def _summary(self, queue: str, dead: int) -> DeadSummary:
        from dormouse.features.dead_letters.dead_letters import list_letters

        seen = list_letters(self.services, queue, SAMPLE)
        reasons = Counter(letter.reason for letter in seen).most_common()
        return DeadSummary(
            queue,
            max(dead, len(seen)),
            min((letter.sent_ms for letter in seen), default=None),
            tuple(reason for reason, _ in reasons),
        )


def queue_states(queues: Queues, ages: QueueAges, now_ms: int) -> tuple[list[Queue], str]:
    """Return every queue in the order of the flow; and why ages are unknown, if they are."""
    names = [*QUEUES, *map(dead_letter_queue, QUEUES)]
    counts, unknown = queues.counts(names), ""
    try:
        known = ages.ages(QUEUES, now_ms)
    except UnavailableError as error:  # the counts are worth showing without them
        known, unknown = {}, error.explanation
    states = []
    for queue in QUEUES:
        found, dead = counts[queue], counts[dead_letter_queue(queue)]
        states.append(
            Queue(
                queue,
                found.waiting,
                found.in_flight,
                found.delayed,
                dead.waiting + dead.in_flight,
                known.get(queue),
            )
        )
    return states, unknown
