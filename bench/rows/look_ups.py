"""Find keys in 16 shards: as the Python API does it, and as engines do that are given the files.

Run as ``python -m bench.rows.look_ups PART SYSTEM ROUND WHAT TABLE WARM_UP KEYS``; prints a
JSON line for each figure. WARM_UP is a small table that is asked first, so that code is loaded and
threads run. A look-up into a shard that no other was into before is cold, a second one for other
keys is warm. Engines look into the footers of all files at once: only their first is cold.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, cast

from bench.common.figures import emit
from bench.rows import instance as rows_instance
from bench.rows.data import SCHEMAS, key_at, split_points
from bench.rows.ingest import LEAVES
from bench.rows.measure import bytes_read, run
from dormouse.client.instance import Instance
from dormouse.storage import FolderStorage

PARTS = {
    "one_key": "look-up, one key",
    "keys_100": "look-up, 100 keys",
    "range_1_percent": "look-up, 1 % of all keys",
}
MEMORY_BYTES = 512 * 1024**2
KEYS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """What is looked up: some keys, or those from `low` up to `high` if there are none."""

    keys: tuple[str, ...] = ()
    low: str = ""
    high: str = ""

    @property
    def sql(self) -> str:
        """The same in SQL."""
        if self.keys:
            return f"key IN ({', '.join(map(repr, self.keys))})"
        return f"key >= {self.low!r} AND key < {self.high!r}"


LookUp = Callable[[Asked], int]
"""Finds the rows of what is asked, and gives their number."""


@dataclass
class Reads:
    """What was asked of a storage so far."""

    requests: int = 0
    size_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        """Count a request."""
        self.requests += 1
        self.size_bytes += size_bytes


class CountedFile(FileIO):
    """A file whose reads are counted: each would be a request to S3."""

    def __init__(self, path: Path, reads: Reads) -> None:
        """Open the file at `path`."""
        super().__init__(path)
        self._reads = reads

    def read(self, size: int | None = -1) -> bytes:
        """Read and count."""
        found = super().read(-1 if size is None else size) or b""
        self._reads.add(len(found))
        return found

    def readinto(self, buffer: Any) -> int:
        """Read and count."""
        length = super().readinto(buffer) or 0
        self._reads.add(length)
        return length


class CountingStorage(FolderStorage):
    """A folder that counts what is read of it."""

    def __init__(self, root: Path) -> None:
        """Use the folder `root`."""
        super().__init__(root)
        self.reads = Reads()

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object whose reads are counted."""
        return cast(BinaryIO, CountedFile(Path(self.uri) / path, self.reads))

    def get(self, path: str) -> bytes:
        """Return an object, which counts as one read."""
        found = super().get(path)
        self.reads.add(len(found))
        return found


def dormouse(storage: FolderStorage, scratch: Path) -> LookUp:
    """Ask as the Python API does: the state knows the shards and their sizes."""
    uncounted = FolderStorage(Path(storage.uri))
    maker = rows_instance.services(uncounted, scratch, MEMORY_BYTES, seed=4)
    rows_instance.reopened(maker, SCHEMAS["narrow"])
    # Services of their own, because those that made the state have read every footer.
    fresh = rows_instance.services(storage, scratch, MEMORY_BYTES, seed=5)
    given = replace(fresh, tables=maker.tables, store=maker.store)
    table = Instance(given, None, None, None).table(rows_instance.TABLE)

    def look_up(asked: Asked) -> int:
        if asked.keys:
            rows = table.query(exact=list(asked.keys))
        else:
            rows = table.query([(asked.low, asked.high)])
        return sum(batch.num_rows for batch in rows)

    return look_up


def duckdb(storage: FolderStorage, scratch: Path) -> LookUp:
    """Query DuckDB, which gets the paths of the files."""
    import duckdb

    connection = duckdb.connect()
    rows = f"SELECT * FROM read_parquet('{storage.uri}/*/data/*.parquet')"
    return lambda asked: connection.sql(f"{rows} WHERE {asked.sql}").to_arrow_table().num_rows


