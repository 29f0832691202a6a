"""The dead-letter queues: `ports.DeadLetters`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from botocore.exceptions import BotoCoreError, ClientError

from dormouse import system
from dormouse.aws.sqs.batching import MAX_BATCH_ENTRIES, batched
from dormouse.aws.sqs.queues import SqsQueues, unavailable
from dormouse.ports.services import DeadLetter
from dormouse.retry_policy import RetryPolicy
from dormouse.stored.names import InstanceNames, dead_letter_queue

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import BatchResultErrorEntryTypeDef, MessageTypeDef

    _Failed = Sequence[BatchResultErrorEntryTypeDef]
    _Request = Callable[[str, list[dict[str, object]]], _Failed]

TAKEN_SECONDS = 300
"""The visibility timeout of a received dead letter."""
LOOK_SECONDS = 1
"""How long SQS waits for messages: with a wait it queries all of its servers (long polling)."""
_VISIBLE: Literal["ApproximateNumberOfMessages"] = "ApproximateNumberOfMessages"


class SqsDeadLetters:
    """The dead letters of one instance; thread-safe, like its client."""

    def __init__(
        self,
        client: SQSClient,
        names: InstanceNames,
        retry_policy: RetryPolicy | None = None,
        *,
        look_seconds: int = LOOK_SECONDS,
    ) -> None:
        """Use the queues that `names` gives; `retry_policy` is for entries SQS could not take."""
        self._client, self._look_seconds = client, look_seconds
        self._queues = SqsQueues(client, names, retry_policy or system.retry_policy())

    def receive(self, queue: str, most: int) -> list[DeadLetter]:
        """Receive dead letters, which are invisible to others for some minutes unless released."""
        dead = dead_letter_queue(queue)
        taken: dict[str, DeadLetter] = {}
        found: list[MessageTypeDef] = []
        while len(taken) < most:
            # Without a wait only some servers of SQS answer; if there may be messages, query all.
            may_be_more = len(found) == MAX_BATCH_ENTRIES or self._visible(dead) > 0
            found = self._receive(dead, most - len(taken), self._look_seconds * may_be_more)
            if not found:
                break
            taken |= {letter.id: letter for letter in map(_letter, found)}
        return list(taken.values())

    def release(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        """Make dead letters visible to others again; if that fails, their timeout does."""

        def request(url: str, entries: list[dict[str, object]]) -> _Failed:
            answer = self._client.change_message_visibility_batch(
                QueueUrl=url,
                Entries=[
                    {"Id": str(e["Id"]), "ReceiptHandle": str(e["handle"]), "VisibilityTimeout": 0}
                    for e in entries
                ],
            )
            return answer.get("Failed", [])

        self._each(dead_letter_queue(queue), letters, request)

    def redrive(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Send the bodies of dead letters to their queue again; return those that were accepted."""

        def request(url: str, entries: list[dict[str, object]]) -> _Failed:
            answer = self._client.send_message_batch(
                QueueUrl=url,
                Entries=[{"Id": str(e["Id"]), "MessageBody": str(e["body"])} for e in entries],
            )
            return answer.get("Failed", [])

        left = {letter.id for letter in self._each(queue, letters, request)}
        return [letter for letter in letters if letter.id not in left]

    def delete(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Delete received dead letters; return those that could not be deleted."""

        def request(url: str, entries: list[dict[str, object]]) -> _Failed:
            answer = self._client.delete_message_batch(
                QueueUrl=url,
                Entries=[{"Id": str(e["Id"]), "ReceiptHandle": str(e["handle"])} for e in entries],
            )
            return answer.get("Failed", [])

        return self._each(dead_letter_queue(queue), letters, request)

    def _each(
        self, queue: str, letters: Sequence[DeadLetter], request: _Request
    ) -> list[DeadLetter]:
        """Call `request` for all letters, in as few batches as possible; return those that failed.

        A batch without an answer fails as a whole, and the batches after it are not tried.
        """
        failed: list[DeadLetter] = []
        for _, batch in batched((queue, each, len(each.body.encode())) for each in letters):
            entries: list[dict[str, object]] = [
                {"Id": str(number), "handle": letter.receipt, "body": letter.body}
                for number, letter in enumerate(batch)
            ]
            left, _ = self._queues.retry_entries(queue, entries, request)
            failed += [batch[int(str(entry["Id"]))] for entry in left]
        return failed

    def _visible(self, queue: str) -> int:
        url = self._queues.url(queue)
        try:
            answer = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=[_VISIBLE])
        except (BotoCoreError, ClientError) as error:
            raise unavailable(queue, error) from error
        return int(answer["Attributes"][_VISIBLE])

    def _receive(self, queue: str, most: int, wait_seconds: int) -> list[MessageTypeDef]:
        url = self._queues.url(queue)
        try:
            answer = self._client.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=min(most, MAX_BATCH_ENTRIES),
                VisibilityTimeout=TAKEN_SECONDS,
                WaitTimeSeconds=wait_seconds,
                AttributeNames=["SentTimestamp", "ApproximateReceiveCount"],
                MessageAttributeNames=["reason"],
            )
        except (BotoCoreError, ClientError) as error:
            raise unavailable(queue, error) from error
        return answer.get("Messages", [])


def _letter(message: MessageTypeDef) -> DeadLetter:
    attributes = message.get("Attributes", {})
    given = message.get("MessageAttributes", {})
    return DeadLetter(
        id=message["MessageId"],
        body=message["Body"],
        reason=given["reason"].get("StringValue", "") if "reason" in given else "",
        receives=int(attributes.get("ApproximateReceiveCount", 0)),
        sent_ms=int(attributes.get("SentTimestamp", 0)),
        receipt=message["ReceiptHandle"],
    )
