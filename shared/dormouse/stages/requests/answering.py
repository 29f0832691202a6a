"""What is kept of the requests that are to be answered: read, put and deleted here.

Beside its table lies each request with the work that it caused, put before the messages of that
work are sent; and, once all has ended, the reply. The request goes when the reply was sent: where
it lies, somebody waits for an answer. The reply stays for a while, for deliveries to come.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from dormouse.errors import NotFoundError
from dormouse.messages import Outgoing, RequestStep
from dormouse.model.decoding import decode_json, told_as_corrupt
from dormouse.model.request_names import (
    request_in,
    request_left_path,
    request_path,
    request_prefix,
    request_reply_path,
)
from dormouse.model.state import DAY_MS
from dormouse.ports import Services
from dormouse.replies import Counts, Reply
from dormouse.stages.requests.work import Work

FIRST_LOOK_SECONDS = 2
_Kept = TypeVar("_Kept")
KEPT_MS = 30 * DAY_MS
"""Longer than SQS keeps any message, a dead letter too."""


class Asked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request that is to be answered when its `work` has ended."""

    request_id: str
    request: str
    subject: str
    asked_ms: int
    work: Work
    counts: Counts = Counts()
    v: int = 1


def keep_asked(services: Services, table_id: str, key: str, asked: Asked) -> Asked:
    """Keep a request and its work; return what counts: that of the first of several deliveries."""
    if services.storage.put(request_path(table_id, key), msgspec.json.encode(asked)):
        return asked
    return kept_asked(services, table_id, key) or asked


def kept_asked(services: Services, table_id: str, key: str) -> Asked | None:
    """Return a request that is to be answered; None if it was, or is of nobody's interest.

    Raises:
        CorruptDataError: what is kept of it is damaged.
    """
    return _read(services, request_path(table_id, key), Asked)


def keep_reply(services: Services, table_id: str, key: str, reply: Reply) -> Reply:
    """Keep the last reply to a request, and return the one that counts: the first that was kept."""
    path = request_reply_path(table_id, key)
    if services.storage.put(path, msgspec.json.encode(reply)):
        return reply
    return _read(services, path, Reply) or reply


def kept_reply(services: Services, table_id: str, key: str) -> Reply | None:
    """Return the last reply to a request; None while its work has not ended.

    Raises:
        CorruptDataError: what is kept of it is damaged.
    """
    return _read(services, request_reply_path(table_id, key), Reply)


def keep_left(
    services: Services, table_id: str, key: str, paths: tuple[str, ...]
) -> tuple[str, ...]:
    """Keep which objects a purge leaves behind; return those that were kept first."""
    path = request_left_path(table_id, key)
    if services.storage.put(path, msgspec.json.encode(paths)):
        return paths
    return kept_left(services, table_id, key) or ()


def kept_left(services: Services, table_id: str, key: str) -> tuple[str, ...] | None:
    """Return which objects a purge left behind; None if nobody has looked yet."""
    return _read(services, request_left_path(table_id, key), tuple[str, ...])


def forget_answered(services: Services, step: RequestStep) -> None:
    """Forget a request whose last reply was sent."""
    paths = [request_left_path(step.table_id, step.key), request_path(step.table_id, step.key)]
    services.storage.delete(paths)


def first_step(table_id: str, key: str, asked: Asked) -> Outgoing:
    """Return the message that begins to look after a request."""
    step = RequestStep(table_id, key, asked.request_id, asked.request)
    return Outgoing("admin", step, FIRST_LOOK_SECONDS)


def unanswered(services: Services, table_id: str, now_ms: int) -> tuple[dict[str, int], list[str]]:
    """Return when the requests were asked that are to be answered, by key; and paths to delete.

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


def _read(services: Services, path: str, kind: type[_Kept]) -> _Kept | None:
    try:
        body = services.storage.get(path)
    except NotFoundError:
        return None
    with told_as_corrupt(f"{path} is not what is kept of a request"):
        return decode_json(body, kind)
