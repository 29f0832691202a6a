"""Serve the buckets below a folder until standard input ends.

``python -m bench.s3 FOLDER [--delay-ms 30] [--mb-per-second 75] [--mb-per-second-each 80]`` prints
the URL of the server. Each line of standard input is answered by a line of JSON with the counts
since the one before, and the CPU seconds that the server took.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from pathlib import Path

from bench.s3.server import Server, Slowness


def main() -> None:
    """Serve until the program that started this one ends, or closes its end."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("folder", type=Path)
    asked.add_argument("--delay-ms", type=float, default=0)
    asked.add_argument("--mb-per-second", type=float, default=0)
    asked.add_argument("--mb-per-second-each", type=float, default=0)
    given = asked.parse_args()
    slowness = Slowness(given.delay_ms, given.mb_per_second, given.mb_per_second_each)
    with Server(given.folder, slowness) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.endpoint, flush=True)
        cpu_seconds = time.process_time()
        for _ in sys.stdin:
            used, cpu_seconds = time.process_time() - cpu_seconds, time.process_time()
            print(json.dumps({**server.counts.taken(), "server_cpu_seconds": used}), flush=True)
        server.shutdown()


if __name__ == "__main__":
    main()
