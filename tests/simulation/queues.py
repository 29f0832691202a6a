"""SQS in memory: messages that are hidden while they are worked on, and come again.

`Queues` is the service, `SqsClient` what boto3 shows a process of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError

from dormouse.errors import OutcomeUnknownError, UnavailableError
from dormouse.messages.stages import QUEUES
from dormouse.stored.paths import REPLIES, InstanceNames, dead_letter_queue
from tests.simulation.processes import Process
from tests.support.adapters import FakeClock
from tests.template.conftest import QUEUE_OF, Template

NAMES = InstanceNames("sim", "123456789012")
FUNCTION_OF = {queue: function for function, queue in QUEUE_OF.items()}
"""Which function a queue feeds."""


@dataclass(frozen=True)
class Feed:
    """How a queue and the function it feeds are set in the template. Times are in seconds."""

    function: str
    visibility_seconds: int
    receives: int
    batch: int
    timeout_seconds: int


@cache
def feeds() -> Mapping[str, Feed]:
    """Return the feed of each queue that has one, as the template says."""
    template = Template.read()
    mappings = {
        str(mapping["EventSourceArn"]).removeprefix(_arn_prefix()): mapping
        for mapping in template.of_type("AWS::Lambda::EventSourceMapping").values()
    }
    found = {}
    for queue, function in FUNCTION_OF.items():
        settings = template.queue(queue)
        found[queue] = Feed(
            function,
            int(settings["VisibilityTimeout"]),
            int(settings["RedrivePolicy"]["maxReceiveCount"]),
            int(mappings[queue]["BatchSize"]),
            int(template.function(function)["Timeout"]),
        )
    return found


@cache
def time_limits() -> Mapping[str, int]:
    """Return how many seconds a run of each function may take, as the template says."""
    template = Template.read()
    return {name: int(template.function(name)["Timeout"]) for name in (*QUEUE_OF, "sweep")}


def _arn_prefix() -> str:
    return "arn:aws:sqs:eu-west-2:123456789012:dormouse-test-"


@dataclass(eq=False)
class Waiting:
    """A message of a queue. It is given to nobody before `visible_ms`."""

    id: str
    body: str
    sent_ms: int
    visible_ms: int
    reason: str = ""
    receives: int = 0
    receipt: str = ""


@dataclass
class Queues:
    """The queues of an instance and their dead letters."""

    clock: FakeClock
    messages: dict[str, list[Waiting]] = field(default_factory=dict)
    count: int = 0
    order: Callable[[list[Waiting]], list[Waiting]] = list
    """In which order messages that can be seen are given out."""
    late_ms: Callable[[], int] = lambda: 0
    """How much later than asked for a message can be seen."""
    is_lost: Callable[[str, str], bool] = lambda queue, body: False
    """Whether a message to a queue is lost: SQS loses none, but people may discard dead letters."""

    def __post_init__(self) -> None:
        """Make the queues."""
        self.messages = {name: [] for name in (*QUEUES, REPLIES, *map(dead_letter_queue, QUEUES))}

    def send(
        self,
        queue: str,
        body: str,
        *,
        delay_seconds: int = 0,
        reason: str = "",
        is_kept: bool = False,
    ) -> None:
        """Send a message, which is not lost if it `is_kept`."""
        now_ms = self.clock.now_ms()
        self.count += 1
        visible_ms = now_ms + delay_seconds * 1000 + self.late_ms()
        if is_kept or not self.is_lost(queue, body):
            self.messages[queue].append(Waiting(f"m{self.count}", body, now_ms, visible_ms, reason))

    def receive(self, queue: str, most: int, visibility_seconds: int) -> list[Waiting]:
        """Return messages that can be seen, and hide them; those given too often are dead
        letters."""
        now_ms = self.clock.now_ms()
        given: list[Waiting] = []
        for message in self.order([m for m in self.messages[queue] if m.visible_ms <= now_ms]):
            if queue in FUNCTION_OF and message.receives >= feeds()[queue].receives:
                self.messages[queue].remove(message)
                self.messages[dead_letter_queue(queue)].append(message)
                continue
            message.receives += 1
            message.receipt = f"{message.id}-{message.receives}"
            message.visible_ms = now_ms + visibility_seconds * 1000
            given.append(message)
            if len(given) == most:
                break
        return given

    def hide(self, queue: str, receipt: str, seconds: int) -> None:
        """Let a message be seen again in `seconds`; an older receipt does nothing."""
        for message in self.messages[queue]:
            if message.receipt == receipt:
                message.visible_ms = self.clock.now_ms() + seconds * 1000

    def delete(self, queue: str, receipts: Iterable[str]) -> None:
        """Delete messages that were received under these receipts, if those are the newest."""
        gone = set(receipts)
        self.messages[queue] = [m for m in self.messages[queue] if m.receipt not in gone]

    def next_visible_ms(self) -> int | None:
        """Return when the next message of a queue that feeds a function can be seen; None: none."""
        return min((m.visible_ms for q in FUNCTION_OF for m in self.messages[q]), default=None)

    def has_visible(self, queue: str) -> bool:
        """Return whether a queue has a message that can be seen."""
        now_ms = self.clock.now_ms()
        return any(message.visible_ms <= now_ms for message in self.messages[queue])

    def waiting(self) -> int:
        """Count the messages that functions have not dealt with yet."""
        return sum(len(self.messages[queue]) for queue in FUNCTION_OF)

    def dead(self) -> list[tuple[str, Waiting]]:
        """Return all dead letters, with the queue which they were sent to."""
        return [(queue, m) for queue in QUEUES for m in self.messages[dead_letter_queue(queue)]]


class SqsClient:
    """What `SqsOutbox` and `SqsDeadLetters` ask of boto3, as calls of one process."""

    class exceptions:  # noqa: N801  # boto3's name
        """Errors of the service by their names."""

        class QueueDoesNotExist(ClientError):
            """There is no such queue."""

    def __init__(self, process: Process, queues: Queues) -> None:
        """Make requests to `queues` as `process`."""
        self._process, self._queues = process, queues

    def get_queue_url(self, *, QueueName: str) -> dict[str, str]:  # noqa: N803
        """Return the queue's name as its URL; a client keeps URLs, so that is no call."""
        return {"QueueUrl": QueueName.removeprefix(NAMES.queue(""))}

    def send_message(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        MessageBody: str,  # noqa: N803
        MessageAttributes: Mapping[str, Any],  # noqa: N803
    ) -> dict[str, Any]:
        """Send a message."""
        entry = {"Id": "0", "MessageBody": MessageBody, "MessageAttributes": MessageAttributes}
        return self._call("send_message", QueueUrl, [entry], self._send)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[Any]) -> dict[str, Any]:  # noqa: N803
        """Send messages."""
        return self._call("send_message_batch", QueueUrl, Entries, self._send)

    def change_message_visibility(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        ReceiptHandle: str,  # noqa: N803
        VisibilityTimeout: int,  # noqa: N803
    ) -> dict[str, Any]:
        """Let a message be seen again in so many seconds."""
        entry = {"Id": "0", "ReceiptHandle": ReceiptHandle, "VisibilityTimeout": VisibilityTimeout}
        return self._call("change_message_visibility", QueueUrl, [entry], self._hide)

    def change_message_visibility_batch(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        Entries: list[Any],  # noqa: N803
    ) -> dict[str, Any]:
        """Let messages be seen again."""
        return self._call("change_message_visibility_batch", QueueUrl, Entries, self._hide)

    def delete_message_batch(self, *, QueueUrl: str, Entries: list[Any]) -> dict[str, Any]:  # noqa: N803
        """Delete messages."""
        return self._call("delete_message_batch", QueueUrl, Entries, self._delete)

    def receive_message(
        self,
        *,
        QueueUrl: str,  # noqa: N803
        MaxNumberOfMessages: int,  # noqa: N803
        VisibilityTimeout: int,  # noqa: N803
        **_: object,
    ) -> dict[str, Any]:
        """Receive messages."""
        given: list[Waiting] = []
        self._call(
            "receive_message",
            QueueUrl,
            [],
            lambda queue, _: given.extend(
                self._queues.receive(queue, MaxNumberOfMessages, VisibilityTimeout)
            ),
        )
        return {"Messages": [_shown(message) for message in given]}

    def get_queue_attributes(self, *, QueueUrl: str, **_: object) -> dict[str, Any]:  # noqa: N803
        """Count the messages that can be seen, and the others."""
        now_ms = self._queues.clock.now_ms()
        messages = self._queues.messages[QueueUrl]
        seen = sum(m.visible_ms <= now_ms for m in messages)
        counts = {"": seen, "NotVisible": len(messages) - seen, "Delayed": 0}
        names = {f"ApproximateNumberOfMessages{name}": str(n) for name, n in counts.items()}
        return {"Attributes": names}

    def _call(
        self, method: str, queue: str, entries: list[Any], act: Callable[[str, list[Any]], None]
    ) -> dict[str, Any]:
        """Make a request; when it is done for half of its entries, the answer names the others."""
        half = len(entries) // 2
        done: list[int] = []

        def make(some: list[Any]) -> None:
            act(queue, some)
            done.append(len(some))

        try:
            self._process.call(
                "sqs",
                method,
                f"{queue} {len(entries)}",
                lambda: make(entries),
                (lambda: make(entries[:half])) if half else None,
            )
        except (UnavailableError, OutcomeUnknownError) as error:
            if done == [half] and half < len(entries):
                failed = {"Code": "Throttled", "SenderFault": False}
                return {"Failed": [{"Id": e["Id"], **failed} for e in entries[half:]]}
            raise EndpointConnectionError(endpoint_url=f"sqs: {error}") from error
        return {}

    def _send(self, queue: str, entries: list[Any]) -> None:
        for entry in entries:
            given = entry.get("MessageAttributes", {})
            reason = given["reason"]["StringValue"] if "reason" in given else ""
            delay_seconds = entry.get("DelaySeconds", 0)
            self._queues.send(
                queue, entry["MessageBody"], delay_seconds=delay_seconds, reason=reason
            )

    def _hide(self, queue: str, entries: list[Any]) -> None:
        for entry in entries:
            self._queues.hide(queue, entry["ReceiptHandle"], entry["VisibilityTimeout"])

    def _delete(self, queue: str, entries: list[Any]) -> None:
        self._queues.delete(queue, [entry["ReceiptHandle"] for entry in entries])


def _shown(message: Waiting) -> dict[str, Any]:
    attributes = {"reason": {"StringValue": message.reason}} if message.reason else {}
    return {
        "MessageId": message.id,
        "Body": message.body,
        "ReceiptHandle": message.receipt,
        "MessageAttributes": attributes,
        "Attributes": {
            "SentTimestamp": str(message.sent_ms),
            "ApproximateReceiveCount": str(message.receives),
        },
    }
