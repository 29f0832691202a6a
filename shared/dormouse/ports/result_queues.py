"""The queues that results of queries are sent to: those of the instance's own list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dormouse.errors import InvalidRequestError, NotFoundError


class ResultQueues(Protocol):
    """Sends texts to queues that the instance was deployed with; a message names one of them."""

    def check(self, queue: str) -> None:
        """Check that results can be sent to a queue.

        Raises:
            InvalidRequestError: the queue is not of the list.
            NotFoundError: it is gone.
            UnavailableError: the service does not answer.
        """

    def send(self, queue: str, group: str, bodies: Sequence[str]) -> None:
        """Send texts, in order; those of a `group` stay in order where a queue keeps any.

        Raises:
            InvalidRequestError, NotFoundError: as `check`; nothing more is sent.
            UnavailableError: some may not have been sent; send all again.
        """


class NoResultQueues:
    """`ResultQueues` of an instance that has none."""

    def check(self, queue: str) -> None:
        """Refuse any queue."""
        raise not_listed(queue, ())

    def send(self, queue: str, group: str, bodies: Sequence[str]) -> None:
        """Refuse any queue."""
        self.check(queue)


def not_listed(queue: str, listed: Sequence[str]) -> InvalidRequestError:
    """Return the error for a queue that results are not sent to."""
    return InvalidRequestError(
        f"results are not sent to a queue {queue!r}",
        hint=f"name one of {', '.join(listed)}" if listed else "this instance has no ResultQueues",
    )


def gone(queue: str) -> NotFoundError:
    """Return the error for a queue of the list that is not there, or cannot be sent to."""
    return NotFoundError(
        f"the queue {queue!r} of ResultQueues is gone, or takes nothing from this instance",
        hint="create it, let its policy and key allow answer_query, or send results elsewhere",
    )
