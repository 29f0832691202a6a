"""Makes moto's S3, DynamoDB and SQS atomic, its transactions cheap, and its events those of AWS.

moto reads an item or an object, checks the condition and writes without a lock, and a transaction
that fails puts back a copy of the whole table, with the writes of others undone. Here one lock
covers each call from its condition to its response, a transaction keeps and restores only the items
it touches, and a `ClientRequestToken` that comes again is answered without being applied again.

moto sends two events for a multipart upload where S3 sends one, leaves the version and the
sequencer out of its events, and says of every unfinished upload that it was begun in 2010.

moto hands one message to two consumers that ask at once, loses deletes that cross, and counts the
whole queue for every message sent or received. Here a long poll sleeps until a message is sent or
falls due. FIFO queues keep moto's own code, under the lock.
"""

import copy
import functools
import hashlib
import itertools
import json
import threading
import uuid
from collections import OrderedDict
from copy import deepcopy
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from moto.core.responses import ActionResult
from moto.core.utils import unix_time, unix_time_millis
from moto.dynamodb import models as item_models
from moto.dynamodb.exceptions import DynamodbException
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.dynamo_type import DynamoType, Item
from moto.dynamodb.models.table import Table
from moto.dynamodb.responses import DynamoHandler
from moto.moto_api._internal import mock_random
from moto.s3 import models as object_models
from moto.s3 import notifications
from moto.s3.models import FakeKey, FakeMultipart, S3Backend
from moto.s3.responses import S3Response
from moto.sqs.exceptions import InvalidParameterValue
from moto.sqs.models import (
    MAXIMUM_MESSAGE_DELAY,
    Message,
    Queue,
    SQSBackend,
    _filter_message_attributes,
)

LOCK = threading.RLock()
_REMEMBERED_TOKENS = 10_000
_JSON = dict[str, Any]


def _copy_all_but_tables(value: Any) -> Any:
    return value if isinstance(value, Table) else copy.deepcopy(value)


def apply() -> None:
    """Replace parts of S3 and DynamoDB; call once, before the server starts."""
    # transact_write_items "restores" the table object itself, which is then no change at all.
    item_models.copy = SimpleNamespace(deepcopy=_copy_all_but_tables)  # type: ignore[assignment, attr-defined]
    DynamoDBBackend.transact_write_items = _transact_write_items  # type: ignore[method-assign]
    DynamoHandler.transact_write_items = _transact_write_once  # type: ignore[method-assign]
    DynamoHandler.call_action = _serialised(DynamoHandler.call_action)  # type: ignore[method-assign]
    # Both are entered after the request's body has been read: no one waits for a slow sender.
    for name in ("_key_response", "_bucket_response"):
        setattr(S3Response, name, _serialised(getattr(S3Response, name)))
    S3Backend.put_object = _put_object  # type: ignore[method-assign]
    FakeMultipart.__init__ = _begin  # type: ignore[method-assign]
    S3Response.list_multipart_uploads = _list_multipart_uploads  # type: ignore[method-assign]
    notifications._get_s3_event = _s3_event


def _serialised(respond: Any) -> Any:
    @functools.wraps(respond)
    def one_at_a_time(*arguments: Any, **named: Any) -> Any:
        with LOCK:
            return respond(*arguments, **named)

    return one_at_a_time


_plain_transact_write_items = DynamoDBBackend.transact_write_items


def _transact_write_items(self: DynamoDBBackend, transact_items: list[_JSON]) -> None:
    before = [_Slot.of(self, item) for item in transact_items]
    try:
        _plain_transact_write_items(self, transact_items)
    except BaseException:
        for slot in before:
            slot.restore()
        raise


class _Slot:
    """Where one item of a table is kept, and what was there before the transaction."""

    def __init__(self, table: Table, hash_key: DynamoType, range_key: DynamoType | None) -> None:
        self._table, self._hash_key, self._range_key = table, hash_key, range_key
        self._item: Item | None = copy.deepcopy(table.get_item(hash_key, range_key))

    @classmethod
    def of(cls, backend: DynamoDBBackend, operation: _JSON) -> "_Slot":
        request = next(iter(operation.values()))
        table = backend.get_table(request["TableName"])
        attributes = request.get("Key") or request["Item"]
        range_name = table.range_key_attr
        range_key = DynamoType(attributes[range_name]) if range_name else None
        return cls(table, DynamoType(attributes[table.hash_key_attr]), range_key)

    def restore(self) -> None:
        if self._item is None:
            self._table.delete_item(self._hash_key, self._range_key)
        elif self._range_key is not None:
            self._table.items[self._hash_key][self._range_key] = self._item
        else:
            self._table.items[self._hash_key] = self._item  # type: ignore[assignment]


