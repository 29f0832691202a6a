"""What an instance asks of AWS while nothing happens: ``python -m bench.cost.idle``.

The real functions run on an embedded AWS, for some tables that nobody has changed for hours. What
AWS does by itself, which are polls of queues, alarms and schedules, is counted in the template.
"""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from bench.cost.prices import DOLLARS_PER_MILLION, GB_SECOND, INVOCATION
from dormouse.messages.requests import CreateTable
from dormouse.messages.stages import encode
from dormouse.system import SystemClock
from tests.support.world import LETTERS
from tests.template.conftest import Template
from tests.template.flow import Flow, deployed

COUNTED, TABLES = 20, 200
HOURS = 730
HOUR_MS, SWEEP_MS = 3_600_000, 300_000
ALARM, SQS_REQUEST = 0.10, 0.40e-6
POLLS = 5 * 3 * 60
"""Polls of a queue in an hour: Lambda has five pollers, each of which waits 20 seconds."""
PRICES = {
    "GetItem": DOLLARS_PER_MILLION["rru"],
    "Query": DOLLARS_PER_MILLION["rru"],
    "Scan": 25 * DOLLARS_PER_MILLION["rru"],  # of 200 entries of half a KB
    "GetObject": DOLLARS_PER_MILLION["get"],
    "ListObjectsV2": DOLLARS_PER_MILLION["list"],
    "SendMessageBatch": SQS_REQUEST * 1e6,
}
"""Dollars for a million requests."""


class Counting(Flow):
    """The functions of an instance; `counts` is how often they asked for what."""

    counts: Counter[str] = Counter()

    def see(self, params: Mapping[str, Any], model: Any, context: Any, **_: object) -> None:
        """Count a request of a function."""
        if self.stage is not None:
            self.counts[model.name] += 1

    def of(self, work: Callable[[], object]) -> Counter[str]:
        """Return what some work asks for."""
        self.counts.clear()
        work()
        return Counter(self.counts)


def main() -> None:
    """Print what a month costs."""
    logging.disable()
    with deployed(Counting, TMPDIR=tempfile.mkdtemp()) as flow:
        for name in (f"t{number:02}" for number in range(COUNTED)):
            flow.send("admin", encode(CreateTable(f"create-{name}", name, LETTERS.to_json())))
            flow.drop(f"{name}/1.parquet", "abc")
        flow.settle()
        clock, shift = SystemClock.now_ms, [3 * HOUR_MS]
        SystemClock.now_ms = lambda self: clock(self) + shift[0]  # type: ignore[method-assign]

        def sweeps() -> None:
            for _ in range(HOUR_MS // SWEEP_MS):
                flow.invoke("sweep", {})
                flow.settle()
                shift[0] += SWEEP_MS

        flow.invoke("measure", {})
        measured = flow.of(lambda: flow.invoke("measure", {}))
        _print("measure, each minute", measured, 60 * HOURS)
        _print("sweeps and plans of an hour", flow.of(sweeps), HOURS)
        _print("audit, each day", flow.of(lambda: flow.invoke("sweep", {"audit": True})), 30)
    template = Template.read()
    alarms = len(template.of_type("AWS::CloudWatch::Alarm"))
    queues = len(template.of_type("AWS::Lambda::EventSourceMapping"))
    print(f"{alarms} alarms: ${alarms * ALARM:.2f}")
    print(f"polls of {queues} queues: ${queues * POLLS * HOURS * SQS_REQUEST:.2f}")
    runs = 60 * HOURS + 12 * HOURS
    print(f"{runs:,} runs of half a second: ${runs * (INVOCATION + 0.5 * 1.73 * GB_SECOND):.2f}")


def _print(what: str, counts: Counter[str], times: int) -> None:
    """Print what requests cost that some tables caused, for all and so many times."""
    scaled = {n: c * (1 if n == "Scan" else TABLES / COUNTED) for n, c in counts.items()}
    dollars = sum(count * times * PRICES.get(name, 0.0) for name, count in scaled.items()) / 1e6
    shown = ", ".join(f"{count:,.0f} {name}" for name, count in sorted(scaled.items()))
    print(f"{what}: {shown}; ${dollars:.2f} a month")


if __name__ == "__main__":
    main()
