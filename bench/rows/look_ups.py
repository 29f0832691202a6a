"""Find keys in 16 shards: as the Python API does it, and as engines do that are given the files.

What is found is compared with the sources. A small table is asked first, so that code is loaded and
threads run. A look-up into a shard that no other was into before is cold, a second one for other
keys is warm. Engines look into the footers of all files at once: only their first is cold.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.cost.prices import DOLLARS_PER_MILLION
from bench.figures import emit
from bench.measure import bytes_read, read_once, run, set_aside
from bench.rows import instance as rows_instance
from bench.rows.data import NUMBERS, SCHEMAS, Digest, digest_of, key_at, leaf_ranges, save, saved
from bench.rows.stages import LEAVES, name_of, shards_of
from bench.s3 import DATA, local_s3
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
        if self.keys:
            return f"key IN ({', '.join(map(repr, self.keys))})"
        return f"key >= {self.low!r} AND key < {self.high!r}"


ALL_KEYS = Question((), "", "~")
LookUp = Callable[[Question], pa.Table]
"""Finds the rows of a question."""


def dormouse(storage: Storage, scratch: Path, folder: Path | None = None) -> LookUp:
    """Ask as the Python API does: the state knows the shards and their sizes.

    The shards are those of a folder, which the look-ups reach through `storage`.
    """
    uncounted = FolderStorage(folder or Path(storage.uri))
    maker = rows_instance.services(uncounted, scratch, MEMORY_BYTES, seed=4)
    names = pq.read_schema(shards_of(uncounted.uri)[0]).names
    rows_instance.reopened(maker, SCHEMAS["wide" if NUMBERS["wide"][0] in names else "narrow"])
    services = rows_instance.fresh(maker, storage, scratch, MEMORY_BYTES)
    nothing: Any = None
    table = Instance(services, nothing, nothing, nothing).table(rows_instance.TABLE)

    def look_up(question: Question) -> pa.Table:
        if question.keys:
            return pa.Table.from_batches(table.query(exact=list(question.keys)))
        return pa.Table.from_batches(table.query([(question.low, question.high)]))

    return look_up


def duckdb(storage: FolderStorage, scratch: Path) -> LookUp:
    import duckdb

    connection = duckdb.connect()
    rows = f"SELECT * FROM read_parquet('{storage.uri}/*/data/*.parquet')"
    return lambda question: connection.sql(f"{rows} WHERE {question.sql}").to_arrow_table()


def datafusion(storage: FolderStorage, scratch: Path) -> LookUp:
    from datafusion import SessionContext

    context = SessionContext()
    (data,) = Path(storage.uri).glob("*/data")
    context.register_parquet("rows", str(data))
    rows = "SELECT * FROM rows WHERE"
    return lambda q: pa.Table.from_batches(context.sql(f"{rows} {q.sql}").collect())


def polars(storage: FolderStorage, scratch: Path) -> LookUp:
    import polars as pl

    def look_up(question: Question) -> pa.Table:
        key = pl.col("key")
        low, high = pl.lit(question.low), pl.lit(question.high)
        within = key.is_between(low, high, closed="left")
        condition = key.is_in(question.keys) if question.keys else within
        rows = pl.scan_parquet(f"{storage.uri}/*/data/*.parquet")
        return pa.table(rows.filter(condition).collect())

    return look_up


SYSTEMS: dict[str, Callable[[FolderStorage, Path], LookUp]] = {
    "dormouse": dormouse,
    "duckdb": duckdb,
    "datafusion": datafusion,
    "polars": polars,
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
    files = sorted(Path(sources).glob("*.parquet"))
    answers = {one.sql: digest_of(files, one.sql) for one in asked}
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
    if digest_of(found[0]) != answer:
        raise ValueError(f"other rows were found than the {answer.rows} of {question}")
    return {
        "ms": taken["seconds"] * 1000,
        "cpu_ms": taken["cpu_seconds"] * 1000,
        "read_kb": read_bytes / 1000,
        "rows": answer.rows,
    }


def _show(
    part: str,
    name: str,
    number: int,
    look_up: LookUp,
    asked: tuple[list[Question], list[Question]],
    answers: str,
    counts: Callable[[], dict[str, float]] = dict,
) -> None:
    """Print the medians of what cold and warm look-ups take, and of what they ask for."""
    known = saved(Path(answers) / ANSWERS)
    for heat, questions in zip(("cold", "warm"), asked, strict=True):
        counts()
        taken = [{**take(look_up, one, known[one.sql]), **counts()} for one in questions]
        medians = {figure: median(one[figure] for one in taken) for figure in taken[0]}
        emit(part, f"{name}, {heat}", number, **medians)


def _asked(what: str, answers: str) -> tuple[list[Question], list[Question]]:
    return questions(what, json.loads((Path(answers) / "keys.json").read_text()))


def measure(
    part: str, system: str, number: int, what: str, table: str, warm_up: str, answers: str
) -> None:
    scratch = Path(warm_up).resolve() / "scratch"
    SYSTEMS[system](FolderStorage(Path(warm_up) / "data"), scratch)(ALL_KEYS)
    look_up = SYSTEMS[system](FolderStorage(Path(table)), scratch)
    cold, warm = _asked(what, answers)
    read_once(shards_of(table))
    set_aside()
    asked = (cold if system == "dormouse" else cold[:1], warm)
    _show(part, system, number, look_up, asked, answers)


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
    with local_s3(Path(out) / "s3", delay_ms) as s3:
        rows_instance.linked(shards_of(table), s3.folder / DATA)
        look_up = dormouse(s3.storage, scratch, s3.folder / DATA)
        s3.begin()
        set_aside()

        def counts() -> dict[str, float]:
            asked = s3.counts()
            gets, read_kb = asked.get("GetObject", 0), asked.get("sent_bytes", 0) / 1000
            dollars = gets * DOLLARS_PER_MILLION["get"]
            return {"requests": gets, "read_kb": read_kb, "dollars": dollars}

        _show(part, name_of(delay_ms), number, look_up, _asked(what, answers), answers, counts)
