"""What is stored beside a table about requests with unfinished jobs.

- The request with the work that it caused. It is put before the messages of that work are sent, and
  deleted when the outcome is recorded and, if one is wanted, the final reply is sent.
- A marker, if a delivery of the request wanted a reply.
- The final reply. It stays after the request, for deliveries that come late.
"""

from __future__ import annotations

import msgspec

from dormouse.features.compaction.request import CompactionWork
from dormouse.features.export.request import ExportWork
from dormouse.features.garbage.request import GarbageWork
from dormouse.features.ingest.request import IngestWork
from dormouse.features.purge.request import PurgeWork
from dormouse.features.requests.request_objects import RequestObject
from dormouse.features.requests.request_paths import (
    request_in,
    request_left_path,
    request_path,
    request_prefix,
    request_reply_path,
    request_wanted_path,
)
from dormouse.features.splitting.request import SplitWork
from dormouse.messages.replies import Counts, Reply
from dormouse.messages.stages import OutboundMessage, RequestStep
from dormouse.model.state import DAY_MS
from dormouse.ports.services import Services

AnyWork = CompactionWork | IngestWork | ExportWork | PurgeWork | SplitWork | GarbageWork
"""The work of any request, as it is stored; its tag is its kind."""

FIRST_CHECK_SECONDS = 2
MAX_AGE_MS = 30 * DAY_MS
"""How long anything is stored: longer than SQS keeps any message, including dead letters."""


class StoredRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request with jobs. Its outcome is recorded, and sent if wanted, when its `work` ends."""

    request_id: str
    verb: str
    subject: str
    requested_ms: int
    work: AnyWork
    counts: Counts = Counts()


_REQUEST = RequestObject(
    "a request with unfinished jobs",
    StoredRequest,
    "delete this object: no reply is sent then; the table's jobs show their outcomes",
)
_REPLY = RequestObject("a reply", Reply, "delete this object: the reply is then made again")


def save_request(
    services: Services, table_id: str, key: str, request: StoredRequest
) -> StoredRequest:
    """Save a request and its work; return the one of the first delivery that saved it."""
    if _REQUEST.put(services, request_path(table_id, key), request):
        return request
    return load_request(services, table_id, key) or request


def load_request(services: Services, table_id: str, key: str) -> StoredRequest | None:
    """Return a request with unfinished jobs; None if none is stored.

    Raises:
        CorruptDataError: the stored request is damaged.
    """
    return _REQUEST.get(services, request_path(table_id, key))


def mark_reply_wanted(services: Services, table_id: str, key: str) -> None:
    """Mark that a delivery of a request wanted a reply; another one may not have wanted it."""
    services.storage.put(request_wanted_path(table_id, key), b"")


def is_reply_wanted(services: Services, table_id: str, key: str) -> bool:
    """Return whether any delivery of a request wanted a reply."""
    return any(services.storage.list(request_wanted_path(table_id, key)))


def save_reply(services: Services, table_id: str, key: str, reply: Reply) -> Reply:
    """Save the final reply to a request; return the one that was saved first, which counts."""
    path = request_reply_path(table_id, key)
    if _REPLY.put(services, path, reply):
        return reply
    return _REPLY.get(services, path) or reply


def load_reply(services: Services, table_id: str, key: str) -> Reply | None:
    """Return the final reply to a request; None if none is stored.

    Raises:
        CorruptDataError: the stored reply is damaged.
    """
    return _REPLY.get(services, request_reply_path(table_id, key))


def delete_request(services: Services, step: RequestStep) -> None:
    """Delete a request after its final reply was sent, or recorded if nobody wanted it."""
    paths = (request_left_path, request_wanted_path, request_path)
    services.storage.delete([path(step.table_id, step.key) for path in paths])


def first_step(table_id: str, key: str, request: StoredRequest) -> OutboundMessage:
    """Return the message that checks for the first time whether the jobs of a request ended."""
    step = RequestStep(table_id, key, request.request_id, request.verb)
    return OutboundMessage("admin", step, FIRST_CHECK_SECONDS)


def unfinished_requests(
    services: Services, table_id: str, now_ms: int
) -> tuple[dict[str, int], list[str]]:
    """Return when each request with unfinished jobs was stored, by key; and paths to delete.

    After `MAX_AGE_MS`, no delivery of a request can come, so its objects can be deleted.
    """
    stored_ms: dict[str, int] = {}
    expired = []
    for stored in services.storage.list(request_prefix(table_id)):
        key, is_request = request_in(stored.path)
        if now_ms - stored.modified_ms > MAX_AGE_MS:
            expired.append(stored.path)
        elif is_request:
            stored_ms[key] = stored.modified_ms
    return stored_ms, expired
