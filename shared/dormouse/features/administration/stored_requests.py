"""What is kept of the requests whose jobs go on: read, put and deleted here.

Beside its table lies each request with the work that it caused, put before the messages of that
work are sent; a note if a reply is wanted; and, once all has ended, the reply. The request goes
when its end is recorded, and the reply sent if one is wanted. The reply stays for a while, for
deliveries to come.
"""

from __future__ import annotations

import msgspec

from dormouse.features.administration.verbs import AnyWork
from dormouse.features.requests.kept import Kept
from dormouse.features.requests.request_names import (
    request_in,
    request_left_path,
    request_path,
    request_prefix,
    request_reply_path,
    request_wanted_path,
)
from dormouse.messages import OutboundMessage, RequestStep
from dormouse.model.state import DAY_MS
from dormouse.ports import Services
from dormouse.replies import Counts, Reply

FIRST_LOOK_SECONDS = 2
KEPT_MS = 30 * DAY_MS
"""Longer than SQS keeps any message, a dead letter too."""


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request with jobs; it is recorded, and answered if wanted, once its `work` has ended."""

    request_id: str
    request: str
    subject: str
    asked_ms: int
    work: AnyWork
    counts: Counts = Counts()


_ASKED = Kept(
    "a request whose jobs go on",
    Asked,
    "delete this object: the request is not answered any more; the jobs of the table show its end",
)
_REPLY = Kept("a reply", Reply, "delete this object: the reply is made once more")


def keep_asked(services: Services, table_id: str, key: str, asked: Asked) -> Asked:
    """Keep a request and its work; return what counts: that of the first of several deliveries."""
    if _ASKED.put(services, request_path(table_id, key), asked):
        return asked
    return kept_asked(services, table_id, key) or asked


def kept_asked(services: Services, table_id: str, key: str) -> Asked | None:
    """Return a request whose jobs go on; None if its end is known.

    Raises:
        CorruptDataError: what is kept of it is damaged.
    """
    return _ASKED.get(services, request_path(table_id, key))


def want_reply(services: Services, table_id: str, key: str) -> None:
    """Note that somebody wants a reply to a request, which another delivery may not have wanted."""
    services.storage.put(request_wanted_path(table_id, key), b"")


def is_reply_wanted(services: Services, table_id: str, key: str) -> bool:
    """Return whether any delivery of a request wanted a reply."""
    return any(services.storage.list(request_wanted_path(table_id, key)))


def keep_reply(services: Services, table_id: str, key: str, reply: Reply) -> Reply:
    """Keep the last reply to a request, and return the one that counts: the first that was kept."""
    path = request_reply_path(table_id, key)
    if _REPLY.put(services, path, reply):
        return reply
    return _REPLY.get(services, path) or reply


def kept_reply(services: Services, table_id: str, key: str) -> Reply | None:
    """Return the last reply to a request; None while its work has not ended.

    Raises:
        CorruptDataError: what is kept of it is damaged.
    """
    return _REPLY.get(services, request_reply_path(table_id, key))


def forget_answered(services: Services, step: RequestStep) -> None:
    """Forget a request whose last reply was sent, or whose end is recorded if none is wanted."""
    names = (request_left_path, request_wanted_path, request_path)
    services.storage.delete([path(step.table_id, step.key) for path in names])


def first_step(table_id: str, key: str, asked: Asked) -> OutboundMessage:
    """Return the message that begins to look after a request."""
    step = RequestStep(table_id, key, asked.request_id, asked.request)
    return OutboundMessage("admin", step, FIRST_LOOK_SECONDS)


def unanswered(services: Services, table_id: str, now_ms: int) -> tuple[dict[str, int], list[str]]:
    """Return when the requests were asked whose jobs go on, by key; and paths to delete.

    Nobody waits for what was asked so long ago, and no delivery of it is to come.
    """
    asked_ms: dict[str, int] = {}
    spent = []
    for stored in services.storage.list(request_prefix(table_id)):
        key, is_request = request_in(stored.path)
        if now_ms - stored.modified_ms > KEPT_MS:
            spent.append(stored.path)
        elif is_request:
            asked_ms[key] = stored.modified_ms
    return asked_ms, spent
