"""The queues on SQS, for the client and the functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from dormouse.aws.clients import Failure, client, code_of, kind_of_code, reading
from dormouse.aws.clients import unavailable as unavailable_service
from dormouse.errors import InvalidRequestError, NotFoundError, UnavailableError
from dormouse.messages.stages import OfTable, OutboundMessage, encode
from dormouse.ports import DeadLetter, QueueCounts, cut_reason, gone, not_listed
from dormouse.stored.paths import InstanceNames, dead_letter_queue
from dormouse.system import RETRIES, RetryPolicy

if TYPE_CHECKING:
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_cloudwatch.type_defs import MetricDataQueryTypeDef
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.literals import QueueAttributeNameType
    from mypy_boto3_sqs.type_defs import (
        MessageAttributeValueTypeDef,
        MessageTypeDef,
        SendMessageBatchRequestEntryTypeDef,
    )


MAX_BATCH_ENTRIES = 10
MAX_BATCH_BYTES = 1024 * 1024

_Each = TypeVar("_Each")


def batched(sized: Iterable[tuple[str, _Each, int]]) -> Iterator[tuple[str, list[_Each]]]:
    """Yield a queue and what one request can take for it, in order for each queue.

    `sized` has a queue, a message and its size in bytes each. If it raises, the messages before are
    yielded first, and then its error is raised.
    """
    batches: dict[str, tuple[list[_Each], int]] = {}
    failure: Exception | None = None
    try:
        for queue, each, size_bytes in sized:
            batch, so_far = batches.get(queue, ([], 0))
            if len(batch) == MAX_BATCH_ENTRIES or so_far + size_bytes > MAX_BATCH_BYTES:
                yield queue, batch
                batch, so_far = [], 0
            batch.append(each)
            batches[queue] = batch, so_far + size_bytes
    except Exception as error:  # raised below, once the messages before are sent
        failure = error
    for queue, (batch, _) in batches.items():
        yield queue, batch
    if failure is not None:
        raise failure


MAX_DELAY_SECONDS = 900
SENDERS = 8
"""Concurrent requests of one call: 65,536 messages are 6,554 requests of some ten milliseconds."""

_Entry = TypeVar("_Entry", bound=Mapping[str, object])
_Sent = tuple[OutboundMessage, str]
"""A message and its encoded body."""
_VISIBLE: Literal["ApproximateNumberOfMessages"] = "ApproximateNumberOfMessages"
_COUNTS: tuple[QueueAttributeNameType, ...] = (
    _VISIBLE,
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
)
"""Of the messages that are waiting, in flight and delayed."""


class SqsQueues:
    """The URLs of an instance's queues, and how to retry entries of a batch."""

    def __init__(self, client: SQSClient, names: InstanceNames, retry_policy: RetryPolicy) -> None:
        """Look queues up by their `names`; `retry_policy` is for entries SQS could not take."""
        self._client, self._names, self._retry_policy = client, names, retry_policy
        self._urls: dict[str, str] = {}

    def url(self, queue: str) -> str:
        """Return the URL of a queue or a dead-letter queue.
        Raises NotFoundError: there is no such queue; UnavailableError: SQS does not answer.
        """
        if queue not in self._urls:
            name = self._names.queue(queue)
            with _asking(queue):
                try:
                    self._urls[queue] = self._client.get_queue_url(QueueName=name)["QueueUrl"]
                except self._client.exceptions.QueueDoesNotExist as error:
                    raise NotFoundError(
                        f"there is no queue {name!r}",
                        hint=f"deploy the instance {self._names.instance!r}, or name another one",
                    ) from error
        return self._urls[queue]

    def numbers(self, queue: str, *names: QueueAttributeNameType) -> list[int]:
        """Return attributes of a queue that are numbers. Raises as `url`."""
        with _asking(queue):
            answer = self._client.get_queue_attributes(
                QueueUrl=self.url(queue), AttributeNames=names
            )
        return [int(answer["Attributes"][name]) for name in names]

    def retry_entries(
        self, queue: str, entries: list[_Entry], request: Callable[..., Mapping[str, Any]]
    ) -> tuple[list[_Entry], str]:
        """Send a batch by a request of the client, retry the entries that failed; return those that
        still fail, and why.

        Raises:
            NotFoundError: there is no such queue.
            UnavailableError: SQS does not answer; some entries may have been accepted.
        """
        rest, refusals = entries, ""
        for failures in range(1, self._retry_policy.attempts + 1):
            with _asking(queue):
                answer = request(QueueUrl=self.url(queue), Entries=rest)
            errors = {f["Id"]: f for f in answer.get("Failed", [])}
            rest = [entry for entry in rest if entry["Id"] in errors]
            refusals = ", ".join(
                sorted({f"{f['Code']} {f.get('Message', '')}".strip() for f in errors.values()})
            )
            kinds = {kind_of_code(f["Code"], HTTPStatus.BAD_REQUEST) for f in errors.values()}
            if all(f["SenderFault"] for f in errors.values()) and kinds <= {Failure.PERMANENT}:
                break
            if failures < self._retry_policy.attempts:
                self._retry_policy.pause(failures)
        return rest, refusals


