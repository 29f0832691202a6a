"""Refuse messages that are not valid requests, with a reply if one is wanted.

Of such a message, only its id and its wish for a reply are used, and, for the record, its verb and
the name of its table.
"""

from __future__ import annotations

from typing import get_args

from dormouse.jobs.tracking import record_request
from dormouse.messages.replies import Reply, reply_to, to_outbound
from dormouse.messages.requests import AdminRequest, is_request_id
from dormouse.messages.stages import OutboundMessage
from dormouse.ports.services import NO_TABLE, Services
from dormouse.stored.decoding import decode_json
from dormouse.tables.table import can_be_name

VERBS = {str(kind.__struct_config__.tag) for kind in get_args(AdminRequest)}
UNKNOWN_VERB = "request"


def refuse_malformed(services: Services, body: str, reason: str) -> list[OutboundMessage]:
    """Record that a message is not a valid request, and return the reply.

    Empty if no reply is wanted, or the message has no valid id.
    """
    try:
        fields = decode_json(body, dict[str, object])
    except ValueError:
        return []
    request_id, verb = fields.get("request_id"), fields.get("type")
    if fields.get("reply") is not True or not isinstance(request_id, str):
        return []
    if not is_request_id(request_id):
        return []
    known = verb if isinstance(verb, str) and verb in VERBS else UNKNOWN_VERB
    reply = reply_to(request_id, known, "refused", reason=reason)
    _record(services, reply, fields.get("name"))
    return [to_outbound(reply)]


def _record(services: Services, reply: Reply, name: object) -> None:
    """Record a refusal under the table named, unless the id has a record of another outcome."""
    table_id, subject = NO_TABLE, ""
    if isinstance(name, str) and can_be_name(name):
        table = services.tables.named(name)
        table_id, subject = (table.id if table is not None else NO_TABLE), name
    known = services.tracker.get(table_id, reply.request_id)
    if known is None or known.state == "refused":
        record_request(services, table_id, reply, subject)
