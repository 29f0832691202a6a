"""What everyday operations cost in a folder: calls of the library, SQLite transactions, CPU time.

``walks.py [ROUNDS] [--calls OPERATION]``: calls, functions and transactions are those of one warm
operation, CPU time is the median of `ROUNDS`. With ``--calls`` its functions are listed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

import dormouse
from dormouse.client import Instance
from dormouse.state.state import AddShards

LIBRARY = str(Path(dormouse.__file__).parent)
CONNECTED = f"{LIBRARY}/folder/sqlite.py", "Database._taken"
TEN_ROWS = pa.table({"id": list(range(10)), "name": ["a mouse"] * 10})
WARM = 3


def main() -> None:
    """Print a line for each operation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=20)
    parser.add_argument("--calls", metavar="OPERATION")
    arguments = parser.parse_args()
    print(f"{'':15}{'calls':>7}{'functions':>11}{'modules':>9}{'transactions':>14}{'CPU ms':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, operation in operations(Path(folder)).items():
            if arguments.calls in (None, name):
                report(name, operation, arguments.rounds, is_detailed=arguments.calls == name)


def operations(folder: Path) -> dict[str, Callable[[], object]]:
    """Return what is measured, on a new instance with a small table."""
    instance = Instance.open(folder, background=False)
    mice = instance.create_table("mice", "id:long, name:string?", row_keys=["id"])
    mice.ingest(TEN_ROWS)
    numbers = count(1)
    store = instance.services.store(mice.table)
    generation = mice.table.generation
    return {
        "set_properties": lambda: instance.set_properties(
            "mice", {"compaction_jobs_limit": next(numbers)}
        ),
        "commit": lambda: store.commit(
            AddShards(f"job{next(numbers)}", (f"source{next(numbers)}",), ()), generation=generation
        ),
        "query": lambda: mice.query(exact=next(numbers) % 10).read_all(),
        "ingest": lambda: mice.ingest(TEN_ROWS),
    }


def report(name: str, operation: Callable[[], Any], rounds: int, *, is_detailed: bool) -> None:
    """Print what an operation costs."""
    for _ in range(WARM):
        operation()
    times_ms = []
    for _ in range(rounds):
        before = time.process_time()
        operation()
        times_ms.append(1000 * (time.process_time() - before))
    calls = counted(operation)
    transactions = calls[CONNECTED]
    modules = {path for path, _ in calls}
    print(
        f"{name:15}{calls.total():7,}{len(calls):11,}{len(modules):9,}{transactions:14,}"
        f"{median(times_ms):9.2f}"
    )
    for (path, function), times in calls.most_common() if is_detailed else ():
        print(f"{times:7,}  {path.removeprefix(LIBRARY)}  {function}")


def counted(operation: Callable[[], Any]) -> Counter[tuple[str, str]]:
    """Return how often an operation calls each function of the library."""
    calls = Counter[tuple[str, str]]()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(LIBRARY):
            calls[frame.f_code.co_filename, frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return calls


if __name__ == "__main__":
    main()