class SqsOutbox:
    """The queues of one instance; thread-safe, like its client."""

    def __init__(
        self, client: SQSClient, names: InstanceNames, retry_policy: RetryPolicy = RETRIES
    ) -> None:
        self._client, self._names = client, names
        self._queues = SqsQueues(client, names, retry_policy)

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        """Send all messages, in as few requests as possible, while the iterable is consumed.

        If the iterable raises, the messages before are sent all the same. A message about a table
        has the table's id as its message group: SQS then delivers groups fairly, so that a table's
        backlog does not delay other tables.

        Raises:
            UnavailableError: some messages are not sent, others may be; send all again.
            NotFoundError: there is no such queue.
            InvalidRequestError: a message is too large for a queue.
        """
        sending: set[Future[None]] = set()
        with ThreadPoolExecutor(SENDERS) as threads:
            for queue, batch in batched(_sized(messages)):
                if len(sending) == SENDERS:
                    done, sending = wait(sending, return_when=FIRST_COMPLETED)
                    _raise_first(done)
                sending.add(threads.submit(self._send_batch, queue, batch))
            _raise_first(sending)

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Return how many messages of each queue are waiting or in flight, without delayed ones.

        SQS counts approximately: the numbers are some seconds old.
        """
        counts = self.counts(queues)
        return {queue: count.waiting + count.in_flight for queue, count in counts.items()}

    def counts(self, queues: Sequence[str]) -> dict[str, QueueCounts]:
        """Return about how many messages of each queue are waiting, in flight and delayed."""
        return {queue: QueueCounts(*self._queues.numbers(queue, *_COUNTS)) for queue in queues}

    def send_to_dead_letters(self, queue: str, body: str, reason: str) -> None:
        """Send a message to its queue's dead letters. Raises UnavailableError: repeat that."""
        dead = dead_letter_queue(queue)
        with _asking(dead):
            self._client.send_message(
                QueueUrl=self._queues.url(dead),
                MessageBody=body,
                MessageAttributes=_reason(reason, body),
            )

    def retry_in(self, queue: str, receipt_handle: str, seconds: int) -> None:
        """Make a message in flight visible again in `seconds`.
        Raises UnavailableError: it is delivered again after its visibility timeout.
        """
        with _asking(queue):
            self._client.change_message_visibility(
                QueueUrl=self._queues.url(queue),
                ReceiptHandle=receipt_handle,
                VisibilityTimeout=seconds,
            )

    def _send_batch(self, queue: str, batch: list[_Sent]) -> None:
        entries = [_entry(number, each) for number, each in enumerate(batch)]
        rest, refusals = self._queues.retry_entries(queue, entries, self._client.send_message_batch)
        if rest:
            raise UnavailableError(
                f"queue {self._names.queue(queue)!r} did not take {len(rest)} messages: {refusals}"
            )


def _sized(messages: Iterable[OutboundMessage]) -> Iterator[tuple[str, _Sent, int]]:
    """Yield each message with its queue, its body and its most bytes."""
    for outgoing in messages:
        body = encode(outgoing.message)
        reason_bytes = 4 * len(cut_reason(outgoing.reason))  # at most
        size_bytes = _checked_size(outgoing.queue, body) + reason_bytes
        yield outgoing.queue, (outgoing, body), size_bytes


def _entry(number: int, message: _Sent) -> SendMessageBatchRequestEntryTypeDef:
    """Return the entry of a message in a batch, which finds it by its number."""
    outgoing, body = message
    entry: SendMessageBatchRequestEntryTypeDef = {
        "Id": str(number),
        "MessageBody": body,
        "DelaySeconds": min(outgoing.delay_seconds, MAX_DELAY_SECONDS),
    }
    if outgoing.reason:
        entry["MessageAttributes"] = _reason(outgoing.reason, body)
    if isinstance(outgoing.message, OfTable):
        entry["MessageGroupId"] = outgoing.message.table_id
    return entry


