"""The queues: `ports.Outbox`, and what the client and the glue want of them beside."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from dormouse.aws.base import system
from dormouse.errors import InvalidRequestError, NotFoundError, UnavailableError
from dormouse.messages import OfTable, OutboundMessage, encode
from dormouse.ports import QueueCounts
from dormouse.retry_policy import RetryPolicy
from dormouse.stored.names import InstanceNames, dead_letter_queue

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import (
        BatchResultErrorEntryTypeDef,
        MessageAttributeValueTypeDef,
        SendMessageBatchRequestEntryTypeDef,
    )

MAX_BATCH_ENTRIES = 10
MAX_BATCH_BYTES = 1024 * 1024
MAX_DELAY_SECONDS = 900
SENDERS = 8
"""Requests of one call under way at a time: 65,536 messages are 6,554, of some ten milliseconds."""
MAX_REASON_CHARACTERS = 1000
_NO_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


_Entry = TypeVar("_Entry", bound=Mapping[str, object])


class SqsQueues:
    """The URLs of an instance's queues, and how to retry entries of a batch."""

    def __init__(self, client: SQSClient, names: InstanceNames, retry_policy: RetryPolicy) -> None:
        """Look queues up by their `names`; `retry_policy` is for entries SQS could not take."""
        self._client, self._names, self._retry_policy = client, names, retry_policy
        self._urls: dict[str, str] = {}

    def url(self, queue: str) -> str:
        """Return the URL of a queue, or of its dead letters.

        Raises:
            NotFoundError: there is no such queue.
            UnavailableError: SQS does not answer.
        """
        if queue not in self._urls:
            name = self._names.queue(queue)
            try:
                self._urls[queue] = self._client.get_queue_url(QueueName=name)["QueueUrl"]
            except self._client.exceptions.QueueDoesNotExist as error:
                raise NotFoundError(
                    f"there is no queue {name!r}",
                    hint=f"deploy the instance {self._names.instance!r}, or name another one",
                ) from error
            except (BotoCoreError, ClientError) as error:
                raise unavailable(queue, error) from error
        return self._urls[queue]

    def retry_entries(
        self,
        queue: str,
        entries: list[_Entry],
        request: Callable[[str, list[_Entry]], Sequence[BatchResultErrorEntryTypeDef]],
    ) -> tuple[list[_Entry], str]:
        """Make a request of a batch, again for the entries that failed; give those and why.

        Raises:
            NotFoundError: there is no such queue.
            UnavailableError: SQS does not answer; some entries may have been taken.
        """
        left, refusals = entries, ""
        for failures in range(1, self._retry_policy.attempts + 1):
            try:
                failed = {f["Id"]: f for f in request(self.url(queue), left)}
            except (BotoCoreError, ClientError) as error:
                raise unavailable(queue, error) from error
            left = [entry for entry in left if entry["Id"] in failed]
            if not left:
                break
            refusals = ", ".join(
                sorted({f"{f['Code']} {f.get('Message', '')}".strip() for f in failed.values()})
            )
            if failures < self._retry_policy.attempts:
                self._retry_policy.pause(failures)
        return left, refusals


