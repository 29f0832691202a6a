"""Append to one table with 1 to 32 threads: Dormouse, PyIceberg (SQL catalog), delta-rs.

Nothing is simulated: each append writes a small Parquet file to a folder,
in memory where the machine has one, and commits it. All threads share one Python process, so
commits a second say how much work a commit is, and metadata bytes what it writes.
"""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "retrying" in record.getMessage()


def delta_writers(folder: Path, count: int) -> list[Append]:
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
    parent = IN_MEMORY if IN_MEMORY.is_dir() else None
    with TemporaryDirectory(dir=parent) as temporary:
        writers = FORMATS[name](Path(temporary), count)
        counted, log = CountedRetries(), logging.getLogger("pyiceberg")
        log.handlers, log.propagate = [counted], False
        began = time.monotonic()
        ends, took, retries = began + seconds, list[float](), list[int]()

        def life(append: Append) -> None:
            while (start := time.monotonic()) < ends:
                retries.append(append())
                took.append(time.monotonic() - start)

        with ThreadPoolExecutor(count) as threads:
            list(threads.map(life, writers))
        lasted, size_bytes = time.monotonic() - began, metadata_bytes(Path(temporary))
    tried_again = (sum(retries) + counted.count) / len(took)
    emit(
        "formats",
        name,
        count,
        commits_per_second=len(took) / lasted,
        **({} if name == "delta-rs" else {"retries_per_commit": tried_again}),
        p50_ms=quantile(took, 0.5) * 1000,
        p99_ms=quantile(took, 0.99) * 1000,
        metadata_bytes_per_commit=size_bytes / len(took),
    )


def metadata_bytes(folder: Path) -> int:
    return sum(
        path.stat().st_size
        for path in folder.rglob("*")
        if path.is_file() and METADATA & set(path.relative_to(folder).parts)
    )


def measure_all(seconds: float, counts: Sequence[int]) -> None:
    for count in counts:
        for name in FORMATS:
            measure(name, count, seconds)
