"""Count what a warm function asks of AWS for a look-up, on the local stack: ``requests FOLDER N``;
and measure the first one after a cold start.

The function's code answers here, over the services of a deployment; the stack has the rows.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.common.figures import emit
from bench.cost.prices import GB_SECOND as DOLLARS_PER_GB_SECOND
from bench.cost.prices import INVOCATION, MEGABYTES_PER_GB
from bench.service.first import TABLE, look_up
from bench.service.layers import Layers
from bench.service.server import SCHEMA, readings
from bench.state.counting import DOLLARS_PER_MILLION
from dormouse.aws import clients
from dormouse.client.instance import Instance
from dormouse_cli.local.commands import LOCAL_PARAMETERS, find_template
from dormouse_cli.local.stack import LocalStack

ROWS, WARMING = 20_000, 5
COLD_STARTS = 5
MEMORY_MB = 1769
API_REQUEST = 1.00e-6
"""Dollars for a request to an HTTP API, up to 512 KB."""


def main(folder: Path, count: int) -> None:
    """Count, and print the counts and their price."""
    with LocalStack(find_template(), LOCAL_PARAMETERS, folder) as stack:
        os.environ.update(stack.environment)
        asked: Counter[str] = Counter()

        def see(params: Any, model: Any, **_: object) -> None:
            asked[model.name] += 1

        clients.session().register("before-parameter-build", see)  # before clients are made
        instance = Instance.connect(stack.environment["DORMOUSE_INSTANCE"])
        table = instance.create_table(TABLE, SCHEMA, row_keys=["meter"], sort_keys=["at"])
        table.ingest(readings(0, ROWS))
        instance.wait()
        for number in range(count + WARMING):
            if number == WARMING:
                asked.clear()
                began = time.process_time()
            look_up(instance, number % (ROWS // 100))
        cpu_seconds = (time.process_time() - began) / count
        cold(Layers(folder / "layers"), stack.environment, COLD_STARTS)
    show({name: asked[name] / count for name in sorted(asked)}, cpu_seconds, count)


def cold(layers: Layers, environment: Mapping[str, str], count: int) -> None:
    """Print the CPU time of a look-up after a cold start, the least of some processes."""
    runs = [
        json.loads(layers.run("-m", "bench.service.first", **environment).stdout)
        for _ in range(count)
    ]
    steps = ("imports", "the first look-up, with its clients", "the second look-up")
    for number, step in enumerate(steps):
        least = min(times[number] - (times[number - 1] if number else 0.0) for times in runs)
        emit("cold start", step, 0, cpu_seconds=least)


def show(counts: dict[str, float], cpu_seconds: float, count: int) -> None:
    """Print the counts of one look-up, and dollars for a million of them."""
    for name, value in counts.items():
        emit("requests", name, count, count=value)
    reads = sum(value for name, value in counts.items() if name in ("GetItem", "Query"))
    dollars = {
        "HTTP API": API_REQUEST * 1e6,
        "invocations": INVOCATION * 1e6,
        "function, by its CPU time": cpu_seconds
        * MEMORY_MB
        / MEGABYTES_PER_GB
        * DOLLARS_PER_GB_SECOND
        * 1e6,
        "DynamoDB": reads * DOLLARS_PER_MILLION["rru"],
        "S3": counts.get("GetObject", 0.0) * DOLLARS_PER_MILLION["get"],
    }
    for name, value in dollars.items():
        emit("dollars", name, count, a_million=value)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
