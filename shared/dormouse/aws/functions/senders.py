"""Who sent a message: what SQS says of the sender, whatever the message itself says."""

from __future__ import annotations

from msgspec.structs import replace

from dormouse.access.principals import principal_of_sender
from dormouse.messages import Message
from dormouse.query_messages import AnswerQuery, CancelQuery


def asked_by(message: Message, sender_id: str) -> Message:
    """Return a message with its sender as the one who asks.

    So no message can claim to be somebody else's.
    """
    if isinstance(message, AnswerQuery | CancelQuery):
        return replace(message, who=principal_of_sender(sender_id))
    return message
