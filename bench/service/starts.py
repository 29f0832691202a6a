"""Import what functions import at their start, with their layers: ``starts FOLDER COUNT``."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from bench.common.figures import emit
from bench.service.layers import Layers

EMPTY = "an empty program"
PROGRAMS = {
    EMPTY: "pass",
    "serve_http": "import functions.serve_http.handler",
    "answer_query": "import functions.answer_query.handler",
}


def main(folder: Path, count: int) -> None:
    """Print the least CPU seconds of each, in turns, and where those of serve_http come from."""
    layers = Layers(folder / "layers")
    least: dict[str, float] = {}
    for _ in range(count):
        for name, program in PROGRAMS.items():
            before = _used()
            layers.run("-c", program)
            least[name] = min(_used() - before, least.get(name, float("inf")))
    for name, seconds in least.items():
        emit("starts", name, 0, cpu_seconds=seconds)
    seconds = least["serve_http"] - least[EMPTY]
    for origin, share in layers.shares("functions.serve_http.handler").items():
        emit("imports of serve_http", origin, 0, cpu_seconds=share * seconds)


def _used() -> float:
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
