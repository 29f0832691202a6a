"""Look rows up by many clients at once, for a while: ``clients FOLDER CLIENTS SECONDS``."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import quantiles

from bench.common.figures import emit
from bench.service.server import TABLE, Server, fill, served

ROWS = 1_000_000


def main(folder: Path, clients: int, seconds: float) -> None:
    """Let the clients ask, and print what they saw."""
    fill(folder / "mice", ROWS)
    took: list[float] = []
    failures: list[str] = []
    with served(folder / "mice") as server:
        before, began = server.cpu_seconds(), time.perf_counter()
        threads = [
            threading.Thread(target=ask, args=(server, number, began + seconds, took, failures))
            for number in range(clients)
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
        clients,
        p50_ms=1000 * cuts[49],
        p99_ms=1000 * cuts[98],
        rate=len(took) / lasted,
        errors=len(failures),
        cpu_ms=1000 * used / len(took),
        peak_mb=peak_mb,
    )


def ask(server: Server, number: int, until: float, took: list[float], failures: list[str]) -> None:
    """Look up one key after the other until a time."""
    connection = server.connect()
    step = 0
    while time.perf_counter() < until:
        key = (number * 104_729 + step * 7919) % (ROWS // 100)
        step += 1
        began = time.perf_counter()
        try:
            status, body = connection.ask("POST", f"/tables/{TABLE}/query", {"keys": [[key, 5]]})
        except OSError as error:
            failures.append(repr(error))
            connection = server.connect()
            continue
        took.append(time.perf_counter() - began)
        if status != 200:
            failures.append(body.decode())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