def _checked_size(queue: str, body: str) -> int:
    size_bytes = len(body.encode())
    if size_bytes > MAX_BATCH_BYTES:
        raise InvalidRequestError(
            f"a message of {size_bytes} bytes is too large for queue {queue!r}, "
            f"which takes {MAX_BATCH_BYTES}"
        )
    return size_bytes


def _raise_first(batches: Iterable[Future[None]]) -> None:
    for batch in batches:
        batch.result()


def _reason(text: str, body: str) -> dict[str, MessageAttributeValueTypeDef]:
    """Return the attribute with the reason of a dead letter, cut to the bytes that are left."""
    room = MAX_BATCH_BYTES - len(body.encode()) - len("reason" + "String")
    value = (cut_reason(text) or "unknown").encode()[: max(0, room)].decode(errors="ignore")
    return {"reason": {"DataType": "String", "StringValue": value}} if value else {}


@contextmanager
def _asking(queue: str) -> Iterator[None]:
    """Raise failures of a request about a queue: it does not answer, or refuses."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise unavailable(queue, error) from error


def unavailable(queue: str, error: BotoCoreError | ClientError) -> UnavailableError:
    """Return the error of a queue that does not answer, or refuses."""
    return unavailable_service(f"queue {queue!r} did not take the request", error)


TAKEN_SECONDS = 300
"""The visibility timeout of a received dead letter."""
LOOK_SECONDS = 1
"""How long SQS waits for messages: with a wait it queries all of its servers (long polling)."""


class SqsDeadLetters:
    """The dead letters of one instance; thread-safe, like its client."""

    def __init__(
        self, client: SQSClient, names: InstanceNames, retry_policy: RetryPolicy = RETRIES
    ) -> None:
        self._client = client
        self._queues = SqsQueues(client, names, retry_policy)

    def receive(self, queue: str, most: int) -> list[DeadLetter]:
        """Receive dead letters, which are invisible to others for some minutes unless released."""
        dead = dead_letter_queue(queue)
        letters: dict[str, DeadLetter] = {}
        answer: list[MessageTypeDef] = []
        while len(letters) < most:
            # Without a wait only some servers of SQS answer; if there may be messages, query all.
            is_full = len(answer) == MAX_BATCH_ENTRIES
            may_be_more = is_full or self._queues.numbers(dead, _VISIBLE) != [0]
            answer = self._receive(dead, most - len(letters), LOOK_SECONDS * may_be_more)
            if not answer:
                break
            letters |= {letter.id: letter for letter in map(_letter, answer)}
        return list(letters.values())

    def release(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        """Make dead letters visible to others again; if that fails, their timeout does."""
        self._each(
            dead_letter_queue(queue),
            letters,
            self._client.change_message_visibility_batch,
            lambda each: {"ReceiptHandle": each.receipt, "VisibilityTimeout": 0},
        )

    def redrive(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Send the bodies of dead letters to their queue again; return those that were accepted."""
        request = self._client.send_message_batch
        rest = self._each(queue, letters, request, lambda each: {"MessageBody": each.body})
        return [letter for letter in letters if letter not in rest]

    def delete(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Delete received dead letters; return those that could not be deleted."""
        dead, request = dead_letter_queue(queue), self._client.delete_message_batch
        return self._each(dead, letters, request, lambda each: {"ReceiptHandle": each.receipt})

    def _each(
        self,
        queue: str,
        letters: Sequence[DeadLetter],
        request: Callable[..., Mapping[str, Any]],
        entry: Callable[[DeadLetter], dict[str, object]],
    ) -> list[DeadLetter]:
        """Make a request of the client with an entry for each letter, in as few batches as
        possible; return those that failed.

        A batch without an answer fails as a whole, and the batches after it are not tried.
        """
        failures: list[DeadLetter] = []
        for _, batch in batched((queue, each, len(each.body.encode())) for each in letters):
            entries = [{"Id": str(number), **entry(each)} for number, each in enumerate(batch)]
            rest, _ = self._queues.retry_entries(queue, entries, request)
            failures += [batch[int(str(each["Id"]))] for each in rest]
        return failures

    def _receive(self, queue: str, most: int, wait_seconds: int) -> list[MessageTypeDef]:
        with _asking(queue):
            answer = self._client.receive_message(
                QueueUrl=self._queues.url(queue),
                MaxNumberOfMessages=min(most, MAX_BATCH_ENTRIES),
                VisibilityTimeout=TAKEN_SECONDS,
                WaitTimeSeconds=wait_seconds,
                AttributeNames=["SentTimestamp", "ApproximateReceiveCount"],
                MessageAttributeNames=["reason"],
            )
        return answer.get("Messages", [])


def _letter(message: MessageTypeDef) -> DeadLetter:
    attributes = message.get("Attributes", {})
    facts = message.get("MessageAttributes", {})
    return DeadLetter(
        id=message["MessageId"],
        body=message["Body"],
        reason=facts["reason"].get("StringValue", "") if "reason" in facts else "",
        receives=int(attributes.get("ApproximateReceiveCount", 0)),
        sent_ms=int(attributes.get("SentTimestamp", 0)),
        receipt=message["ReceiptHandle"],
    )


_LOOK_BACK = timedelta(minutes=15)
"""SQS publishes its metrics about every minute, and none for an idle queue."""


def queue_ages(
    names: InstanceNames,
    queues: Sequence[str],
    now_ms: int,
    cloudwatch: CloudWatchClient | None = None,
) -> dict[str, float]:
    """Return the age in seconds of the oldest message of each queue that has recent metrics.
    Raises UnavailableError: CloudWatch does not answer, or denies access.
    """
    cloudwatch = cloudwatch or client("cloudwatch")
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    queries = [_age_query(f"q{n}", names.queue(queue)) for n, queue in enumerate(queues)]
    with reading("CloudWatch"):
        answer = cloudwatch.get_metric_data(
            MetricDataQueries=queries,
            StartTime=now - _LOOK_BACK,
            EndTime=now,
            ScanBy="TimestampDescending",
        )
    newest = {series["Id"]: series["Values"] for series in answer["MetricDataResults"]}
    values_by_queue = {queue: newest.get(f"q{n}") for n, queue in enumerate(queues)}
    return {queue: values[0] for queue, values in values_by_queue.items() if values}


def _age_query(number: str, name: str) -> MetricDataQueryTypeDef:
    return {
        "Id": number,
        "MetricStat": {
            "Metric": {
                "Namespace": "AWS/SQS",
                "MetricName": "ApproximateAgeOfOldestMessage",
                "Dimensions": [{"Name": "QueueName", "Value": name}],
            },
            "Period": 60,
            "Stat": "Maximum",
        },
    }


# The queues of others that results are sent to: `result_queues.ResultQueues` on SQS.

_GONE = (
    "AWS.SimpleQueueService.NonExistentQueue",
    "QueueDoesNotExist",
    "AccessDenied",
    "KMS.AccessDeniedException",
)
"""What SQS answers for a queue that is not there, or that this function may not send to."""
_FIFO = ".fifo"


class SqsResultQueues:
    """Queues of the stack's account and region, by their names; thread-safe, like its client."""

    def __init__(self, client: SQSClient, names: Sequence[str]) -> None:
        """Send to the queues of these names alone."""
        self._client, self._names = client, tuple(names)
        self._urls: dict[str, str] = {}

    def check(self, queue: str) -> None:
        """Check that a queue is of the list and there.

        Raises:
            InvalidRequestError: it is not of the list.
            NotFoundError: it is gone.
            UnavailableError: SQS does not answer.
        """
        self._urls.pop(queue, None)
        self._url(queue)

    def send(self, queue: str, group: str, bodies: Sequence[str]) -> None:
        """Send texts, in order; raises as `check`."""
        url = self._url(queue)
        for number, body in enumerate(bodies):
            ordered = (
                {"MessageGroupId": group, "MessageDeduplicationId": f"{group}-{number}"}
                if queue.endswith(_FIFO)
                else {}
            )
            with self._sending(queue):
                self._client.send_message(QueueUrl=url, MessageBody=body, **ordered)  # type: ignore[arg-type]  # texts

    def _url(self, queue: str) -> str:
        if queue not in self._names:
            raise not_listed(queue, self._names)
        if queue not in self._urls:
            with self._sending(queue):
                self._urls[queue] = self._client.get_queue_url(QueueName=queue)["QueueUrl"]
        return self._urls[queue]

    @contextmanager
    def _sending(self, queue: str) -> Iterator[None]:
        try:
            yield
        except (BotoCoreError, ClientError) as error:
            self._urls.pop(queue, None)
            if code_of(error) in _GONE:
                raise gone(queue) from error
            raise unavailable(queue, error) from error
