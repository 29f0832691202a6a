"""The stack with times so short that what takes hours on AWS happens within minutes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dormouse.client.instance import Instance
from dormouse_cli.local.event_sources import Batch
from dormouse_cli.local.plan import Deployment, PlannedFunction, PlannedSchedule, Stored
from dormouse_cli.local.stack import LocalStack
from tests.chaos.proxy import FaultProxy
from tests.chaos.tally import Tally

TEMPLATE = Path(__file__).parents[2] / "template.yaml"
PARAMETERS = {"Instance": "chaos", "BatchWindowSeconds": "1", "Spark": "no"}

VISIBILITY_SECONDS = 15
"""Much less than a function may run: then its message comes again while it does."""
WRITER_SECONDS = 60
"""What writes shards ends before they are old enough to be taken for orphans."""
WRITERS = ("IngestFunction", "CompactFunction")
SWEEP_SECONDS, AUDIT_SECONDS = 12, 25


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A running instance: `direct` sees it as it is, `troubled` by way of the proxy."""

    stack: LocalStack
    direct: Instance
    troubled: Instance


@contextmanager
def rehearsal(
    proxy: FaultProxy, tally: Tally, folder: Path, concurrency: int
) -> Iterator[Rehearsal]:
    """Run the stack with its functions behind the proxy."""
    stack = LocalStack(
        TEMPLATE,
        PARAMETERS,
        folder,
        concurrency=concurrency,
        revise=lambda deployment, endpoint: _hurried(deployment, endpoint, proxy),
        watch=lambda batch: count_batch(tally, batch),
    )
    with stack, connected(stack) as direct:
        os.environ["AWS_ENDPOINT_URL"] = proxy.url
        troubled = Instance.connect()
        os.environ.update(stack.environment)
        yield Rehearsal(stack, direct, troubled)


@contextmanager
def connected(stack: LocalStack) -> Iterator[Instance]:
    """Return the instance of a running stack, which all clients made inside talk to."""
    before = dict(os.environ)
    os.environ.update(stack.environment)
    try:
        yield Instance.connect()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _hurried(deployment: Deployment, endpoint_url: str, proxy: FaultProxy) -> Deployment:
    proxy.upstream = endpoint_url.removeprefix("http://")

    def queue(queue: Stored) -> Stored:
        if "RedrivePolicy" not in queue.properties:
            return queue
        hurried = {**queue.properties, "VisibilityTimeout": VISIBILITY_SECONDS}
        return replace(queue, properties=hurried)

    def function(function: PlannedFunction) -> PlannedFunction:
        seconds = function.timeout_seconds
        if function.logical_id in WRITERS:
            seconds = min(seconds, WRITER_SECONDS)
        environment = {**function.environment, "AWS_ENDPOINT_URL": proxy.url}
        return replace(function, timeout_seconds=seconds, environment=environment)

    def schedule(schedule: PlannedSchedule) -> PlannedSchedule:
        if not schedule.function.endswith("sweep"):
            return schedule
        seconds = SWEEP_SECONDS if schedule.input is None else AUDIT_SECONDS
        return replace(schedule, rate_seconds=seconds)

    return replace(
        deployment,
        queues=tuple(map(queue, deployment.queues)),
        functions=tuple(map(function, deployment.functions)),
        schedules=tuple(map(schedule, deployment.schedules)),
    )


def count_batch(tally: Tally, batch: Batch) -> None:
    """Count what became of a batch of messages, and keep what no fault explains."""
    name = batch.source.queue_name
    tally.count("batches", name)
    tally.count("messages", name, len(batch.messages))
    again = sum(int(m["Attributes"]["ApproximateReceiveCount"]) > 1 for m in batch.messages)
    tally.count("redelivered", name, again)
    tally.count("failed messages", name, len(batch.failed))
    if batch.outcome.failed:
        error = json.loads(batch.outcome.payload)
        found = f"{error.get('errorType')}: {error.get('errorMessage')}"
        tally.count("failed runs", found)
        if "Runtime.ExitError" in found and "signal: 9" not in found:
            tally.wrong(f"function {batch.source.function} died by itself: {found}")
