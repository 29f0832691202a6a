"""Random histories of a table that keeps the latest rows, in a folder, against plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from tests.support.depth import examples

Row = tuple[int, int, str | None, int | None]
"""k, o, kind and n of a row."""
KEYS, KINDS, TIMES = 40, ("a", "b", "c", None), 30
COLUMNS = pa.schema(
    [
        ("k", pa.int64()),
        ("o", pa.int64()),
        ("kind", pa.string()),
        ("n", pa.int64()),
        ("_change", pa.string()),
    ]
)


@dataclass
class History:
    """A table, and for each key its latest row, None if that is a tombstone, with its order."""

    instance: Instance
    handle: TableHandle
    random: random.Random
    by: bool
    latest: dict[int, tuple[tuple[int, int], Row | None]] = field(default_factory=dict)
    versions: dict[int, dict[int, tuple[tuple[int, int], Row | None]]] = field(default_factory=dict)
    written: int = 0
    steps: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        return visible(self.latest)

    def ingest(self) -> None:
        rows = [self.change() for _ in range(self.random.choice((1, 5, 30)))]
        self.steps[-1] += f" {len(rows)}"
        table = pa.Table.from_pylist(rows, schema=COLUMNS)
        if self.random.random() < 0.3 and all(row["_change"] != "delete" for row in rows):
            table = table.drop_columns(["_change"])
        self.handle.ingest(table).wait()

    def change(self) -> dict[str, object]:
        self.written += 1
        key, at = self.random.randrange(KEYS), self.random.randrange(TIMES)
        kind, number = self.random.choice(KINDS), self.random.choice((None, *range(8)))
        row: Row | None = None if self.random.random() < 0.25 else (key, at, kind, number)
        order = (at if self.by else 0, self.written)
        if key not in self.latest or self.latest[key][0] < order:
            self.latest[key] = order, row
        change = self.random.choice(("insert", "update", None)) if row else "delete"
        if row is None:
            kind, number, at = None, None, at if self.by else None  # type: ignore[assignment]
        return {"k": key, "o": at, "kind": kind, "n": number, "_change": change}

    def delete_where(self) -> None:
        key, kind, value = (
            self.random.randrange(KEYS),
            self.random.choice("abc"),
            self.random.randrange(8),
        )
        cases: list[tuple[str, Callable[[Row], bool]]] = [
            (f"n = {value}", lambda row: row[3] == value),
            (f"kind = '{kind}' OR n IS NULL", lambda row: row[2] == kind or row[3] is None),
            (f"kind <> '{kind}'", lambda row: row[2] not in (kind, None)),
            (f"k BETWEEN {key} AND {key + 3}", lambda row: key <= row[0] <= key + 3),
            (f"o < {value} AND k > {key}", lambda row: row[1] < value and row[0] > key),
        ]
        where, matches = self.random.choice(cases)
        self.steps[-1] += f" {where}"
        self.handle.delete(where)
        for at, (order, row) in list(self.latest.items()):
            if row is not None and matches(row):
                self.latest[at] = order, None

    def delete_keys(self) -> None:
        keys = [self.random.randrange(KEYS) for _ in range(self.random.choice((1, 3)))]
        self.steps[-1] += f" {keys}"
        self.handle.delete(keys=keys)
        for key in keys:
            if key in self.latest:
                self.latest[key] = self.latest[key][0], None

    def compact(self) -> None:
        everything = self.random.random() < 0.5
        self.steps[-1] += f" {everything}"
        self.instance.compact(self.handle.name, everything=everything)
        self.instance.wait()

    def split(self) -> None:
        self.instance.split(self.handle.name, forced=True)
        self.instance.wait()

    def restore(self) -> None:
        version = self.random.choice([*sorted(self.versions), self.handle.state().version])
        if version != self.handle.state().version:
            self.steps[-1] += f" {version}"
            self.handle.restore(version)
            self.latest = dict(self.versions[version])

    def rebuild(self) -> None:
        self.handle.rebuild()
        self.versions = {}

    def check(self) -> None:
        handle, rows = self.handle, self.rows
        self.versions[handle.state().version] = dict(self.latest)
        assert told(handle.query().to_arrow()) == rows, self.steps
        assert handle.count() == len(rows), self.steps
        key, value = self.random.randrange(KEYS), self.random.randrange(8)
        found = handle.query(exact=key).to_arrow()
        assert told(found) == [row for row in rows if row[0] == key], self.steps
        found = handle.query(where=f"n >= {value}").to_arrow()
        few = [row for row in rows if row[3] is not None and row[3] >= value]
        assert told(found) == few, self.steps
        sql = f"SELECT count(*) c, min(k) low, max(o) high, sum(n) s FROM {handle.name}"
        (counted,) = self.instance.sql(sql).to_arrow().to_pylist()
        numbers = [row[3] for row in rows if row[3] is not None]
        assert [*counted.values()] == [
            len(rows),
            min((row[0] for row in rows), default=None),
            max((row[1] for row in rows), default=None),
            sum(numbers) if numbers else None,
        ], self.steps
        earlier = self.random.choice(sorted(self.versions))
        then = told(handle.query(as_of=earlier).to_arrow())
        assert then == visible(self.versions[earlier]), (self.steps, earlier)
        assert not handle.check().findings, self.steps
        self.check_changes(earlier)

    def check_changes(self, since: int) -> None:
        """Check that what changed since a version is the difference of both."""
        found = self.handle.changes(since, before=True).to_arrow()
        old = {row[0]: row for row in visible(self.versions[since])}
        new = {row[0]: row for row in self.rows}
        wanted = [("insert", row) for key, row in new.items() if key not in old]
        wanted += [("delete", row) for key, row in old.items() if key not in new]
        for key in old.keys() & new.keys():
            if old[key] != new[key]:
                wanted += [("before", old[key]), ("update", new[key])]
        kinds = found["_change"].to_pylist()
        pairs = zip(kinds, told(found, in_order=False), strict=True)
        assert sorted(pairs, key=repr) == sorted(wanted, key=repr), (self.steps, since)


def visible(latest: dict[int, tuple[tuple[int, int], Row | None]]) -> list[Row]:
    return [row for _, (_, row) in sorted(latest.items()) if row is not None]


def told(found: pa.Table, *, in_order: bool = True) -> list[Row]:
    rows = [(each["k"], each["o"], each["kind"], each["n"]) for each in found.to_pylist()]
    assert not in_order or rows == sorted(rows, key=lambda row: row[0])
    return rows


STEPS = (
    *["ingest"] * 7,
    *["delete_where"] * 3,
    *["delete_keys"] * 2,
    *["compact"] * 4,
    *["split", "restore", "rebuild"],
)


@pytest.mark.parametrize("seed", range(4))
def test_every_reader_sees_the_latest_rows_at_every_version(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path, steps=examples(25))


def run(seed: int, folder: Path, *, steps: int) -> None:
    by = bool(seed % 2)
    with Instance.open(folder / "mice", background=False) as instance:
        properties = {"keep": "latest", "compaction_files": 3, "latest_by": "o" if by else ""}
        handle = instance.create_table(
            "t", "k:long, o:long, kind:string?, n:long?", properties, row_keys=["k"]
        )
        history = History(instance, handle, random.Random(seed), by)
        for _ in range(steps):
            step = history.random.choice(STEPS)
            history.steps.append(step)
            getattr(history, step)()
            history.check()
