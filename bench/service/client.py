"""A server of an instance in a folder, as a process of its own, and its clients.

They look rows up beside the client itself, many at once, and read large results.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.figures import emit
from bench.measure import cpu_seconds_of, environment, peak_bytes
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
    """Make an instance with a table of readings: 100 of each meter."""
    with Instance.open(folder) as instance:
        table = instance.create_table(TABLE, SCHEMA, row_keys=["meter"], sort_keys=["at"])
        for start in range(0, rows, piece):
            table.ingest(readings(start, min(rows, start + piece)))
        instance.wait()


def readings(start: int, end: int) -> pa.Table:
    """Return some readings; they take some 115 bytes each as JSON."""
    numbers = pa.array(np.arange(start, end))
    note = pc.binary_join_element_wise(_NOTE, numbers.cast(pa.string()), " ")
    meter, at = pc.divide(numbers, 100), np.arange(start, end) % 100
    return pa.table({"meter": meter, "at": at, "value": pc.multiply(numbers, 0.5), "note": note})


@dataclass
class Connection:
    """A connection of a client, which is kept open."""

    http: HTTPConnection
    headers: Mapping[str, str] = field(default_factory=dict)
    """Those of the last answer."""

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        content = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if content else {}
        self.http.request(
            method, path, content, {"Authorization": f"Bearer {_TOKEN}", **kind, **given}
        )
        response = self.http.getresponse()
        self.headers = response.headers
        return response.status, response.read()

    def get(self, path: str) -> Any:
        """Return what there is at a path."""
        return json.loads(self.ask("GET", path)[1])


@dataclass(frozen=True)
class Server:
    """A server that runs, and its process."""

    url: str
    process: int

    def connect(self) -> Connection:
        """Return a new connection."""
        return Connection(HTTPConnection(urlsplit(self.url).netloc, timeout=600))

    def cpu_seconds(self) -> float:
        """Return the CPU time of its process so far."""
        return cpu_seconds_of(self.process)

    def peak_mb(self) -> float:
        """Return the most memory that its process had."""
        return peak_bytes(Path(f"/proc/{self.process}")) / 1024**2


@contextmanager
def served(folder: str) -> Iterator[Server]:
    """Serve the instance in a folder within the block."""
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
    took: dict[str, list[float]] = {"client": [], "HTTP": []}
    cpu = {"client": 0.0, "HTTP": 0.0}
    instance = Instance.open(f"{folder}/mice", background=False)
    with instance, served(f"{folder}/mice") as server:
        table, connection = instance.table(TABLE), server.connect()
        for number, key in enumerate(keys):
            if number == WARMING:
                cpu = dict.fromkeys(cpu, 0.0)
                took = {name: [] for name in took}
                served_before = server.cpu_seconds()
            began, began_cpu = time.perf_counter(), time.process_time()
            assert table.query(exact=(key, 5)).read_all().num_rows == 1
            took["client"].append(time.perf_counter() - began)
            cpu["client"] += time.process_time() - began_cpu
            began, began_cpu = time.perf_counter(), time.process_time()
            status, _ = connection.ask("POST", QUERY, {"keys": [[key, 5]]})
            assert status == 200
            took["HTTP"].append(time.perf_counter() - began)
            cpu["HTTP"] += time.process_time() - began_cpu
        of_server = server.cpu_seconds() - served_before
    cpu["HTTP"] += of_server
    for name in took:
        ms, cpu_ms = 1000 * median(took[name]), 1000 * cpu[name] / count
        emit("look-ups", name, count, ms=ms, cpu_ms=cpu_ms)
    emit("look-ups", "HTTP", count, server_cpu_ms=1000 * of_server / count)


def clients(folder: str, count: int, seconds: float, rows: int = ROWS) -> None:
    """Look rows up by many clients at once, for a while, and print what they saw."""
    fill(f"{folder}/mice", rows)
    took: list[float] = []
    failures: list[str] = []
    with served(f"{folder}/mice") as server:
        before, began = server.cpu_seconds(), time.perf_counter()
        threads = [
            threading.Thread(
                target=_ask, args=(server, rows, number, began + seconds, took, failures)
            )
            for number in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
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
    connection = server.connect()
    step = 0
    while time.perf_counter() < until:
        key = (number * 104_729 + step * 7919) % (rows // 100)
        step += 1
        began = time.perf_counter()
        try:
            status, body = connection.ask("POST", QUERY, {"keys": [[key, 5]]})
        except OSError as error:
            failures.append(repr(error))
            connection = server.connect()
            continue
        took.append(time.perf_counter() - began)
        if status != 200:
            failures.append(body.decode())


def results(folder: str, rows: int) -> None:
    """Read a large result in pages, and as files that are answered later, as JSON lines."""
    fill(f"{folder}/mice", rows)
    with served(f"{folder}/mice") as server:
        for name, read in (("pages", _in_pages), ("files", _in_files)):
            before, began = server.cpu_seconds(), time.perf_counter()
            lines, size_bytes = read(server.connect())
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


def _in_pages(connection: Connection) -> tuple[int, int]:
    """Read page after page; return rows and bytes."""
    lines = size_bytes = 0
    after = ""
    while True:
        body = {"page_rows": PAGE_ROWS, "after": after}
        status, page = connection.ask("POST", QUERY, body, Accept="application/x-ndjson")
        assert status == 200, page
        lines += page.count(b"\n")
        size_bytes += len(page)
        after = connection.headers.get("dormouse-next", "")
        if not after:
            return lines, size_bytes


def _in_files(connection: Connection) -> tuple[int, int]:
    """Ask for all at once, wait, and read the files; return rows and bytes."""
    status, body = connection.ask("POST", QUERY, {}, Prefer="respond-async")
    assert status == 202, body
    location = json.loads(body)["location"]
    while (found := connection.get(location))["state"] in ("waiting", "running"):
        time.sleep(LOOK_SECONDS)
    assert found["state"] == "finished", found
    lines = size_bytes = 0
    for file in found["files"]:
        status, content = connection.ask("GET", file["url"])
        assert status == 200
        lines += content.count(b"\n")
        size_bytes += len(content)
    return lines, size_bytes
