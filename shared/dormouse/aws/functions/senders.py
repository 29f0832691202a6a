"""Who sent a message: what SQS says of the sender, whatever the message itself says.

The HTTP API and the WebSocket send messages for their callers, and the functions that answer and
sweep queries send some about queries that have begun. Of these, and of no others, the message says
who asks; of those of the WebSocket alone, to which connection progress is sent.
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from dormouse.access.principals import principal_of_sender
from dormouse.aws.functions.handling import process
from dormouse.messages.queries import (
    AnswerQuery,
    CancelQuery,
    FollowQuery,
    LeaveQuery,
    QueryTask,
)
from dormouse.messages.stages import Message


def asked_by(message: Message, sender_id: str) -> Message:
    """Return a message with its sender as the one who asks.

    So no message can claim to be somebody else's, but one of the API, which has verified its
    caller, or of the instance about a query that it has recorded.
    """
    settings = process().settings
    sender = principal_of_sender(sender_id)
    if isinstance(message, LeaveQuery | QueryTask):
        is_own = any(_is(sender, role_id) for role_id in settings.query_role_ids)
        return message if is_own else replace(message, who=sender)
    if not isinstance(message, AnswerQuery | CancelQuery | FollowQuery):
        return message
    if _is(sender, settings.websocket_role_id):
        return message
    if isinstance(message, AnswerQuery):
        message = replace(message, connection=UNSET)  # it may be anybody's
    if isinstance(message, FollowQuery):
        message = replace(message, connection="")
    if _is(sender, settings.http_role_id):
        return message
    return replace(message, who=sender)


def _is(sender: str, role_id: str) -> bool:
    return bool(role_id) and sender == principal_of_sender(role_id)
