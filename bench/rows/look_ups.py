"""Find keys in 16 shards: as the Python API does it, and as engines do that are given the files.

What is found is compared with the sources. A small table is asked first, so that code is loaded and
threads run. A look-up into a shard that no other was into before is cold, a second one for other
keys is warm. Engines look into the footers of all files at once: only their first is cold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.figures import emit
from bench.measure import bytes_read, read_once, run, set_aside
from bench.rows import instance as rows_instance
from bench.rows.data import (
    SCHEMAS,
    Digest,
    key_at,
    kind_of,
    leaf_ranges,
    save,
    saved,
)
from bench.rows.hashing import digest_of
from bench.rows.stages import name_of, shards_of, slowness
from bench.rows.work import LEAVES
from bench.s3.process import DATA, local_s3
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
class Question:
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


ALL_KEYS = Question((), "", "~")
LookUp = Callable[[Question], pa.Table]
"""Finds the rows of a question."""


class CountedFile(FileIO):
    """A file whose reads are counted: each would be a request to S3."""

    def __init__(self, path: Path, reads: list[int]) -> None:
        """Open the file at `path`; note the bytes of each read in `reads`."""
        super().__init__(path)
        self._reads = reads

    def read(self, size: int | None = -1) -> bytes:
        """Read and count."""
        content = super().read(-1 if size is None else size) or b""
        self._reads.append(len(content))
        return content

    def readinto(self, buffer: Any) -> int:
        """Read and count."""
        length = super().readinto(buffer) or 0
        self._reads.append(length)
        return length


class CountingStorage(FolderStorage):
    """A folder that counts what is read of it."""

    def __init__(self, root: Path) -> None:
        """Use the folder `root`."""
        super().__init__(root)
        self.reads: list[int] = []

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open an object whose reads are counted."""
        return cast(BinaryIO, CountedFile(Path(self.uri) / path, self.reads))

    def get(self, path: str) -> bytes:
        """Return an object, which counts as one read."""
        content = super().get(path)
        self.reads.append(len(content))
        return content

    def counts(self) -> dict[str, float]:
        """Return what was asked since the last call, as figures."""
        counts = {"requests": len(self.reads), "requested_kb": sum(self.reads) / 1000}
        self.reads.clear()
        return counts


def dormouse(storage: Storage, scratch: Path, folder: Path | None = None) -> LookUp:
    """Ask as the Python API does: the state knows the shards and their sizes.

    The shards are those of a folder, which the look-ups reach through `storage`.
    """
    uncounted = FolderStorage(folder or Path(storage.uri))
    maker = rows_instance.services(uncounted, scratch, MEMORY_BYTES, seed=4)
    shard, *_ = shards_of(uncounted.uri)
    rows_instance.reopened(maker, SCHEMAS[kind_of(shard)])
    services = rows_instance.fresh(maker, storage, scratch, MEMORY_BYTES)
    table = Instance(services, None, None, None).table(rows_instance.TABLE)

    def look_up(question: Question) -> pa.Table:
        if question.keys:
            return pa.Table.from_batches(table.query(exact=list(question.keys)))
        return pa.Table.from_batches(table.query([(question.low, question.high)]))

    return look_up


def duckdb(storage: FolderStorage, scratch: Path) -> LookUp:
    """Query DuckDB, with the list of files."""
    import duckdb

    connection = duckdb.connect()
    rows = f"SELECT * FROM read_parquet('{storage.uri}/*/data/*.parquet')"
    return lambda question: connection.sql(f"{rows} WHERE {question.sql}").to_arrow_table()


def datafusion(storage: FolderStorage, scratch: Path) -> LookUp:
    """Ask DataFusion, with the list of files."""
    from datafusion import SessionContext

    context = SessionContext()
    (data,) = Path(storage.uri).glob("*/data")
    context.register_parquet("rows", str(data))
    rows = "SELECT * FROM rows WHERE"
    return lambda q: pa.Table.from_batches(context.sql(f"{rows} {q.sql}").collect())


def polars(storage: FolderStorage, scratch: Path) -> LookUp:
    """Ask Polars, with the list of files."""
    import polars as pl

    def look_up(question: Question) -> pa.Table:
        key = pl.col("key")
        low, high = pl.lit(question.low), pl.lit(question.high)
        within = key.is_between(low, high, closed="left")
        condition = key.is_in(question.keys) if question.keys else within
        rows = pl.scan_parquet(f"{storage.uri}/*/data/*.parquet")
        return pa.table(rows.filter(condition).collect())

    return look_up


def pyarrow(storage: FolderStorage, scratch: Path) -> LookUp:
    """Ask pyarrow, with the list of files."""
    (data,) = Path(storage.uri).glob("*/data")

    def look_up(question: Question) -> pa.Table:
        within = [("key", ">=", question.low), ("key", "<", question.high)]
        filters = [("key", "in", question.keys)] if question.keys else within
        return pq.read_table(data, filters=filters)

    return look_up


SYSTEMS: dict[str, Callable[[FolderStorage, Path], LookUp]] = {
    "dormouse": dormouse,
    "duckdb": duckdb,
    "datafusion": datafusion,
    "polars": polars,
    "pyarrow": pyarrow,
}


