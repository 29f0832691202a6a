"""What in the queues needs a person: the sweep publishes it, and two alarms watch that.

An alarm for each queue would cost $2.60 a month.
"""

from __future__ import annotations

from collections.abc import Callable

from dormouse.aws.logs import log_queues
from dormouse.aws.queues import CloudWatchAges, SqsOutbox
from dormouse.messages.stages import QUEUES, STAGE_OF
from dormouse.stored.paths import InstanceNames, dead_letter_queue


def watch_queues(
    outbox: SqsOutbox,
    names: InstanceNames,
    now_ms: int,
    ages: Callable[[InstanceNames], CloudWatchAges] = CloudWatchAges.of,
) -> None:
    """Publish which queues have dead letters, and in which messages have waited for longer than
    `late_seconds` of their stage. CloudWatch is asked only about queues that are not empty.

    Raises:
        UnavailableError: SQS or CloudWatch does not answer; what was known by then is published.
        NotFoundError: there is no such queue.
    """
    counts = outbox.counts([*QUEUES, *map(dead_letter_queue, QUEUES)])
    held = {queue: count.waiting + count.in_flight for queue, count in counts.items()}
    dead = {q: letters for q in QUEUES if (letters := held[dead_letter_queue(q)])}
    log_queues(names.instance, dead, {})
    if busy := [queue for queue in QUEUES if held[queue]]:
        waiting = ages(names).ages(busy, now_ms)
        late = {q: age for q, age in waiting.items() if age > STAGE_OF[q].late_seconds}
        log_queues(names.instance, {}, late)
