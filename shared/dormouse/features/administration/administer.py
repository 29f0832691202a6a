"""administer: carry out a request once, or refuse it with the reason.

A redelivery finishes a request that was interrupted. A request takes effect once, however often it
is delivered: the tracker records it by its id, under its table. Each verb is carried out by the
package of its feature.

If a request causes jobs, they are saved (`answering`) before their messages are sent, and
`follow_request` records their outcome, and replies if a reply is wanted.
"""

from __future__ import annotations

from dormouse.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from dormouse.features.administration.request_context import About
from dormouse.features.administration.stored_requests import Asked
from dormouse.features.administration.verbs import VERBS
from dormouse.features.requests.work import Begun
from dormouse.messages import OutboundMessage
from dormouse.ports import Services
from dormouse.replies import to_outbound
from dormouse.requests import AdminRequest


def administer(services: Services, request: AdminRequest) -> list[OutboundMessage]:
    """Do what is asked, or record why not.

    Raises:
        InvalidRequestError: what is asked makes no sense, or not for this table; or the id is that
            of another request about it.
        AlreadyExistsError: what is to be made exists.
        NotFoundError: no table of that name exists.
    """
    about = About.of(services, request)
    if (known := _known(services, about)) is not None:
        return known
    if (earlier := about.earlier()) is not None:
        return about.repeated(earlier)
    try:
        found = VERBS[type(request)].run(services, request)
    except (InvalidRequestError, AlreadyExistsError, NotFoundError) as error:
        if (known := _known(services, about)) is not None:
            return known
        about.record(about.reply("refused", reason=error.explanation))
        raise
    begun = found if isinstance(found, Begun) else Begun(found or [])
    if (known := _known(services, about)) is not None:
        return [*begun.messages, *known]
    return [*begun.messages, *about.begin(begun)]


def _known(services: Services, about: About) -> list[OutboundMessage] | None:
    """Return what follows from what a delivery has begun or done before; None if none has.

    Another one may have been quicker while this one looked at the table: then what this one finds
    left to do says nothing of the request.
    """
    if (last := about.last_reply()) is not None:
        about.check_verb(last.request)
        return [to_outbound(last)] if about.request.reply else []
    if (asked := about.asked()) is not None:
        about.check_verb(asked.request)
        return _begun_before(services, about, asked)
    return None


def _begun_before(services: Services, about: About, asked: Asked) -> list[OutboundMessage]:
    """Return the messages of what is left of a request: those of its beginning may be lost."""
    table = services.table(about.table_id)
    about.record(about.accepted(asked))
    messages = asked.work.messages_again(services, table) if table is not None else []
    return [*messages, *about.follow(asked)]
