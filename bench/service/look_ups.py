"""Look rows up by key over HTTP and by the client itself, in turns: ``look_ups FOLDER COUNT``."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from statistics import median

from bench.common.figures import emit
from bench.service.server import TABLE, fill, served
from dormouse.client.instance import Instance

ROWS = 1_000_000
WARMING = 20


def main(folder: Path, count: int) -> None:
    """Measure both, look-up by look-up."""
    fill(folder / "mice", ROWS)
    keys = [(n * 7919) % (ROWS // 100) for n in range(count + WARMING)]
    took: dict[str, list[float]] = {"client": [], "HTTP": []}
    cpu = {"client": 0.0, "HTTP": 0.0}
    instance = Instance.open(folder / "mice", background=False)
    with instance, served(folder / "mice") as server:
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
            status, _ = connection.ask("POST", f"/tables/{TABLE}/query", {"keys": [[key, 5]]})
            assert status == 200
            took["HTTP"].append(time.perf_counter() - began)
            cpu["HTTP"] += time.process_time() - began_cpu
        of_server = server.cpu_seconds() - served_before
    cpu["HTTP"] += of_server
    for name in took:
        ms, cpu_ms = 1000 * median(took[name]), 1000 * cpu[name] / count
        emit("look-ups", name, count, ms=ms, cpu_ms=cpu_ms)
    emit("look-ups", "HTTP", count, server_cpu_ms=1000 * of_server / count)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
