"""Find keys in 16 shards: as the Python API does it, and as engines do that are given the files.

Run as ``python -m bench.rows.look_ups PART SYSTEM ROUND WHAT TABLE WARM_UP ANSWERS``; prints a
JSON line for each figure. What is found is compared with what ANSWERS says. WARM_UP is a small
table that is asked first, so that code is loaded and threads run. A look-up into a shard that no
other was into before is cold, a second one for other keys is warm. Engines look into the footers of
all files at once: only their first is cold.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.common.figures import emit
from bench.rows import instance as rows_instance
from bench.rows.data import SCHEMAS, key_at, kind_of, split_points
from bench.rows.digest import Digest, save, saved
from bench.rows.hashing import digest_of
from bench.rows.ingest import LEAVES
from bench.rows.measure import bytes_read, read_once, run, set_aside
from dormouse.client.instance import Instance
from dormouse.ports import Storage
from dormouse.storage import FolderStorage

PARTS = {
    "one_key": "look-up, one key",
    "keys_100": "look-up, 100 keys",
    "range_1_percent": "look-up, 1 % of all keys",
}
MEMORY_BYTES = 512 * 1024**2
KEYS_AT_ONCE = 100
ANSWERS = "answers.json"
"""What all questions find."""


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


LookUp = Callable[[Asked], pa.Table]
"""Finds the rows of what is asked."""


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


def dormouse(storage: Storage, scratch: Path, folder: Path | None = None) -> LookUp:
    """Ask as the Python API does: the state knows the shards and their sizes.

    The shards are those of a folder, which the look-ups reach through `storage`.
    """
    uncounted = FolderStorage(folder or Path(storage.uri))
    maker = rows_instance.services(uncounted, scratch, MEMORY_BYTES, seed=4)
    (shard, *_) = Path(uncounted.uri).glob("*/data/*.parquet")
    rows_instance.reopened(maker, SCHEMAS[kind_of(shard)])
    given = rows_instance.fresh(maker, storage, scratch, MEMORY_BYTES)
    table = Instance(given, None, None, None).table(rows_instance.TABLE)

    def look_up(asked: Asked) -> pa.Table:
        if asked.keys:
            return pa.Table.from_batches(table.query(exact=list(asked.keys)))
        return pa.Table.from_batches(table.query([(asked.low, asked.high)]))

    return look_up


def duckdb(storage: FolderStorage, scratch: Path) -> LookUp:
    """Query DuckDB, with the list of files."""
    import duckdb

    connection = duckdb.connect()
    rows = f"SELECT * FROM read_parquet('{storage.uri}/*/data/*.parquet')"
    return lambda asked: connection.sql(f"{rows} WHERE {asked.sql}").to_arrow_table()


def datafusion(storage: FolderStorage, scratch: Path) -> LookUp:
    """Ask DataFusion, with the list of files."""
    from datafusion import SessionContext

    context = SessionContext()
    (data,) = Path(storage.uri).glob("*/data")
    context.register_parquet("rows", str(data))

    def look_up(asked: Asked) -> pa.Table:
        return pa.Table.from_batches(context.sql(f"SELECT * FROM rows WHERE {asked.sql}").collect())

    return look_up


def polars(storage: FolderStorage, scratch: Path) -> LookUp:
    """Ask Polars, with the list of files."""
    import polars as pl

    def look_up(asked: Asked) -> pa.Table:
        key = pl.col("key")
        within = key.is_between(pl.lit(asked.low), pl.lit(asked.high), closed="left")
        wanted = key.is_in(asked.keys) if asked.keys else within
        rows = pl.scan_parquet(f"{storage.uri}/*/data/*.parquet")
        return pa.table(rows.filter(wanted).collect())

    return look_up


def pyarrow(storage: FolderStorage, scratch: Path) -> LookUp:
    """Ask pyarrow, with the list of files."""
    (data,) = Path(storage.uri).glob("*/data")

    def look_up(asked: Asked) -> pa.Table:
        within = [("key", ">=", asked.low), ("key", "<", asked.high)]
        wanted = [("key", "in", asked.keys)] if asked.keys else within
        return pq.read_table(data, filters=wanted)

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


def measure(look_up: LookUp, asked: Asked, answer: Digest) -> dict[str, float]:
    """Return what one look-up takes.

    Raises:
        ValueError: it found other rows than those that are there.
    """
    before, found = bytes_read(), []
    taken = run(lambda: found.append(look_up(asked)))
    read_bytes = bytes_read() - before
    if digest_of(found[0].to_batches()) != answer:
        raise ValueError(f"other rows were found than the {answer.rows} of {asked}")
    return {
        "ms": taken["seconds"] * 1000,
        "cpu_ms": taken["cpu_seconds"] * 1000,
        "read_kb": read_bytes / 1000,
        "rows": answer.rows,
    }


def counted(storage: CountingStorage, taken: dict[str, float]) -> dict[str, float]:
    """Return figures of a look-up with what was asked of the storage, which counts from 0 again."""
    reads, storage.reads = storage.reads, Reads()
    return {
        **taken,
        "requests": reads.requests,
        "requested_kb": reads.size_bytes / 1000,
    }


def save_answers(folder: Path, sources: Path) -> None:
    """Note the keys to ask for, and the rows that each question is to find in these sources."""
    keys = json.loads((sources / "keys.json").read_text())
    asked = [one for what in PARTS for part in questions(what, keys) for one in part]
    found = dict.fromkeys((one.sql for one in asked), Digest())
    for file in sorted(sources.glob("*.parquet")):
        rows = pq.read_table(file)
        column = rows["key"]
        for one in asked:
            if one.keys:
                wanted = pc.is_in(column, pa.array(one.keys))
            else:
                wanted = pc.and_(pc.greater_equal(column, one.low), pc.less(column, one.high))
            some = digest_of(rows.filter(wanted).to_batches())
            found[one.sql] = found[one.sql].plus(some)
    folder.mkdir()
    save(folder / ANSWERS, found)
    (folder / "keys.json").write_text(json.dumps(keys))


def main() -> None:
    """Measure one system on one kind of look-up."""
    part, system, number, what, table, warm_up, answers = sys.argv[1:]
    scratch = Path(warm_up).resolve() / "scratch"
    small = CountingStorage(Path(warm_up) / "data")
    first = SYSTEMS[system](small, scratch)
    first(Asked((), "", "~"))
    storage = CountingStorage(Path(table))
    look_up = SYSTEMS[system](storage, scratch)
    cold, warm = questions(what, json.loads((Path(answers) / "keys.json").read_text()))
    known = saved(Path(answers) / ANSWERS)
    read_once(sorted(Path(table).rglob("*.parquet")))
    set_aside()
    for heat, asked in (("cold", cold if system == "dormouse" else cold[:1]), ("warm", warm)):
        measured = [counted(storage, measure(look_up, one, known[one.sql])) for one in asked]
        medians = {name: median(one[name] for one in measured) for name in measured[0]}
        if system != "dormouse":  # whose requests are not seen
            del medians["requests"], medians["requested_kb"]
        emit(part, f"{system}, {heat}", int(number), **medians)


if __name__ == "__main__":
    main()
