"""Append to one table with 1 to 32 threads: Dormouse, PyIceberg (SQL catalog), delta-rs.

Nothing is simulated: each append writes a small Parquet file to a folder,
in memory where the machine has one, and commits it. All threads share one Python process, so
commits a second say how much work a commit is, and metadata bytes what it writes.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from bench.figures import emit
from bench.runner import IN_MEMORY
from bench.state.contention import quantile
from bench.state.workload import Clock, Ids
from dormouse.aws.state_store import S3StateStore
from dormouse.schema.types import Primitive
from dormouse.state.partitions import NewShard, Shard
from dormouse.state.state import AddShards, InitialisePartitions
from dormouse.state.store import Committed
from dormouse.storage import FolderStorage
from dormouse.stored.paths import data_prefix
from tests.support.hooked_pages import HookedPages

Append = Callable[[], int]
"""Appends once, however long it takes; returns how many attempts were in vain."""
ROWS = pa.table({"id": [f"customer-{i:09d}" for i in range(100)], "n": list(range(100))})


@dataclass
class Appended:
    """What the threads of one run did."""

    seconds: list[float] = field(default_factory=list)
    retries: int = 0
    failures: list[str] = field(default_factory=list)


def dormouse_writers(folder: Path, count: int, *, stores: int | None = None) -> list[Append]:
    """Return writers with a store each, as processes have, or with so many stores among them."""
    storage, pages, clock = FolderStorage(folder), HookedPages(), Clock()
    first = S3StateStore("t", storage, pages, clock, Ids(clock, 0))
    first.commit(InitialisePartitions((), (Primitive.STRING,)), generation=0)

    made = [
        S3StateStore("t", storage, pages, clock, Ids(clock, seed))
        for seed in range(1, (stores or count) + 1)
    ]

    def writer(seed: int) -> Append:
        ids, store = Ids(clock, 1000 + seed), made[seed % len(made)]

        def append() -> int:
            shard_id = f"{ids.new()}-0"
            body = io.BytesIO()
            pq.write_table(ROWS, body)
            storage.put(f"{data_prefix('t')}{shard_id}.parquet", body.getvalue())
            span = ("customer-000000000",), ("customer-000000099",)
            shard = Shard.of(shard_id, ROWS.num_rows, body.tell(), *span)
            new = NewShard(shard, (("root", ROWS.num_rows),))
            (outcome,) = store.commit(AddShards(ids.new(), (ids.new(),), (new,)), generation=0)
            assert isinstance(outcome, Committed), outcome
            return 0

        return append

    return [writer(seed) for seed in range(1, count + 1)]


def iceberg_writers(folder: Path, count: int) -> list[Append]:
    """Return writers with a SQL catalog on SQLite each."""
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitFailedException

    def catalog() -> SqlCatalog:
        uri = f"sqlite:///{folder}/catalog.db"
        return SqlCatalog("bench", uri=uri, warehouse=f"file://{folder}/data")

    first = catalog()
    first.create_namespace("n")
    first.create_table("n.t", schema=ROWS.schema)

    def writer() -> Append:
        table = catalog().load_table("n.t")

        def append() -> int:
            for retries in range(1000):
                try:
                    table.append(ROWS)
                except CommitFailedException:
                    table.refresh()
                else:
                    return retries
            raise TimeoutError("a thousand attempts were in vain")

        return append

    return [writer() for _ in range(count)]


class CountedRetries(logging.Handler):
    """Counts the attempts PyIceberg makes again by itself, of which only its log tells."""

    def __init__(self) -> None:
        """Begin at none."""
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record of one."""
        self.count += "retrying" in record.getMessage()


def delta_writers(folder: Path, count: int) -> list[Append]:
    """Return writers that use delta-rs, which tries again by itself."""
    from deltalake import CommitProperties, write_deltalake

    path = str(folder / "data")
    write_deltalake(path, ROWS)
    properties = CommitProperties(max_commit_retries=1000)

    def append() -> int:
        write_deltalake(path, ROWS, mode="append", commit_properties=properties)
        return 0

    return [append] * count


FORMATS: dict[str, Callable[[Path, int], list[Append]]] = {
    "dormouse": dormouse_writers,
    "dormouse, one process": partial(dormouse_writers, stores=1),
    "pyiceberg": iceberg_writers,
    "delta-rs": delta_writers,
}
METADATA = {"state", "metadata", "_delta_log"}


def measure(name: str, count: int, seconds: float) -> None:
    """Print what so many writers of a format reach in so many seconds."""
    parent = IN_MEMORY if IN_MEMORY.is_dir() else None
    with TemporaryDirectory(dir=parent) as temporary:
        folder = Path(temporary)
        writers = FORMATS[name](folder, count)
        counted, log = CountedRetries(), logging.getLogger("pyiceberg")
        log.handlers, log.propagate = [counted], False
        appended = Appended()
        began = time.monotonic()
        ends = began + seconds

        def life(append: Append) -> None:
            while time.monotonic() < ends and not appended.failures:
                start = time.monotonic()
                try:
                    retries = append()
                except Exception as error:  # whatever it is, it is printed and ends the run
                    appended.failures.append(f"{type(error).__name__}: {error}")
                    return
                appended.retries += retries
                appended.seconds.append(time.monotonic() - start)

        threads = [threading.Thread(target=life, args=(append,)) for append in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began
        appended.retries += counted.count
        show(name, count, appended, took, metadata_bytes(folder))


def show(name: str, count: int, appended: Appended, took: float, metadata: int) -> None:
    """Print the figures of a run; a failed one says only that it failed."""
    done = len(appended.seconds)
    if appended.failures or not done:
        emit("formats", name, count, failed=1, commits=done)
        return
    emit(
        "formats",
        name,
        count,
        commits_per_second=done / took,
        **({} if name == "delta-rs" else {"retries_per_commit": appended.retries / done}),
        p50_ms=quantile(appended.seconds, 0.5) * 1000,
        p99_ms=quantile(appended.seconds, 0.99) * 1000,
        metadata_bytes_per_commit=metadata / done,
        commits=done,
    )


def metadata_bytes(folder: Path) -> int:
    """Return the bytes of all files below the formats' folders of metadata."""
    return sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and METADATA & set(path.relative_to(folder).parts)
    )


def measure_all(seconds: float, counts: Sequence[int]) -> None:
    """Measure all formats that are installed, with so many writers each."""
    for count in counts:
        for name in FORMATS:
            try:
                measure(name, count, seconds)
            except ImportError as missing:
                emit("formats", name, count, not_installed=1)
                print(f"{name}: {missing}; try: make bench-state", file=sys.stderr)
