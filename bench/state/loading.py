"""Measure cold loads of a table at its worst, and of its snapshot alone: CPU and most memory.

Called with references, a snapshot of so many, and the commits since. Both stores are measured, each
load in a process of its own: memory is what is resident beyond what the process had before.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.common.figures import emit
from bench.state.commits import Table
from bench.state.counting import Requests
from bench.state.memory import TABLE, peak_bytes, resident_bytes
from bench.state.worst import worst_table
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.state.state import TableState
from dormouse.storage import FolderStorage

STORES = ("s3", "dynamodb")
LOADS = ("alone", "worst")


def in_files(table: Table, folder: Path) -> Table:
    """Return a table with its objects as files, so that no process has them in memory."""
    storage = FolderStorage(folder)
    for stored in table.storage.list(""):
        path = folder / stored.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(table.storage.get(stored.path))
    return replace(table, storage=storage)


def load(references: int, table: Table, what: str) -> float:
    """Load the state, or the snapshot alone; print what that took, and return the CPU seconds."""
    import_module("dormouse.log.segments")  # a load would import it
    store = table.store(Requests(), 5)
    decode_snapshot(TABLE, encode_snapshot(TABLE, TableState()), "empty")  # what is loaded lazily
    base = resident_bytes()
    Path("/proc/self/clear_refs").write_text("5")
    newest = store.reader.manifest().newest
    assert newest is not None
    before = time.process_time()
    state = store.reader.snapshot(newest) if what == "alone" else store.current()
    seconds = time.process_time() - before
    peak, held = peak_bytes() - base, resident_bytes() - base
    emit(
        f"load_{what}",
        table.kept_in,
        references,
        cpu_seconds=seconds,
        peak_rss_bytes=peak,
        state_rss_bytes=held,
        peak_to_state=peak / held,
        version=state.version,
    )
    return seconds


def measure(references: int, snapshot: Path, commits: int) -> None:
    """Print all figures of a size, of both stores."""
    for kept_in in STORES:
        with TemporaryDirectory(dir=snapshot.parent) as folder:
            table = in_files(worst_table(snapshot.read_bytes(), kept_in, commits), Path(folder))
            alone, worst = (_in_new_process(references, table, what) for what in LOADS)
        emit("load_worst", kept_in, references, cpu_to_snapshot=worst / alone)


def _in_new_process(references: int, table: Table, what: str) -> float:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(load, references, table, what).result()


def main() -> None:
    """Measure a size from a snapshot with so many commits since: three arguments."""
    match sys.argv[1:]:
        case [references, snapshot, commits]:
            measure(int(float(references)), Path(snapshot), int(float(commits)))
        case _:
            sys.exit("usage: python -m bench.state.loading REFERENCES SNAPSHOT COMMITS")


if __name__ == "__main__":
    main()
