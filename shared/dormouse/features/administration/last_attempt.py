"""Reply to requests whose last delivery failed, so that they become dead letters.

The reply is ``failed``, and says that a person may redrive the message; the request is then carried
out after all. A request whose jobs have been saved does not fail: its jobs go on, and the reply
follows when they have ended. A process that crashes in its last attempt sends no reply.
"""

from __future__ import annotations

from dormouse.errors import DormouseError
from dormouse.features.administration.request_context import ATTEMPTS_FAILED, RequestContext
from dormouse.messages.replies import reply_to, to_outbound
from dormouse.messages.requests import AdminRequest, verb_of
from dormouse.messages.stages import OutboundMessage, RequestStep
from dormouse.ports.services import Services

DEAD_LETTER = (
    "its message is in the dead-letter queue of admin: redrive it to carry the request out after "
    "all, or discard it"
)
MAY_HAVE_JOBS = (
    "if an earlier delivery has started its jobs, they go on, and a reply follows when they end"
)
OUTCOME_UNREADABLE = "its jobs go on; a reply follows once their outcome can be read"


def fail_request(
    services: Services, request: AdminRequest, error: Exception
) -> list[OutboundMessage]:
    """Record that a request failed for the last time; return the reply, if one is wanted.

    If its table, or the stored request, cannot be read, nothing is recorded.
    """
    reason = f"{ATTEMPTS_FAILED}: {_reason(error)}; {DEAD_LETTER}"
    try:
        context = RequestContext.of(services, request)
        has_jobs = context.final_reply() is not None or context.stored() is not None
        if has_jobs or context.earlier_record() is not None:
            return []
        reply = context.reply("failed", reason=reason, is_last_attempt=True)
        context.record(reply)
    except DormouseError:
        reply = reply_to(
            request.request_id,
            verb_of(request),
            "failed",
            reason=f"{reason}; {MAY_HAVE_JOBS}",
            is_last_attempt=True,
        )
    return [to_outbound(reply)] if request.reply else []


def fail_step(step: RequestStep, error: Exception) -> list[OutboundMessage]:
    """Return the reply that the outcome of a request cannot be read.

    Empty for a step that a sweep started: it does not name the request.
    """
    if not step.request_id or not step.request:
        return []
    reply = reply_to(
        step.request_id,
        step.request,
        "failed",
        table_id=step.table_id,
        reason=f"{OUTCOME_UNREADABLE}: {_reason(error)}",
        is_last_attempt=True,
    )
    return [to_outbound(reply)]


def _reason(error: Exception) -> str:
    """Return why an attempt failed. The text of a foreign error is left out: it may quote rows."""
    if isinstance(error, DormouseError):
        return error.explanation
    return f"an unexpected {type(error).__name__}; the function's log has the details"
