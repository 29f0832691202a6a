"""Requests whose message failed each time it came, and is about to be a dead letter.

The reply is ``failed``, and says that a person may redrive the message, which is then carried out
after all. A request that has begun does not fail: its jobs go on, and the reply follows when they
have ended. A process that crashes in its last attempt sends no reply.
"""

from __future__ import annotations

from dormouse.errors import DormouseError
from dormouse.features.administration.request_context import ATTEMPTS_FAILED, About
from dormouse.messages import OutboundMessage, RequestStep
from dormouse.ports import Services
from dormouse.replies import reply_to, to_outbound
from dormouse.requests import AdminRequest, verb_of

AFTERWARDS = (
    "its message is in the dead-letter queue of admin: redriven, it is carried out after all; "
    "discarded, it never is"
)
UNREAD = "if an earlier delivery has begun it, its jobs go on, and a reply follows at their end"
NOT_KNOWN = "its jobs go on; their end cannot be read, and a reply follows once it can"


def fail_request(
    services: Services, request: AdminRequest, error: Exception
) -> list[OutboundMessage]:
    """Record that a request failed for the last time; return the reply that says so.

    If its table, or the stored request, cannot be read, only the reply says so.
    """
    reason = f"{ATTEMPTS_FAILED}: {_reason(error)}; {AFTERWARDS}"
    try:
        about = About.of(services, request)
        is_begun = about.last_reply() is not None or about.asked() is not None
        if is_begun or about.earlier() is not None:
            return []
        reply = about.reply("failed", reason=reason, is_last_attempt=True)
        about.record(reply)
    except DormouseError:
        reply = reply_to(
            request.request_id,
            verb_of(request),
            "failed",
            reason=f"{reason}; {UNREAD}",
            is_last_attempt=True,
        )
    return [to_outbound(reply)] if request.reply else []


def fail_step(step: RequestStep, error: Exception) -> list[OutboundMessage]:
    """Return the reply that the end of a request cannot be read; none if a sweep began the step."""
    if not step.request_id or not step.request:
        return []
    reply = reply_to(
        step.request_id,
        step.request,
        "failed",
        table_id=step.table_id,
        reason=f"{NOT_KNOWN}: {_reason(error)}",
        is_last_attempt=True,
    )
    return [to_outbound(reply)]


def _reason(error: Exception) -> str:
    """Return why something failed, without the text of a foreign error: it may quote rows."""
    if isinstance(error, DormouseError):
        return error.explanation
    return f"an unforeseen {type(error).__name__}; the function's log says more"
