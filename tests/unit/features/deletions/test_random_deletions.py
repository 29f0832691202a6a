"""Random histories of a table with deletions, in a folder, against rows in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive

Row = dict[str, int | str | None]
KEYS, KINDS = 40, ("a", "b", "c", None)


@dataclass
class History:
    """A table, the rows that it should have, and those of each version that was looked at."""

    instance: Instance
    handle: TableHandle
    random: random.Random
    rows: list[Row] = field(default_factory=list)
    versions: dict[int, list[Row]] = field(default_factory=dict)
    number: str = "n"
    added: int = 0
    steps: list[str] = field(default_factory=list)

    def ingest(self) -> None:
        rows: list[Row] = [
            {
                "k": self.random.randrange(KEYS),
                "s": self.random.randrange(3),
                "id": self.added + i,
                self.number: self.random.choice((None, *range(8))),
                "kind": self.random.choice(KINDS),
            }
            for i in range(self.random.choice((1, 5, 30)))
        ]
        self.added += len(rows)
        self.rows += rows
        self.handle.ingest(pa.Table.from_pylist(rows, schema=self.schema)).wait()

    @property
    def schema(self) -> pa.Schema:
        types = {"k": pa.int64(), "s": pa.int64(), "id": pa.int64(), "kind": pa.string()}
        types[self.number] = pa.int64()
        return pa.schema(types)

    def delete_where(self) -> None:
        n, key, kind = self.number, self.random.randrange(KEYS), self.random.choice("abc")
        value = self.random.randrange(8)
        cases: list[tuple[str, Callable[[Row], bool]]] = [
            (f"{n} = {value}", lambda row: row[n] == value),
            (f"{n} < {value} AND k < {key}", lambda r: _less(r[n], value) and _less(r["k"], key)),
            (f"kind = '{kind}' OR {n} IS NULL", lambda r: r["kind"] == kind or r[n] is None),
            (f"kind <> '{kind}'", lambda r: r["kind"] not in (kind, None)),
            (f"k BETWEEN {key} AND {key + 3}", lambda r: key <= _int(r["k"]) <= key + 3),
            (f"k = {key} AND s >= 1", lambda r: r["k"] == key and _int(r["s"]) >= 1),
        ]
        where, matches = self.random.choice(cases)
        self.steps[-1] += f" {where}"
        self.rows = [row for row in self.rows if not matches(row)]
        self.handle.delete(where)

    def delete_keys(self) -> None:
        keys = [
            (self.random.randrange(KEYS), *([1] if self.random.random() < 0.5 else []))
            for _ in range(self.random.choice((1, 3)))
        ]
        self.steps[-1] += f" {keys}"
        self.rows = [
            row for row in self.rows if not {(row["k"],), (row["k"], row["s"])} & set(keys)
        ]
        self.handle.delete(keys=keys)

    def compact(self) -> None:
        self.instance.compact(self.handle.name, everything=True)
        self.instance.wait()

    def split(self) -> None:
        self.instance.split(self.handle.name, forced=True)
        self.instance.wait()

    def restore(self) -> None:
        version = self.random.choice([*sorted(self.versions), self.handle.state().version])
        if version != self.handle.state().version:
            self.steps[-1] += f" {version}"
            self.handle.restore(version)
            self.rows = list(self.versions[version])
            self.versions = {}

    def rename(self) -> None:
        new = "n" if self.number == "m" else "m"
        self.handle = self.handle.alter(rename={self.number: new})
        for rows in (self.rows, *self.versions.values()):
            rows[:] = [{new if k == self.number else k: v for k, v in row.items()} for row in rows]
        self.number = new

    def drop(self) -> None:
        """Drop a column, and add one of that name: its values are gone."""
        self.handle = self.handle.alter(drop=["kind"])
        self.handle = self.handle.alter(add=[Field("kind", Primitive.STRING, nullable=True)])
        for rows in (self.rows, *self.versions.values()):
            rows[:] = [{**row, "kind": None} for row in rows]

    def rebuild(self) -> None:
        self.handle.rebuild()
        self.versions = {}

    def check(self) -> None:
        handle, rows, n = self.handle, self.rows, self.number
        state = handle.state()
        self.versions[state.version] = list(rows)
        assert _ids(handle.query().to_arrow()) == _sorted_ids(rows), self.steps
        assert handle.count() == len(rows), self.steps
        value, key = self.random.randrange(8), self.random.randrange(KEYS)
        where = f"{n} = {value}"
        assert handle.count(where=where) == sum(row[n] == value for row in rows), self.steps
        assert handle.count(exact=key) == sum(row["k"] == key for row in rows), self.steps
        found = handle.query(exact=key, columns=["id"]).to_arrow()
        assert sorted(found["id"].to_pylist()) == sorted(
            _int(row["id"]) for row in rows if row["k"] == key
        ), self.steps
        sql = f"SELECT count(*) c, min(k) low, max(k) high, sum({n}) s FROM {handle.name}"
        (counted,) = self.instance.sql(sql).to_arrow().to_pylist()
        ends = [_int(row["k"]) for row in rows] or [None]
        numbers = [_int(row[n]) for row in rows if row[n] is not None]
        assert [*counted.values()] == [
            len(rows),
            min(ends, default=None),
            max(ends, default=None),
            sum(numbers) if numbers else None,
        ], self.steps
        earlier = self.random.choice(sorted(self.versions))
        then = handle.query(as_of=earlier, where=f"{n} >= 4").to_arrow()
        assert _ids(then) == _sorted_ids(
            [row for row in self.versions[earlier] if row[n] is not None and _int(row[n]) >= 4]
        ), (self.steps, earlier)
        assert not handle.check().findings, self.steps
        self.check_changes()

    def check_changes(self) -> None:
        """Check that what changed since a version makes its rows those of today."""
        since = self.random.choice(sorted(self.versions))
        found = self.handle.changes(since, columns=["id"], deleted=True).to_arrow()
        pairs = list(zip(found["_change"].to_pylist(), found["id"].to_pylist(), strict=True))
        before, now = (set(_sorted_ids(rows)) for rows in (self.versions[since], self.rows))
        assert sorted(pairs) == sorted(
            [("delete", i) for i in before - now] + [("insert", i) for i in now - before]
        ), (self.steps, since)


def _int(value: int | str | None) -> int:
    assert isinstance(value, int)
    return value


def _less(value: int | str | None, other: int) -> bool:
    return value is not None and _int(value) < other


def _ids(found: pa.Table) -> list[int]:
    keys = list(zip(found["k"].to_pylist(), found["s"].to_pylist(), strict=True))
    assert keys == sorted(keys)
    return sorted(found["id"].to_pylist())


def _sorted_ids(rows: list[Row]) -> list[int]:
    return sorted(_int(row["id"]) for row in rows)


STEPS = (
    *["ingest"] * 5,
    *["delete_where"] * 4,
    *["delete_keys"] * 2,
    *["compact"] * 3,
    *["split", "restore", "rename", "drop", "rebuild"],
)


@pytest.mark.parametrize("seed", range(3))
def test_every_reader_sees_what_is_left_at_every_version(seed: int, tmp_path: Path) -> None:
    run(seed, tmp_path, steps=25)


def run(seed: int, folder: Path, *, steps: int) -> None:
    with Instance.open(folder / "mice", background=False) as instance:
        schema = "k:long, s:long, id:long, n:long?, kind:string?"
        handle = instance.create_table("t", schema, row_keys=["k"], sort_keys=["s"])
        history = History(instance, handle, random.Random(seed))
        for _ in range(steps):
            step = history.random.choice(STEPS)
            history.steps.append(step)
            getattr(history, step)()
            history.check()
