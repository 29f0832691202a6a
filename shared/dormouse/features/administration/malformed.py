"""Refuse messages that are no valid request, with a reply that has the reason if one is wanted.

Only the id of such a message and its wish for a reply are used, and for the record the verb and the
table that it names.
"""

from __future__ import annotations

from typing import get_args

from dormouse.jobs.tracking import record_request
from dormouse.messages import OutboundMessage
from dormouse.ports import NO_TABLE, Services
from dormouse.replies import Reply, reply_to, to_outbound
from dormouse.requests import AdminRequest, is_request_id
from dormouse.stored.decoding import decode_json
from dormouse.tables.table import can_be_name

VERBS = {str(kind.__struct_config__.tag) for kind in get_args(AdminRequest)}
UNKNOWN_VERB = "request"


def refuse_malformed(services: Services, body: str, reason: str) -> list[OutboundMessage]:
    """Record that a message is no request, and return the reply; empty if none can be given."""
    try:
        said = decode_json(body, dict[str, object])
    except ValueError:
        return []
    request_id, verb = said.get("request_id"), said.get("type")
    if said.get("reply") is not True or not isinstance(request_id, str):
        return []
    if not is_request_id(request_id):
        return []
    known = verb if isinstance(verb, str) and verb in VERBS else UNKNOWN_VERB
    reply = reply_to(request_id, known, "refused", reason=reason)
    _record(services, reply, said.get("name"))
    return [to_outbound(reply)]


def _record(services: Services, reply: Reply, name: object) -> None:
    """Record a refusal under the table that is named, unless the id is that of something else."""
    table_id, subject = NO_TABLE, ""
    if isinstance(name, str) and can_be_name(name):
        table = services.tables.named(name)
        table_id, subject = (table.id if table is not None else NO_TABLE), name
    known = services.tracker.get(table_id, reply.request_id)
    if known is None or known.state == "refused":
        record_request(services, table_id, reply, subject)
