"""A server of an instance in a folder, as a process of its own, and its clients.

They look rows up beside the client itself, many at once, and read large results.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from urllib3 import BaseHTTPResponse, HTTPConnectionPool, connection_from_url
from urllib3.exceptions import HTTPError

from bench.figures import emit
from bench.measure import environment, peak_bytes, tree, tree_cpu_seconds
from bench.service.first import TABLE
from dormouse.client.instance import Instance

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
        return sum(peak_bytes(Path(f"/proc/{pid}")) for pid in tree(self.process)) / 1024**2


@contextmanager
def served(folder: str) -> Iterator[Server]:
    variables = {
        **environment(),
        "DORMOUSE_INSTANCE": folder,
        "DORMOUSE_HTTP_TOKEN": _TOKEN,
    }
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

        took: dict[str, list[tuple[float, float]]] = {"client": [], "HTTP": []}
        for number, key in enumerate(keys):
            if number == WARMING:
                served_before = server.cpu_seconds()
            for name, ask in (("client", by_client), ("HTTP", by_http)):
                began, began_cpu = time.perf_counter(), time.process_time()
                ask(key)
                used = time.process_time() - began_cpu
                took[name].append((time.perf_counter() - began, used))
        of_server = {"client": 0.0, "HTTP": server.cpu_seconds() - served_before}
    for name, each in took.items():
        seconds, cpu = zip(*each[WARMING:], strict=True)
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