class SqsOutbox:
    """The queues of one instance; safe for many threads, as the client is."""

    def __init__(
        self, client: SQSClient, names: InstanceNames, retry_policy: RetryPolicy | None = None
    ) -> None:
        """Use the queues that `names` gives; `retry_policy` is for entries SQS could not take."""
        self._client, self._names = client, names
        self._queues = SqsQueues(client, names, retry_policy or system.retry_policy())

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        """Send all messages, in as few requests as they fit in, while they are still being made.

        If making them fails, those made before are sent all the same. A message about a table is
        of the table's group: SQS then lets no table's backlog hold up other tables.

        Raises:
            UnavailableError: some are not sent, others may be; send all again.
            NotFoundError: there is no such queue.
            InvalidRequestError: a message is larger than what a queue takes.
        """
        sending: set[Future[None]] = set()
        with ThreadPoolExecutor(SENDERS) as threads:
            for queue, batch in _batches(messages):
                if len(sending) == SENDERS:
                    done, sending = wait(sending, return_when=FIRST_COMPLETED)
                    _raise_first(done)
                sending.add(threads.submit(self._send_batch, queue, batch))
            _raise_first(sending)

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Return the messages of each queue that wait or are being worked on, not the delayed.

        SQS counts them now and then: the numbers are those of some seconds ago.
        """
        counts = self.counts(queues)
        return {queue: found.waiting + found.in_flight for queue, found in counts.items()}

    def counts(self, queues: Sequence[str]) -> dict[str, QueueCounts]:
        """Return the messages of each queue by what becomes of them, as of some seconds ago."""
        return {queue: self._counts(queue) for queue in queues}

    def send_to_dead_letters(self, queue: str, body: str, reason: str) -> None:
        """Put a message of `queue` that can never succeed among its dead letters.

        Raises:
            UnavailableError: it may not be there; send it again.
        """
        url = self._queues.url(dead_letter_queue(queue))
        try:
            self._client.send_message(
                QueueUrl=url,
                MessageBody=body,
                MessageAttributes=_reason(reason, body),
            )
        except (BotoCoreError, ClientError) as error:
            raise unavailable(dead_letter_queue(queue), error) from error

    def retry_in(self, queue: str, receipt_handle: str, seconds: int) -> None:
        """Let a message that is being worked on come again in `seconds`.

        Raises:
            UnavailableError: it comes again when its visibility timeout is over.
        """
        url = self._queues.url(queue)
        try:
            self._client.change_message_visibility(
                QueueUrl=url, ReceiptHandle=receipt_handle, VisibilityTimeout=seconds
            )
        except (BotoCoreError, ClientError) as error:
            raise unavailable(queue, error) from error

    def _send_batch(self, queue: str, batch: list[SendMessageBatchRequestEntryTypeDef]) -> None:
        def request(
            url: str, entries: list[SendMessageBatchRequestEntryTypeDef]
        ) -> Sequence[BatchResultErrorEntryTypeDef]:
            answer = self._client.send_message_batch(QueueUrl=url, Entries=entries)
            return answer.get("Failed", [])

        left, refusals = self._queues.retry_entries(queue, batch, request)
        if left:
            raise UnavailableError(
                f"queue {self._names.queue(queue)!r} did not take {len(left)} messages: {refusals}"
            )

    def _counts(self, queue: str) -> QueueCounts:
        url = self._queues.url(queue)
        try:
            answer = self._client.get_queue_attributes(
                QueueUrl=url,
                AttributeNames=[
                    "ApproximateNumberOfMessages",
                    "ApproximateNumberOfMessagesNotVisible",
                    "ApproximateNumberOfMessagesDelayed",
                ],
            )
        except (BotoCoreError, ClientError) as error:
            raise unavailable(queue, error) from error
        found = {name: int(count) for name, count in answer["Attributes"].items()}
        return QueueCounts(
            waiting=found["ApproximateNumberOfMessages"],
            in_flight=found["ApproximateNumberOfMessagesNotVisible"],
            delayed=found["ApproximateNumberOfMessagesDelayed"],
        )


class _Batch:
    """What fits in one request."""

    def __init__(self) -> None:
        self.entries: list[SendMessageBatchRequestEntryTypeDef] = []
        self.size_bytes = 0

    def takes(self, size_bytes: int) -> bool:
        fits = self.size_bytes + size_bytes <= MAX_BATCH_BYTES
        return fits and len(self.entries) < MAX_BATCH_ENTRIES

    def add(self, outgoing: OutboundMessage, body: str, size_bytes: int) -> None:
        entry: SendMessageBatchRequestEntryTypeDef = {
            "Id": str(len(self.entries)),
            "MessageBody": body,
            "DelaySeconds": min(outgoing.delay_seconds, MAX_DELAY_SECONDS),
        }
        if outgoing.reason:
            entry["MessageAttributes"] = _reason(outgoing.reason, body)
        if isinstance(outgoing.message, OfTable):
            entry["MessageGroupId"] = outgoing.message.table_id
        self.entries.append(entry)
        self.size_bytes += size_bytes


def _batches(
    messages: Iterable[OutboundMessage],
) -> Iterator[tuple[str, list[SendMessageBatchRequestEntryTypeDef]]]:
    """Return messages as batches of a request each, with their queue; each queue's in order."""
    begun: dict[str, _Batch] = {}
    failure: Exception | None = None
    try:
        for outgoing in messages:
            queue, body = outgoing.queue, encode(outgoing.message)
            size_bytes = _checked_size(queue, body) + _most_bytes(outgoing.reason)
            if queue in begun and not begun[queue].takes(size_bytes):
                yield queue, begun.pop(queue).entries
            begun.setdefault(queue, _Batch()).add(outgoing, body, size_bytes)
    except Exception as error:  # raised below, when what was made before is on its way
        failure = error
    for queue, batch in begun.items():
        yield queue, batch.entries
    if failure is not None:
        raise failure


def _checked_size(queue: str, body: str) -> int:
    size_bytes = len(body.encode())
    if size_bytes > MAX_BATCH_BYTES:
        raise InvalidRequestError(
            f"a message of {size_bytes} bytes is too large for queue {queue!r}, "
            f"which takes {MAX_BATCH_BYTES}"
        )
    return size_bytes


def _raise_first(sent: Iterable[Future[None]]) -> None:
    for batch in sent:
        batch.result()


def _most_bytes(reason: str) -> int:
    return 4 * len(reason[:MAX_REASON_CHARACTERS])


def _reason(text: str, body: str) -> dict[str, MessageAttributeValueTypeDef]:
    """Return the attribute that tells why a message was given up, in as many bytes as are left.

    A reason can quote what came from anywhere, and SQS refuses what XML has no place for.
    """
    room = MAX_BATCH_BYTES - len(body.encode()) - len("reason" + "String")
    value = _NO_TEXT.sub("\ufffd", text[:MAX_REASON_CHARACTERS] or "unknown")
    value = value.encode()[: max(0, room)].decode(errors="ignore")
    return {"reason": {"DataType": "String", "StringValue": value}} if value else {}


def unavailable(queue: str, error: Exception) -> UnavailableError:
    """Say that a queue does not answer."""
    return UnavailableError(f"queue {queue!r} did not answer: {error}")
