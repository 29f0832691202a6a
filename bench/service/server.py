"""A server of an instance in a folder, as a process of its own, and one client's connection."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.service.first import TABLE as TABLE
from dormouse.client.instance import Instance

SCHEMA = "meter: long, at: long, value: double, note: string"
_TICKS = os.sysconf("SC_CLK_TCK")
_TOKEN = "bench"
_NOTE = "a meter that is read every quarter of an hour, reading"


def fill(folder: Path, rows: int, *, piece: int = 1_000_000) -> None:
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

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        content = None if body is None else json.dumps(body).encode()
        kind = {"Content-Type": "application/json"} if content else {}
        self.http.request(
            method, path, content, {"Authorization": f"Bearer {_TOKEN}", **kind, **given}
        )
        response = self.http.getresponse()
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
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def peak_mb(self) -> float:
        """Return the most memory that its process had."""
        text = Path(f"/proc/{self.process}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+)", text)
        return int(found[1]) / 1024 if found else 0.0


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """Serve the instance in a folder within the block."""
    environment: Mapping[str, str] = {
        **os.environ,
        "DORMOUSE_INSTANCE": str(folder),
        "DORMOUSE_HTTP_TOKEN": _TOKEN,
    }
    command = [sys.executable, "-m", "dormouse_cli", "serve"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().partition("=")[2]
        try:
            yield Server(url, process.pid)
        finally:
            process.terminate()
