"""Feeds queues to functions by the rules of Lambda's event source mappings; run by `stack`.

A message is deleted only when the function has succeeded with it. For a failure nothing is done:
the message comes back after its visibility timeout, and goes to the dead-letter queue by the
redrive rule.
"""

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from dormouse_cli.local.lambda_host import DEFAULT_SLOTS, Outcome
from dormouse_cli.local.plan import EventSource, LocalStackError, PlannedSchedule
from dormouse_cli.local.resources import ACCOUNT, REGION

_log = logging.getLogger(__name__)

Message = Mapping[str, Any]
Receive = Callable[[int, int], Sequence[Message]]
"""At most so many messages, waiting at most so many seconds for the first."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of messages that a function was given; those that `failed`, by id, come again."""

    source: EventSource
    messages: Sequence[Message]
    outcome: Outcome
    failed: frozenset[str]


Watch = Callable[[Batch], None]


def unwatched(batch: Batch) -> None:
    """Look at no batch."""


MAX_RECEIVE = 10
LONG_POLL_SECONDS = 20
_SHORT_POLL_SECONDS = 0.1


def gather(
    receive: Receive,
    source: EventSource,
    clock: Callable[[], float],
    pause: Callable[[float], object],
) -> list[Message]:
    """One batch: it ends when it is full, or the window since its first message is over."""
    batch = list(receive(min(source.batch_size, MAX_RECEIVE), LONG_POLL_SECONDS))
    if not batch:
        return batch
    end = clock() + source.batching_window_seconds
    while (rest := end - clock()) > 0 and len(batch) < source.batch_size:
        more = receive(min(source.batch_size - len(batch), MAX_RECEIVE), int(rest))
        batch.extend(more)
        if not more:
            pause(min(rest, _SHORT_POLL_SECONDS))
    return batch


def sqs_event(messages: Sequence[Message], source: EventSource) -> dict[str, Any]:
    """The event that Lambda makes of received messages."""
    return {"Records": [_record(message, source) for message in messages]}


def _record(message: Message, source: EventSource) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": dict(message.get("Attributes", {})),
        "messageAttributes": {
            name: _attribute(value) for name, value in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": source.queue_arn,
        "awsRegion": REGION,
    }


def _attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    lists: dict[str, Any] = {"stringListValues": [], "binaryListValues": []}
    return {name[0].lower() + name[1:]: part for name, part in value.items()} | lists


def failed_ids(outcome: Outcome, ids: Sequence[str], reports_item_failures: bool) -> set[str]:
    """The messages of a batch that are to come back, by what the function answered.

    An answer that names a message which is not of the batch fails the whole batch, as on AWS: the
    function is confused about what it did, and doing it again is the safe reading.
    """
    if outcome.failed:
        return set(ids)
    answer = json.loads(outcome.payload or b"null")
    if not reports_item_failures or answer is None:
        return set()
    try:
        failing = {failure["itemIdentifier"] for failure in answer.get("batchItemFailures") or ()}
    except (AttributeError, TypeError, KeyError):
        return set(ids)
    return failing if failing <= set(ids) else set(ids)


class EventSourcePoller(threading.Thread):
    """One event source mapping at work: a thread that receives, and one for each running batch."""

    def __init__(
        self,
        source: EventSource,
        sqs: Any,
        invoke: Callable[[str, bytes], Outcome],
        stopping: threading.Event,
        watch: Watch = unwatched,
    ) -> None:
        """`sqs` is a boto3 client; once `stopping` is set, failing calls are no errors.

        `watch` is called with every batch that the function received, by the batch's own thread.
        """
        super().__init__(name=source.queue_name, daemon=True)
        self._source, self._sqs, self._invoke = source, sqs, invoke
        self._stopping, self._watch = stopping, watch
        self._queue_url = sqs.get_queue_url(QueueName=source.queue_name)["QueueUrl"]
        self._concurrency = source.maximum_concurrency or DEFAULT_SLOTS

    def run(self) -> None:
        """Poll until `stopping` is set, then wait for the batches."""
        # Messages are received only for a batch that can run at once: waiting here would use up
        # their visibility timeout.
        permits = threading.Semaphore(self._concurrency)

        def finished(batch: Future[None]) -> None:
            permits.release()
            error = batch.exception()
            if error is not None and not self._stopping.is_set():
                _log.error("a batch of %s is left undone", self._source.queue_name, exc_info=error)

        with ThreadPoolExecutor(self._concurrency) as batches:
            while not self._stopping.is_set():
                permits.acquire()
                messages = self._gather()
                if messages:
                    batches.submit(self._process, messages).add_done_callback(finished)
                else:
                    permits.release()

    def _gather(self) -> list[Message]:
        try:
            return gather(self._receive, self._source, time.monotonic, self._stopping.wait)
        except (BotoCoreError, ClientError) as error:
            if not self._stopping.is_set():
                _log.error("cannot receive from %s: %s", self._source.queue_name, error)
                self._stopping.wait(1)
            return []

    def _receive(self, count: int, wait_seconds: int) -> Sequence[Message]:
        answer = self._sqs.receive_message(
            QueueUrl=self._queue_url,
            MaxNumberOfMessages=count,
            WaitTimeSeconds=min(wait_seconds, LONG_POLL_SECONDS),
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        messages: Sequence[Message] = answer.get("Messages", [])
        return messages

    def _process(self, messages: Sequence[Message]) -> None:
        event = json.dumps(sqs_event(messages, self._source)).encode()
        outcome = self._invoke(self._source.function, event)
        ids = [message["MessageId"] for message in messages]
        failed = failed_ids(outcome, ids, self._source.reports_item_failures)
        if failed and not self._stopping.is_set():
            _log.warning(
                "%s failed with %d of %d messages of %s",
                self._source.function,
                len(failed),
                len(messages),
                self._source.queue_name,
            )
        self._watch(Batch(self._source, messages, outcome, frozenset(failed)))
        self._acknowledge([message for message in messages if message["MessageId"] not in failed])

    def _acknowledge(self, messages: Sequence[Message]) -> None:
        for start in range(0, len(messages), MAX_RECEIVE):
            entries = [
                {"Id": str(index), "ReceiptHandle": message["ReceiptHandle"]}
                for index, message in enumerate(messages[start : start + MAX_RECEIVE])
            ]
            self._sqs.delete_message_batch(QueueUrl=self._queue_url, Entries=entries)


def scheduled_event(schedule: PlannedSchedule, event_id: str, now: float) -> dict[str, Any]:
    """The event that EventBridge sends at `now` (Unix seconds)."""
    if schedule.input is not None:
        event: dict[str, Any] = json.loads(str(schedule.input))
        return event
    return {
        "version": "0",
        "id": event_id,
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT,
        "time": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": REGION,
        "resources": [schedule.arn],
        "detail": {},
    }


def run_schedule(
    schedule: PlannedSchedule, invoke: Callable[[str, bytes], Outcome], stopping: threading.Event
) -> None:
    """Invoke a function once a period until `stopping` is set, first after one period."""
    while not stopping.wait(schedule.rate_seconds):
        event = json.dumps(scheduled_event(schedule, str(uuid.uuid4()), time.time())).encode()
        try:
            outcome = invoke(schedule.function, event)
        except LocalStackError:
            return  # the stack has begun to stop
        if outcome.failed and not stopping.is_set():
            _log.warning("%s failed on its schedule", schedule.function)
