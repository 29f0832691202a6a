"""What an instance asks of AWS while nothing happens: ``python -m bench.cost.idle``.

The real functions run on an embedded AWS, for some tables that nobody has changed for days. What
AWS does by itself, which are polls of queues, alarms and schedules, is counted in the template.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import boto3

from bench.cost.prices import DOLLARS_PER_MILLION, GB_SECOND, INVOCATION
from bench.figures import table
from dormouse.messages.requests import CreateTable
from dormouse.messages.stages import encode
from dormouse.system import SystemClock
from tests.support.world import LETTERS
from tests.template.conftest import NAMES, Template
from tests.template.flow import Flow, deployed

COUNTED, TABLES = 40, 200
"""As many tables as are counted, more than a process keeps the states of; and those of the sum."""
HOURS, DAYS = 730, 30
LOOK_MS, MINUTE_MS, SWEEP_MINUTES = 900_000, 60_000, 5
QUIET_DAYS = 10
ALARM, SQS_REQUEST = 0.10, 0.40
POLLS, FEWER_POLLS = 5 * 3 * 60, 2 * 3 * 60
"""Polls of a queue in an hour, each of which waits 20 seconds: Lambda has five pollers, and "can
optimize to as few as 2" without MaximumConcurrency."""
PRICES = {
    "GetItem": DOLLARS_PER_MILLION["rru"],
    "Query": DOLLARS_PER_MILLION["rru"],
    "GetObject": DOLLARS_PER_MILLION["get"],
    "ListObjectsV2": DOLLARS_PER_MILLION["list"],
    "ListMultipartUploads": DOLLARS_PER_MILLION["list"],
    "SendMessageBatch": SQS_REQUEST,
    "GetQueueAttributes": SQS_REQUEST,
    "GetQueueUrl": SQS_REQUEST,
}
"""Dollars for a million requests; those of a scan are counted by its bytes."""
OF_THE_INSTANCE = ("Scan", "GetQueueAttributes", "GetQueueUrl")
"""Requests that do not grow with the number of tables."""
RUN_SECONDS, REQUEST_SECONDS = 0.05, 0.008
"""What a run takes, and each request of it; estimated: nothing here runs on AWS."""
UNIT_BYTES = 4096


class Counting(Flow):
    """The functions of an instance; `counts` is how often they asked for what."""

    counts: Counter[str] = Counter()

    def see(self, params: Mapping[str, Any], model: Any, context: Any, **_: object) -> None:
        """Count a request of a function."""
        if self.stage is not None:
            self.counts[model.name] += 1


def main() -> None:
    """Print what a month costs."""
    logging.disable()
    template = Template.read()
    rows = []
    alarms = len(template.of_type("AWS::CloudWatch::Alarm")) - 1  # one is for tokens
    rows.append((f"{alarms} alarms", alarms * ALARM))
    mappings = template.of_type("AWS::Lambda::EventSourceMapping").values()
    polls = sum(POLLS if "ScalingConfig" in each else FEWER_POLLS for each in mappings)
    rows.append((f"polls of {len(mappings)} queues", polls * HOURS * SQS_REQUEST / 1e6))
    with deployed(Counting, TMPDIR=tempfile.mkdtemp()) as flow, clock_ahead() as forward:
        for name in (f"t{number:02}" for number in range(COUNTED)):
            flow.send("admin", encode(CreateTable(f"create-{name}", name, LETTERS.to_json())))
            flow.drop(f"{name}/1.parquet", "abc")
        flow.settle()
        forward(QUIET_DAYS * 24 * 60)

        def measures(minutes: int) -> None:
            for _ in range(minutes):
                flow.invoke("measure", {})
                forward(1)

        def sweeps(minutes: int) -> None:
            for _ in range(minutes // SWEEP_MINUTES):
                flow.invoke("sweep", {})
                flow.settle()
                forward(SWEEP_MINUTES)

        measures(LOOK_MS // MINUTE_MS)  # a new process reads more at first
        sweeps(LOOK_MS // MINUTE_MS)
        for what, runs, times, work in (
            ("`measure`, each minute", 15, 4 * HOURS, lambda: measures(15)),
            ("`sweep`, each five minutes", 12, HOURS, lambda: sweeps(60)),
            ("the daily audit", 1, DAYS, lambda: audit(flow)),
        ):
            rows += priced(what, counted(flow, work), runs, times)
    rows.append(("**sum**", sum(dollars for _, dollars in rows)))
    print(table(("what", "$ a month"), [(what, f"{dollars:.2f}") for what, dollars in rows]))


@contextmanager
def clock_ahead() -> Iterator[Callable[[int], None]]:
    """Let the clock go forward, by minutes, where the block says so."""
    clock, ahead = SystemClock.now_ms, [0]
    SystemClock.now_ms = lambda self: clock(self) + ahead[0]  # type: ignore[method-assign]

    def forward(minutes: int) -> None:
        ahead[0] += minutes * MINUTE_MS

    try:
        yield forward
    finally:
        SystemClock.now_ms = clock  # type: ignore[method-assign]


def audit(flow: Flow) -> None:
    """Run the daily audit, and what follows from it."""
    flow.invoke("sweep", {"audit": True})
    flow.settle()


def counted(flow: Counting, work: Callable[[], None]) -> Counter[str]:
    """Return what some work asks for with all tables; reads by scans in their units."""
    flow.counts.clear()
    work()
    found = Counter(flow.counts)
    grown = {n: c * (1 if n in OF_THE_INSTANCE else TABLES / COUNTED) for n, c in found.items()}
    return Counter(grown)


def priced(what: str, counts: Counter[str], runs: int, times: int) -> Iterator[tuple[str, float]]:
    """Print what some work asks for; yield what requests and runs cost in a month."""
    print(f"{what}: " + ", ".join(f"{count:,.0f} {name}" for name, count in counts.items()))
    missing = counts.keys() - {*PRICES, "Scan"}
    assert not missing, f"without a price: {missing}"
    requests = sum(count * PRICES.get(name, 0.0) for name, count in counts.items())
    requests += counts["Scan"] * scan_units() * DOLLARS_PER_MILLION["rru"]
    yield what, times * requests / 1e6
    seconds = runs * RUN_SECONDS + counts.total() * REQUEST_SECONDS
    yield f"runs of {what}", times * (runs * INVOCATION + seconds * 1769 / 1024 * GB_SECOND)


def scan_units() -> float:
    """Return the read units of a scan of the registry, with all tables."""
    items = boto3.client("dynamodb").scan(TableName=NAMES.table("tables"))["Items"]
    fields = (field for item in items for field in item.items())
    held = sum(len(name) + len(str(*value.values())) for name, value in fields)
    return held * TABLES / COUNTED / UNIT_BYTES


if __name__ == "__main__":
    main()
