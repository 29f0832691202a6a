"""redrive: send the dead letters of a queue back to it, by request."""

from __future__ import annotations

from dormouse.errors import UnavailableError
from dormouse.features.dead_letters import dead_letters
from dormouse.features.requests.work import RequestResult
from dormouse.messages.replies import Counts
from dormouse.messages.requests import Redrive
from dormouse.ports.services import Services


def redrive(services: Services, request: Redrive) -> RequestResult:
    """Redrive the requested dead letters, and return their number.

    Raises:
        NotFoundError: there is no such queue, or no such dead letter.
        UnavailableError: some could not be sent or deleted; retry the request.
    """
    done = dead_letters.redrive(services, dead_letters.resolve_queue(request.queue), request.ids)
    if left := len(done.unsent) + len(done.undeleted):
        raise UnavailableError(f"{left} dead letters of queue {request.queue!r} are still there")
    return RequestResult(counts=Counts(messages=len(done.sent)))
