"""A server of an instance in a folder, as a process of its own, and its clients; and functions.

Clients look rows up beside the client itself, many at once, and read large results. A function has
the packages of the layers alone, which are linked into a folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import distribution
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, connection_from_url
from urllib3.exceptions import HTTPError

from bench.cost.prices import DOLLARS_PER_MILLION, GB_SECOND, INVOCATION, MEGABYTES_PER_GB
from bench.figures import emit
from bench.measure import ROOT, cpu_seconds, environment, run, tree_cpu_seconds, tree_peak_bytes
from bench.service.first import TABLE, look_up
from dormouse.aws import clients as of_aws
from dormouse.client.instance import Instance
from dormouse_cli.local.commands import LOCAL_PARAMETERS, find_template
from dormouse_cli.local.stack import LocalStack

QUERY = f"/tables/{TABLE}/query"
ROWS = 1_000_000
WARMING = 20
PAGE_ROWS = 10_000
LOOK_SECONDS = 0.5
SCHEMA = "meter: long, at: long, value: double, note: string"
_TOKEN = "bench"
_NOTE = "a meter that is read every quarter of an hour, reading"


def fill(folder: str, rows: int, *, piece: int = 1_000_000) -> None:
    with Instance.open(folder) as instance:
        table = instance.create_table(TABLE, SCHEMA, row_keys=["meter"], sort_keys=["at"])
        for start in range(0, rows, piece):
            table.ingest(readings(start, min(rows, start + piece)))
        instance.wait()


def readings(start: int, end: int) -> pa.Table:
    """Return some readings; they take some 115 bytes each as JSON."""
    numbers = pa.array(np.arange(start, end))
    parts: Any = (_NOTE, numbers.cast(pa.string()), " ")
    note = pc.binary_join_element_wise(*parts)
    meter, at = pc.divide(numbers, 100), np.arange(start, end) % 100
    return pa.table({"meter": meter, "at": at, "value": pc.multiply(numbers, 0.5), "note": note})


@dataclass(frozen=True)
class Server:
    url: str
    process: int

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> BaseHTTPResponse:
        """Return an answer; threads have connections of their own, which are kept open."""
        given = {"Authorization": f"Bearer {_TOKEN}", **headers}
        return self._pool.request(method, path, json=body, headers=given, retries=False)

    @cached_property
    def _pool(self) -> HTTPConnectionPool:
        return connection_from_url(self.url, timeout=600, maxsize=64)

    def cpu_seconds(self) -> float:
        return tree_cpu_seconds(self.process)

    def peak_mb(self) -> float:
        return tree_peak_bytes(self.process) / 1e6


@contextmanager
def served(folder: str) -> Iterator[Server]:
    variables = {**environment(), "DORMOUSE_INSTANCE": folder, "DORMOUSE_HTTP_TOKEN": _TOKEN}
    command = [sys.executable, "-m", "dormouse_cli", "serve"]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().partition("=")[2]
        try:
            yield Server(url, process.pid)
        finally:
            process.terminate()


def look_ups(folder: str, count: int, rows: int = ROWS) -> None:
    """Look rows up by key over HTTP and by the client itself, in turns."""
    fill(f"{folder}/mice", rows)
    keys = [(n * 7919) % (rows // 100) for n in range(count + WARMING)]
    instance = Instance.open(f"{folder}/mice", background=False)
    with instance, served(f"{folder}/mice") as server:
        table = instance.table(TABLE)

        def by_client(key: int) -> None:
            assert table.query(exact=(key, 5)).read_all().num_rows == 1

        def by_http(key: int) -> None:
            assert server.ask("POST", QUERY, {"keys": [[key, 5]]}).status == 200

        took: dict[str, list[dict[str, float]]] = {"client": [], "HTTP": []}
        for number, key in enumerate(keys):
            if number == WARMING:
                served_before = server.cpu_seconds()
            for name, ask in (("client", by_client), ("HTTP", by_http)):
                took[name].append(run(partial(ask, key)))
        of_server = {"client": 0.0, "HTTP": server.cpu_seconds() - served_before}
    for name, each in took.items():
        seconds, cpu = ([t[n] for t in each[WARMING:]] for n in ("seconds", "cpu_seconds"))
        cpu_ms = 1000 * (sum(cpu) + of_server[name]) / count
        emit("look-ups", name, count, ms=1000 * median(seconds), cpu_ms=cpu_ms)
    emit("look-ups", "HTTP", count, server_cpu_ms=1000 * of_server["HTTP"] / count)


def clients(folder: str, count: int, seconds: float, rows: int = ROWS) -> None:
    """Look rows up by many clients at once, for a while, and print what they saw."""
    fill(f"{folder}/mice", rows)
    took: list[float] = []
    failures: list[str] = []
    with served(f"{folder}/mice") as server:
        before, began = server.cpu_seconds(), time.perf_counter()
        with ThreadPoolExecutor(count) as threads:
            for number in range(count):
                threads.submit(_ask, server, rows, number, began + seconds, took, failures)
        lasted = time.perf_counter() - began
        used, peak_mb = server.cpu_seconds() - before, server.peak_mb()
    for failure, times in Counter(failures).most_common():
        print(f"{times} times: {failure}", file=sys.stderr)
    cuts = quantiles(took, n=100)
    emit(
        "clients",
        "HTTP",
        count,
        p50_ms=1000 * cuts[49],
        p99_ms=1000 * cuts[98],
        rate=len(took) / lasted,
        errors=len(failures),
        cpu_ms=1000 * used / len(took),
        peak_mb=peak_mb,
    )


def _ask(
    server: Server, rows: int, number: int, until: float, took: list[float], failures: list[str]
) -> None:
    """Look up one key after the other until a time."""
    step = 0
    while time.perf_counter() < until:
        key = (number * 104_729 + step * 7919) % (rows // 100)
        step += 1
        began = time.perf_counter()
        try:
            answer = server.ask("POST", QUERY, {"keys": [[key, 5]]})
        except HTTPError as error:
            failures.append(repr(error))
            continue
        took.append(time.perf_counter() - began)
        if answer.status != 200:
            failures.append(answer.data.decode())


def results(folder: str, rows: int) -> None:
    """Read a large result in pages, and as files that are answered later, as JSON lines."""
    fill(f"{folder}/mice", rows)
    with served(f"{folder}/mice") as server:
        for name, read in (("pages", _in_pages), ("files", _in_files)):
            before, began = server.cpu_seconds(), time.perf_counter()
            lines, size_bytes = read(server)
            assert lines == rows, f"{lines} of {rows} rows"
            emit(
                "results",
                name,
                rows,
                seconds=time.perf_counter() - began,
                cpu_seconds=server.cpu_seconds() - before,
                megabytes=size_bytes / 1e6,
                peak_mb=server.peak_mb(),
            )


def _in_pages(server: Server) -> tuple[int, int]:
    lines, size_bytes, after = 0, 0, ""
    while True:
        body = {"page_rows": PAGE_ROWS, "after": after}
        page = server.ask("POST", QUERY, body, Accept="application/x-ndjson")
        assert page.status == 200, page.data
        lines += page.data.count(b"\n")
        size_bytes += len(page.data)
        after = page.headers.get("dormouse-next", "")
        if not after:
            return lines, size_bytes


def _in_files(server: Server) -> tuple[int, int]:
    """Ask for all at once, wait, and read the files; return rows and bytes."""
    asked = server.ask("POST", QUERY, {}, Prefer="respond-async")
    assert asked.status == 202, asked.data
    location = asked.json()["location"]
    while (found := server.ask("GET", location).json())["state"] in ("waiting", "running"):
        time.sleep(LOOK_SECONDS)
    assert found["state"] == "finished", found
    files = [server.ask("GET", file["url"]).data for file in found["files"]]
    return sum(file.count(b"\n") for file in files), sum(map(len, files))


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

        of_aws.session().register("before-parameter-build", see)  # before clients are made
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
