"""What a function does for the HTTP API: its start, and what a look-up asks of AWS.

It has the packages of the layers alone, which are linked into a folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from bench.cost.prices import GB_SECOND, INVOCATION, MEGABYTES_PER_GB
from bench.figures import emit
from bench.measure import ROOT, cpu_seconds
from bench.service.client import SCHEMA, readings
from bench.service.first import TABLE, look_up
from bench.state.counting import DOLLARS_PER_MILLION
from dormouse.aws import clients
from dormouse.client.instance import Instance
from dormouse_cli.local.commands import LOCAL_PARAMETERS, find_template
from dormouse_cli.local.stack import LocalStack

STACK_ROWS, WARM_UP = 20_000, 5
COLD_STARTS = 5
MEMORY_MB = 1769
API_REQUEST = 1.00e-6
"""Dollars for a request to an HTTP API, up to 512 KB."""
PROGRAMS = {
    "an empty program": "pass",
    "serve_http": "import functions.serve_http.handler",
    "answer_query": "import functions.answer_query.handler",
}
LAYERS = ("core", "engine", "statements")
_PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==", re.MULTILINE)


class Layers:
    """The packages that functions have, in a folder of links; nothing else of this environment."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        for layer in LAYERS:
            for name in _PINNED.findall((ROOT / "shared" / f"layer-{layer}.txt").read_text()):
                self._link(name)

    def _link(self, name: str) -> None:
        found = distribution(name)
        tops = {file.parts[0] for file in found.files or () if ".." not in file.parts}
        for top in sorted(tops - {"__pycache__"}):
            target = self._folder / top
            if not target.exists():
                target.symlink_to(Path(str(found.locate_file(top))))

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        paths = (self._folder, ROOT, ROOT / "shared")
        return subprocess.run(
            [sys.executable, "-S", *arguments],
            check=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **variables},
            capture_output=True,
            text=True,
        )


def starts(folder: str, count: int) -> None:
    """Print the least CPU seconds of imports, in turns."""
    layers = Layers(Path(folder) / "layers")
    least: dict[str, float] = {}
    for _ in range(count):
        for name, program in PROGRAMS.items():
            before = cpu_seconds()
            layers.run("-c", program)
            least[name] = min(cpu_seconds() - before, least.get(name, float("inf")))
    for name, seconds in least.items():
        emit("starts", name, 0, cpu_seconds=seconds)


def requests(folder: str, count: int) -> None:
    """Count what a warm function asks of AWS for a look-up, on the local stack, and price it.

    The function's code answers here, over the services of a deployment; the stack has the rows.
    """
    with LocalStack(find_template(), LOCAL_PARAMETERS, Path(folder)) as stack:
        os.environ.update(stack.environment)
        asked: Counter[str] = Counter()

        def see(**given: Any) -> None:
            asked[given["model"].name] += 1

        clients.session().register("before-parameter-build", see)  # before clients are made
        instance = Instance.connect(stack.environment["DORMOUSE_INSTANCE"])
        table = instance.create_table(TABLE, SCHEMA, row_keys=["meter"], sort_keys=["at"])
        table.ingest(readings(0, STACK_ROWS))
        instance.wait()
        for number in range(count + WARM_UP):
            if number == WARM_UP:
                asked.clear()
                began = time.process_time()
            look_up(instance, number % (STACK_ROWS // 100))
        cpu_seconds = (time.process_time() - began) / count
        cold(Layers(Path(folder) / "layers"), stack.environment, COLD_STARTS)
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
    for name, value in counts.items():
        emit("requests", name, count, count=value)
    reads = sum(value for name, value in counts.items() if name in ("GetItem", "Query"))
    dollars = {
        "HTTP API": API_REQUEST * 1e6,
        "invocations": INVOCATION * 1e6,
        "function, by its CPU time": cpu_seconds * MEMORY_MB / MEGABYTES_PER_GB * GB_SECOND * 1e6,
        "DynamoDB": reads * DOLLARS_PER_MILLION["rru"],
        "S3": counts.get("GetObject", 0.0) * DOLLARS_PER_MILLION["get"],
    }
    for name, value in dollars.items():
        emit("dollars", name, count, a_million=value)