_plain_transact_write = DynamoHandler.transact_write_items
_tokens: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
"""What came with each token, as a digest: transactions of megabytes need not be kept."""


def _transact_write_once(self: DynamoHandler) -> ActionResult:
    token = self.body.get("ClientRequestToken")
    if not token:
        return _plain_transact_write(self)
    known_as = (self.current_account, self.region, token)
    content = json.dumps(self.body["TransactItems"], sort_keys=True, default=bytes.hex)
    digest = hashlib.sha256(content.encode()).digest()
    if known_as not in _tokens:
        result = _plain_transact_write(self)
        _tokens[known_as] = digest
        if len(_tokens) > _REMEMBERED_TOKENS:
            _tokens.popitem(last=False)
        return result
    if _tokens[known_as] != digest:
        raise DynamodbException(
            "IdempotentParameterMismatchException",
            "The request uses the same client token as a previous, but non-identical request.",
        )
    return ActionResult({})


_sequence = itertools.count(1)


_plain_put_object = S3Backend.put_object


def _put_object(self: S3Backend, *arguments: Any, **named: Any) -> FakeKey:
    completes_a_multipart_upload = named.get("multipart") is not None
    if completes_a_multipart_upload:
        named["disable_notification"] = True  # CompleteMultipartUpload is announced by the caller
    return _plain_put_object(self, *arguments, **named)


_plain_begin = FakeMultipart.__init__


def _begin(self: FakeMultipart, *arguments: Any, **named: Any) -> None:
    _plain_begin(self, *arguments, **named)
    self.initiated = datetime.now(UTC)  # type: ignore[attr-defined]


def _list_multipart_uploads(self: S3Response) -> Any:
    prefix = self.querystring.get("prefix", [""])[0]
    pending: list[Any] = [*self.backend.list_multipart_uploads(self.bucket_name).values()]
    uploads = [
        {"Key": each.key_name, "UploadId": each.id, "Initiated": each.initiated}
        for each in sorted(pending, key=lambda each: (each.key_name, each.initiated))
        if each.key_name.startswith(prefix)
    ]
    self.data["Action"] = "ListMultipartUploads"
    return self.serialized(ActionResult({"Bucket": self.bucket_name, "Uploads": uploads}))


_plain_s3_event = notifications._get_s3_event


def _s3_event(event_name: str, bucket: Any, key: Any, notification_id: str) -> dict[str, Any]:
    event = _plain_s3_event(event_name, bucket, key, notification_id)
    for record in event["Records"]:
        described = record["s3"]["object"]
        described["sequencer"] = f"{next(_sequence):016X}"
        if bucket.is_versioned:
            described["versionId"] = key.version_id
    return dict(event)


# The contents of objects. moto holds up to 16 MB of each in memory, and an open file for each
# larger one. Here they are a file of their own in one folder, which is opened only to be read.


class StoredValue:
    """The contents of one object, as the file-like object that moto reads and writes."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._at = folder, 0
        self._file: Path | None = None

    def seek(self, offset: int) -> None:
        """Read from this byte next."""
        self._at = offset

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size`."""
        if self._file is None:
            return b""
        with self._file.open("rb") as file:
            file.seek(self._at)
            content = file.read(size)
        self._at += len(content)
        return content

    def truncate(self) -> None:
        """Delete the contents."""
        file, self._file = self._file, None
        if file is not None:
            file.unlink(missing_ok=True)

    close = truncate

    def write(self, content: bytes) -> None:
        """Put contents where there are none."""
        if not content:
            return
        file = self._folder / uuid.uuid4().hex
        try:
            file.write_bytes(content)
        except OSError:  # no room: a part of it must not take what is left
            file.unlink(missing_ok=True)
            raise
        self._file = file


def keep_in_files(folder: Path) -> None:
    """Have moto put the contents of objects into a folder; call once, before the server starts."""
    folder.mkdir(parents=True, exist_ok=True)
    module = SimpleNamespace(SpooledTemporaryFile=lambda *_, **__: StoredValue(folder))
    object_models.tempfile = module  # type: ignore[assignment, attr-defined]


CHANGED = threading.Condition(threading.RLock())
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


def apply_to_queues() -> None:
    """Replace parts of SQS; call once, before the server starts."""
    for name in _SERIALISED:
        setattr(SQSBackend, name, _announced(getattr(SQSBackend, name)))
    SQSBackend.create_queue = _with_bounded_memory(SQSBackend.create_queue)  # type: ignore[method-assign]
    SQSBackend.send_message = _send_message  # type: ignore[method-assign]
    SQSBackend.receive_message = _receive_message  # type: ignore[method-assign]


def _announced(method: Any) -> Any:
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