def datafusion(storage: FolderStorage, scratch: Path) -> LookUp:
    """Ask DataFusion, with the list of files."""
    from datafusion import SessionContext

    context = SessionContext()
    (data,) = Path(storage.uri).glob("*/data")
    context.register_parquet("rows", str(data))

    def look_up(asked: Asked) -> int:
        found = context.sql(f"SELECT * FROM rows WHERE {asked.sql}")
        return sum(batch.num_rows for batch in found.collect())

    return look_up


def polars(storage: FolderStorage, scratch: Path) -> LookUp:
    """Ask Polars, with the list of files."""
    import polars as pl

    def look_up(asked: Asked) -> int:
        key = pl.col("key")
        within = key.is_between(pl.lit(asked.low), pl.lit(asked.high), closed="left")
        wanted = key.is_in(asked.keys) if asked.keys else within
        rows = pl.scan_parquet(f"{storage.uri}/*/data/*.parquet")
        return rows.filter(wanted).collect().height

    return look_up


def pyarrow(storage: FolderStorage, scratch: Path) -> LookUp:
    """Ask pyarrow, with the list of files."""
    import pyarrow.parquet as pq

    (data,) = Path(storage.uri).glob("*/data")

    def look_up(asked: Asked) -> int:
        within = [("key", ">=", asked.low), ("key", "<", asked.high)]
        wanted = [("key", "in", asked.keys)] if asked.keys else within
        return pq.read_table(data, filters=wanted).num_rows

    return look_up


SYSTEMS: dict[str, Callable[[FolderStorage, Path], LookUp]] = {
    "dormouse": dormouse,
    "duckdb": duckdb,
    "datafusion": datafusion,
    "polars": polars,
    "pyarrow": pyarrow,
}


def questions(what: str, keys: list[str]) -> tuple[list[Asked], list[Asked]]:
    """Return cold look-ups, each into shards of its own, and warm ones into the same shards."""
    if what == "keys_100":
        many = [tuple(keys[:KEYS_AT_ONCE]), tuple(keys[KEYS_AT_ONCE : 2 * KEYS_AT_ONCE])]
        return [Asked(many[0])], [Asked(many[1])]
    leaves = [i / LEAVES for i in range(LEAVES)]
    if what == "range_1_percent":
        cold = [Asked((), key_at(at + 0.01), key_at(at + 0.02)) for at in leaves[::4]]
        return cold, [Asked((), key_at(at + 0.03), key_at(at + 0.04)) for at in leaves[::4]]
    points = ["", *split_points(LEAVES), "~"]
    of_leaf = [
        [key for key in keys if low <= key < high]
        for low, high in zip(points, points[1:], strict=False)
    ]
    return [Asked((held[0],)) for held in of_leaf], [Asked((held[1],)) for held in of_leaf]


def measure(look_up: LookUp, asked: Asked, storage: CountingStorage) -> dict[str, float]:
    """Return what one look-up takes."""
    storage.reads.requests = storage.reads.size_bytes = 0
    before, found = bytes_read(), 0

    def work() -> None:
        nonlocal found
        found = look_up(asked)

    taken = run(work)
    if found < max(1, len(asked.keys)):
        raise ValueError(f"{found} rows were found of {asked}")
    return {
        "ms": taken["seconds"] * 1000,
        "cpu_ms": taken["cpu_seconds"] * 1000,
        "read_kb": (bytes_read() - before) / 1000,
        "requests": storage.reads.requests,
        "requested_kb": storage.reads.size_bytes / 1000,
        "rows": found,
    }


def main() -> None:
    """Metric one system on one kind of look-up."""
    part, system, number, what, table, warm_up, keys = sys.argv[1:]
    scratch = Path(warm_up).resolve() / "scratch"
    small = CountingStorage(Path(warm_up) / "data")
    first = SYSTEMS[system](small, scratch)
    first(Asked((), "", "~"))
    storage = CountingStorage(Path(table))
    look_up = SYSTEMS[system](storage, scratch)
    cold, warm = questions(what, json.loads(Path(keys).read_text()))
    for heat, asked in (("cold", cold if system == "dormouse" else cold[:1]), ("warm", warm)):
        measured = [measure(look_up, one, storage) for one in asked]
        medians = {name: median(one[name] for one in measured) for name in measured[0]}
        if system != "dormouse":  # whose requests are not seen
            del medians["requests"], medians["requested_kb"]
        emit(part, f"{system}, {heat}", int(number), **medians)


if __name__ == "__main__":
    main()