def questions(what: str, keys: list[str]) -> tuple[list[Question], list[Question]]:
    """Return cold look-ups, each into shards of its own, and warm ones into the same shards."""
    if what == "keys_100":
        many = [tuple(keys[:KEYS_AT_ONCE]), tuple(keys[KEYS_AT_ONCE : 2 * KEYS_AT_ONCE])]
        return [Question(many[0])], [Question(many[1])]
    if what == "range_1_percent":
        leaves = [i / LEAVES for i in range(0, LEAVES, 4)]
        cold = [Question((), key_at(at + 0.01), key_at(at + 0.02)) for at in leaves]
        return cold, [Question((), key_at(at + 0.03), key_at(at + 0.04)) for at in leaves]
    of_leaf = [[key for key in keys if low <= key < high] for low, high in leaf_ranges(LEAVES)]
    return [Question((some[0],)) for some in of_leaf], [Question((some[1],)) for some in of_leaf]


def save_answers(folder: str, sources: str) -> None:
    """Note the keys to ask for, and the rows that each question is to find in these sources."""
    keys = json.loads((Path(sources) / "keys.json").read_text())
    asked = [one for what in PARTS for part in questions(what, keys) for one in part]
    answers = dict.fromkeys((one.sql for one in asked), Digest())
    for file in sorted(Path(sources).glob("*.parquet")):
        rows = pq.read_table(file)
        column = rows["key"]
        for one in asked:
            if one.keys:
                is_found = pc.is_in(column, pa.array(one.keys))
            else:
                is_found = pc.and_(pc.greater_equal(column, one.low), pc.less(column, one.high))
            found = digest_of(rows.filter(is_found).to_batches())
            answers[one.sql] = answers[one.sql].plus(found)
    Path(folder).mkdir()
    save(Path(folder) / ANSWERS, answers)
    (Path(folder) / "keys.json").write_text(json.dumps(keys))


def take(look_up: LookUp, question: Question, answer: Digest) -> dict[str, float]:
    """Return what one look-up takes.

    Raises:
        ValueError: it found other rows than those that are there.
    """
    before, found = bytes_read(), []
    taken = run(lambda: found.append(look_up(question)))
    read_bytes = bytes_read() - before
    if digest_of(found[0].to_batches()) != answer:
        raise ValueError(f"other rows were found than the {answer.rows} of {question}")
    return {
        "ms": taken["seconds"] * 1000,
        "cpu_ms": taken["cpu_seconds"] * 1000,
        "read_kb": read_bytes / 1000,
        "rows": answer.rows,
    }


def _take_all(
    look_up: LookUp,
    asked: Sequence[Question],
    answers: str,
    counts: Callable[[], dict[str, float]] = dict,
) -> dict[str, float]:
    """Return the medians of what look-ups take, and of what they ask for."""
    known = saved(Path(answers) / ANSWERS)
    counts()
    taken = [{**take(look_up, one, known[one.sql]), **counts()} for one in asked]
    return {name: median(one[name] for one in taken) for name in taken[0]}


def measure(
    part: str, system: str, number: int, what: str, table: str, warm_up: str, answers: str
) -> None:
    """Measure one system on one kind of look-up."""
    scratch = Path(warm_up).resolve() / "scratch"
    SYSTEMS[system](CountingStorage(Path(warm_up) / "data"), scratch)(ALL_KEYS)
    storage, is_ours = CountingStorage(Path(table)), system == "dormouse"
    look_up = SYSTEMS[system](storage, scratch)
    cold, warm = questions(what, json.loads((Path(answers) / "keys.json").read_text()))
    read_once(shards_of(table))
    set_aside()
    counts = storage.counts if is_ours else dict  # requests of others are not seen
    for heat, asked in (("cold", cold if is_ours else cold[:1]), ("warm", warm)):
        medians = _take_all(look_up, asked, answers, counts)
        emit(part, f"{system}, {heat}", number, **medians)


def on_s3(
    part: str,
    number: int,
    what: str,
    table: str,
    warm_up: str,
    answers: str,
    out: str,
    delay_ms: int,
) -> None:
    """Measure one kind of look-up on an S3 that takes its time, as the Python API does it."""
    scratch = Path(out).parent / "scratch"
    dormouse(FolderStorage(Path(warm_up) / "data"), scratch)(ALL_KEYS)
    cold, warm = questions(what, json.loads((Path(answers) / "keys.json").read_text()))
    with local_s3(Path(out) / "s3", slowness(delay_ms)) as s3:
        rows_instance.linked(shards_of(table), s3.folder / DATA)
        look_up = dormouse(s3.storage, scratch, s3.folder / DATA)
        s3.begin()
        set_aside()

        def counts() -> dict[str, float]:
            asked = s3.counts()
            read_kb = asked.get("sent_bytes", 0) / 1000
            return {"requests": asked.get("GetObject", 0), "read_kb": read_kb}

        for heat, asked in (("cold", cold), ("warm", warm)):
            emit(
                part,
                f"{name_of(delay_ms)}, {heat}",
                number,
                **_take_all(look_up, asked, answers, counts),
            )
