"""Import what the function imports before its first request: ``starts COUNT``."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

from bench.common.figures import emit

ROOT = Path(__file__).parents[2]
PROGRAMS = {
    "an empty program": "pass",
    "serve_http": "import functions.serve_http.handler",
    "answer_query": "import functions.answer_query.handler",
}


def main(count: int) -> None:
    """Print the least CPU seconds of each, in turns."""
    least: dict[str, float] = {}
    for _ in range(count):
        for name, program in PROGRAMS.items():
            before = _used()
            subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
            least[name] = min(_used() - before, least.get(name, float("inf")))
    for name, seconds in least.items():
        emit("starts", name, 0, cpu_seconds=seconds)


def _used() -> float:
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


if __name__ == "__main__":
    main(int(sys.argv[1]))
