"""Requests whose message failed each time it came, and is about to be a dead letter.

The reply is ``failed``, and says that a person may redrive the message, which is then carried out
after all. A request that has begun does not fail: its jobs go on, and the reply follows when they
have ended. A process that crashes in its last attempt sends no reply.
"""

from __future__ import annotations

from dormouse.errors import DormouseError
from dormouse.features.administration.about import GIVEN_UP, About
from dormouse.messages import OutboundMessage, RequestStep
from dormouse.ports import Services
from dormouse.replies import reply_to, to_outbound
from dormouse.requests import AdminRequest, verb_of

AFTERWARDS = (
    "its message is among the dead letters of the queue admin: it is done after all if that is "
    "sent back, and never if that is discarded"
)
UNREAD = "if an earlier delivery has begun it, that goes on, and is answered when it has ended"
NOT_KNOWN = "its jobs go on, but how they end is not known; it is answered once that can be read"


def give_up_request(
    services: Services, request: AdminRequest, error: Exception
) -> list[OutboundMessage]:
    """Record that a request failed for the last time; return the reply that says so.

    Where its table, or what is kept of the request, cannot be read, only the reply can say so.
    """
    reason = f"{GIVEN_UP}: {_reason(error)}; {AFTERWARDS}"
    try:
        about = About.of(services, request)
        is_begun = about.last_reply() is not None or about.asked() is not None
        if is_begun or about.earlier() is not None:
            return []
        reply = about.reply("failed", reason=reason, is_given_up=True)
        about.record(reply)
    except DormouseError:
        reply = reply_to(
            request.request_id,
            verb_of(request),
            "failed",
            reason=f"{reason}; {UNREAD}",
            is_given_up=True,
        )
    return [to_outbound(reply)] if request.reply else []


def give_up_step(step: RequestStep, error: Exception) -> list[OutboundMessage]:
    """Return the reply that the end of a request cannot be known; none where a sweep looked."""
    if not step.request_id or not step.request:
        return []
    reply = reply_to(
        step.request_id,
        step.request,
        "failed",
        table_id=step.table_id,
        reason=f"{NOT_KNOWN}: {_reason(error)}",
        is_given_up=True,
    )
    return [to_outbound(reply)]


def _reason(error: Exception) -> str:
    """Return why something failed; what is none of our errors may quote rows."""
    if isinstance(error, DormouseError):
        return error.explanation
    return f"an unforeseen {type(error).__name__}; the function's log says more"
