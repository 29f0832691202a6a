"""administer: carry out a request once, or refuse it with the reason.

A redelivery finishes a request that was interrupted. A request takes effect once, however often it
is delivered: the tracker records it by its id, under its table. Each verb is carried out by the
package of its feature, as its type in `requests` says.

If a request causes jobs, they are saved (`stored_requests`) before their messages are sent.
`follow_request` records their outcome, and replies if a reply is wanted.
"""

from __future__ import annotations

from dormouse.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from dormouse.features.administration.request_context import RequestContext
from dormouse.features.administration.stored_requests import StoredRequest
from dormouse.features.requests.work import RequestResult
from dormouse.messages.replies import to_outbound
from dormouse.messages.requests import AdminRequest
from dormouse.messages.stages import OutboundMessage, load
from dormouse.ports.services import Services


def administer(services: Services, request: AdminRequest) -> list[OutboundMessage]:
    """Carry out a request, or record why it is refused; return the messages that follow.

    Raises:
        InvalidRequestError: the request is invalid, or does not fit the table; or its id belongs to
            another request about that table.
        AlreadyExistsError: the object that the request would create exists.
        NotFoundError: no table has that name.
    """
    context = RequestContext.of(services, request)
    if (messages := _resume(services, context)) is not None:
        return messages
    if (earlier := context.earlier_record()) is not None:
        return context.repeat_reply(earlier)
    try:
        found = load(request.path)(services, request)
    except (InvalidRequestError, AlreadyExistsError, NotFoundError) as error:
        if (messages := _resume(services, context)) is not None:
            return messages
        context.record(context.reply("refused", reason=error.explanation))
        raise
    result = found if isinstance(found, RequestResult) else RequestResult(found or [])
    if (messages := _resume(services, context)) is not None:
        return [*result.messages, *messages]
    return [*result.messages, *context.record_result(result)]


def _resume(services: Services, context: RequestContext) -> list[OutboundMessage] | None:
    """Return the messages of a request that another delivery has carried out; None if none has.

    It is called again after this delivery has carried the request out or refused it, since another
    delivery may have been faster: its result counts then. For example, this delivery may find no
    shards to compact, because the other one has assigned them all.
    """
    if (reply := context.final_reply()) is not None:
        context.check_verb(reply.request)
        return [to_outbound(reply)] if context.request.reply else []
    if (stored := context.stored()) is not None:
        context.check_verb(stored.verb)
        return _resend(services, context, stored)
    return None


def _resend(
    services: Services, context: RequestContext, stored: StoredRequest
) -> list[OutboundMessage]:
    """Return the messages of the unfinished work, since those sent before may be lost."""
    table = services.table(context.table_id)
    context.record(context.accepted_reply(stored))
    messages = stored.work.unfinished_messages(services, table) if table is not None else []
    return [*messages, *context.follow(stored)]
