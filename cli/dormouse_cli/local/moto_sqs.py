"""Makes moto's standard queues atomic and fast; applied by `moto_server`.

moto hands one message to two consumers that ask at once, loses deletes that cross, and counts the
whole queue for every message sent or received. Here one lock covers each call, and a long poll
sleeps until a message is sent or falls due. FIFO queues keep moto's own code, under the lock.
"""

import functools
import threading
from collections import OrderedDict
from copy import deepcopy
from typing import Any

from moto.core.utils import unix_time, unix_time_millis
from moto.moto_api._internal import mock_random
from moto.sqs.exceptions import InvalidParameterValue
from moto.sqs.models import (
    MAXIMUM_MESSAGE_DELAY,
    Message,
    Queue,
    SQSBackend,
    _filter_message_attributes,
)

CHANGED = threading.Condition(threading.RLock())
_JSON = dict[str, Any]
_SERIALISED = (
    "create_queue",
    "delete_queue",
    "get_queue_attributes",
    "set_queue_attributes",
    "send_message_batch",
    "delete_message",
    "delete_message_batch",
    "change_message_visibility",
    "change_message_visibility_batch",
    "purge_queue",
    "list_queues",
)

_REMEMBERED_HANDLES = 1000

_plain_send_message = SQSBackend.send_message
_plain_receive_message = SQSBackend.receive_message


def apply() -> None:
    """Replace the parts of moto; call once, before the server starts."""
    for name in _SERIALISED:
        setattr(SQSBackend, name, _serialised(getattr(SQSBackend, name)))
    SQSBackend.create_queue = _with_bounded_memory(SQSBackend.create_queue)  # type: ignore[method-assign]
    SQSBackend.send_message = _send_message  # type: ignore[method-assign]
    SQSBackend.receive_message = _receive_message  # type: ignore[method-assign]


def _serialised(method: Any) -> Any:
    @functools.wraps(method)
    def one_at_a_time(*arguments: Any, **named: Any) -> Any:
        with CHANGED:
            result = method(*arguments, **named)
            CHANGED.notify_all()  # a message may have become visible
            return result

    return one_at_a_time


class _RecentHandles(OrderedDict[str, None]):
    """The receipt handles of what was deleted last: deleting it once more is no error."""

    def update(self, handles: Any) -> None:  # type: ignore[override]
        """Add handles, and forget the oldest."""
        super().update(dict.fromkeys(handles))
        while len(self) > _REMEMBERED_HANDLES:
            self.popitem(last=False)


def _with_bounded_memory(create_queue: Any) -> Any:
    @functools.wraps(create_queue)
    def create(*arguments: Any, **named: Any) -> Queue:
        queue: Queue = create_queue(*arguments, **named)
        queue.deleted_messages = _RecentHandles()  # type: ignore[assignment]
        return queue

    return create


def _send_message(
    self: SQSBackend,
    queue_name: str,
    message_body: str,
    message_attributes: _JSON | None = None,
    delay_seconds: int | None = None,
    deduplication_id: str | None = None,
    group_id: str | None = None,
    system_attributes: _JSON | None = None,
    validate_group_id: bool = True,
) -> Message:
    with CHANGED:
        queue = self.get_queue(queue_name)
        if queue.fifo_queue:
            message = _plain_send_message(
                self,
                queue_name,
                message_body,
                message_attributes,
                delay_seconds,
                deduplication_id,
                group_id,
                system_attributes,
                validate_group_id,
            )
        else:
            self._validate_message(queue, message_body, int(delay_seconds or 0))
            message = _new_message(queue, message_body, delay_seconds, system_attributes)
            message.message_attributes = message_attributes or {}
            message.group_id = group_id
            queue.add_message(message)
        CHANGED.notify_all()
        return message


def _new_message(
    queue: Queue, body: str, delay_seconds: int | None, system_attributes: _JSON | None
) -> Message:
    delay = int(queue.delay_seconds if delay_seconds is None else delay_seconds)  # type: ignore[attr-defined]
    if not 0 <= delay <= MAXIMUM_MESSAGE_DELAY:
        raise InvalidParameterValue(
            f"Value {delay} for parameter DelaySeconds is invalid. "
            "Reason: DelaySeconds must be >= 0 and <= 900."
        )
    message = Message(str(mock_random.uuid4()), body, system_attributes)
    message.mark_sent(delay_seconds=delay)
    return message


def _receive_message(
    self: SQSBackend,
    queue_name: str,
    count: int,
    wait_seconds_timeout: int,
    visibility_timeout: int,
    message_attribute_names: list[str] | None = None,
) -> list[Message]:
    names = message_attribute_names or []
    end = unix_time() + (wait_seconds_timeout or 0)
    with CHANGED:
        while True:
            queue = self.get_queue(queue_name)
            if queue.fifo_queue:
                messages = _plain_receive_message(
                    self, queue_name, count, 0, visibility_timeout, names
                )
                next_due = unix_time() + 0.1
            else:
                messages, next_due = _take(queue, count, visibility_timeout, names)
            rest = end - unix_time()
            if messages or rest <= 0:
                return messages
            CHANGED.wait(max(0.001, min(rest, next_due - unix_time())))


def _take(
    queue: Queue, count: int, visibility_timeout: int, names: list[str]
) -> tuple[list[Message], float]:
    """Up to `count` visible messages, and when (Unix seconds) the next hidden one falls due."""
    now = unix_time_millis()
    oldest = now - int(queue.message_retention_period) * 1000  # type: ignore[attr-defined]
    messages: list[Message] = []
    next_due = float("inf")
    for message in list(queue._messages):
        due = max(message.visible_at, message.delayed_until)
        if int(message.sent_timestamp or 0) <= oldest:
            queue._messages.remove(message)
        elif due >= now:
            next_due = min(next_due, due)
        elif _is_dead(queue, message):
            queue._messages.remove(message)
            queue.dead_letter_queue.add_message(message)  # type: ignore[union-attr]
            CHANGED.notify_all()
        else:
            message.mark_received(visibility_timeout=visibility_timeout)
            received = deepcopy(message)
            _filter_message_attributes(received, names)
            messages.append(received)
            if len(messages) == count:
                break
    return messages, next_due / 1000 + 0.001


def _is_dead(queue: Queue, message: Message) -> bool:
    if queue.dead_letter_queue is None or not queue.redrive_policy:
        return False
    limit = int(queue.redrive_policy["maxReceiveCount"])
    return message.approximate_receive_count >= limit
