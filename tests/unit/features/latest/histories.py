"""Random histories of a table that changes, in a folder, beside the same changes in SQLite.

Each step is done by one of the ways there are to do it, and what is there then is read by another:
rows, look-ups, counts, SQL, what is published, earlier versions, and what changed since one.

    python -m tests.unit.features.latest.histories --seeds 50 --steps 200
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv
from typer.testing import CliRunner

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.features.sweep import sweep
from dormouse_cli.main import app
from tests.unit.features.http.conftest import Api
from tests.unit.features.latest.test_published import published

Row = tuple[int, int | str, str | None, int | None]
"""k, o, kind and n of a row."""
KEYS, KINDS, TIMES = 40, ("a", "b", "c", None), 30
COLUMNS = ("k", "o", "kind", "n")
NAMES = ", ".join(COLUMNS)


@dataclass(frozen=True)
class Mode:
    """How a table keeps rows: all or the latest, by a column or in the order they come, and whether
    its files are change data.
    """

    keep: str = "latest"
    by: str = ""
    form: str = ""

    @property
    def order(self) -> str:
        return "string" if self.by and self.form else "long"


MODES = (
    Mode(),
    Mode(by="o"),
    Mode(by="o", form="debezium"),
    Mode(form="debezium"),
    Mode(keep="all"),
)


class Model:
    """The rows in SQLite: of each key the one that counts, or that it is `gone`."""

    def __init__(self, mode: Mode) -> None:
        self.mode, self.floor = mode, ""
        self.db = sqlite3.connect(":memory:")
        unique = "PRIMARY KEY" if mode.keep == "latest" else ""
        order = "TEXT" if mode.order == "string" else "INTEGER"
        columns = f"k INTEGER {unique}, o {order}, kind TEXT, n INTEGER, gone"
        self.db.execute(f"CREATE TABLE t ({columns})")
        self.db.execute(f"CREATE VIEW shown AS SELECT {NAMES} FROM t WHERE NOT gone")

    def write(self, k: int, o: object, kind: object, n: object, *, gone: bool = False) -> None:
        if self.mode.by and self.mode.form and str(o) < self.floor:
            return
        newer = "WHERE excluded.o >= t.o" if self.mode.by else ""
        values = "o = excluded.o, kind = excluded.kind, n = excluded.n, gone = excluded.gone"
        upsert = f"ON CONFLICT (k) DO UPDATE SET {values} {newer}"
        end = upsert if self.mode.keep == "latest" else ""
        self.db.execute(f"INSERT INTO t VALUES (?, ?, ?, ?, ?) {end}", (k, o, kind, n, gone))

    def delete(self, where: str) -> None:
        self.db.execute(f"UPDATE t SET gone = 1 WHERE NOT gone AND ({where})")

    def purge(self, where: str) -> None:
        self.db.execute(f"DELETE FROM t WHERE {where}")

    def truncate(self, floor: str) -> None:
        self.floor = max(self.floor, floor)
        self.purge(f"o < '{self.floor}'" if floor else "true")

    def query(self, sql: str) -> list[tuple[object, ...]]:
        return self.db.execute(sql.replace(" FROM t", " FROM shown")).fetchall()

    def rows(self, where: str = "true") -> list[Row]:
        found: list[Row] = self.query(f"SELECT {NAMES} FROM t WHERE {where}")  # type: ignore[assignment]
        return in_order(found)

    def all(self) -> tuple[str, list[tuple[object, ...]]]:
        return self.floor, self.db.execute("SELECT * FROM t").fetchall()

    def restore(self, floor: str, rows: Sequence[tuple[object, ...]]) -> None:
        self.floor = floor
        self.purge("true")
        self.db.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", rows)


@dataclass
class History:
    """A table, its model, and what that had at each version that was looked at."""

    instance: Instance
    handle: TableHandle
    random: random.Random
    mode: Mode
    folder: Path
    model: Model
    is_published: bool
    versions: dict[int, tuple[str, list[tuple[object, ...]]]] = field(default_factory=dict)
    purged: int = 0
    begun: int = 0
    tag: int = 0
    steps: list[str] = field(default_factory=list)

    # What changes the table.

    def ingest(self) -> None:
        rows = [self.change() for _ in range(self.random.choice((1, 5, 30)))]
        plain = all(row["_change"] != "delete" for row in rows)
        door = self.random.choice(("frame", "csv", "json", "http"))
        self.steps[-1] += f" {len(rows)} {door}"
        for row in rows:
            gone = row["_change"] == "delete"
            self.model.write(*(row[name] for name in COLUMNS), gone=gone)  # type: ignore[arg-type]
        kinds = (pa.int64(), pa.string() if self.mode.order == "string" else pa.int64())
        types = [*zip(COLUMNS, (*kinds, pa.string(), pa.int64()), strict=True)]
        table = pa.Table.from_pylist(rows, pa.schema([*types, ("_change", pa.string())]))
        if self.mode.keep == "all" or (plain and self.random.random() < 0.3):
            table = table.drop_columns(["_change"])
        if door == "frame":
            self.handle.ingest(table).wait()
        elif door == "csv":
            path = self.path("csv")
            csv.write_csv(table, path, csv.WriteOptions(quoting_style="needed"))
            self.handle.ingest(path).wait()
        elif self.mode.form:
            self.messages([message(row, self.mode) for row in rows], door)
        else:
            self.messages(table.to_pylist(), door)

    def messages(self, lines: Sequence[object], door: str) -> None:
        if door == "http":
            Api(self.instance).found("POST", "/tables/t/rows", lines)
            self.instance.wait()
            return
        path = self.path("jsonl")
        path.write_text("\n".join(map(json.dumps, lines)))
        self.handle.ingest(path).wait()

    def change(self) -> dict[str, object]:
        at, kind = self.random.randrange(TIMES), self.random.choice(KINDS)
        number = self.random.choice((None, *range(8)))
        row = {"k": self.random.randrange(KEYS), "kind": kind, "n": number, "at": at}
        if self.mode.keep == "latest" and self.random.random() < 0.25:
            o = self.order(at, 1) if self.mode.by else None
            return {**row, "o": o, "kind": None, "n": None, "_change": "delete"}
        change = self.random.choice(("insert", "update", None))
        return {**row, "o": self.order(at, 2), "_change": change}

    def order(self, at: int, rank: int) -> int | str:
        return f"{at:0>20}-{at:0>20}-{rank}" if self.mode.order == "string" else at

    def truncate(self) -> None:
        if not self.mode.form:
            return
        at = self.random.randrange(TIMES)
        before, after = ([self.change() for _ in range(self.random.randrange(3))] for _ in "ab")
        self.steps[-1] += f" {at} between {len(before)} and {len(after)}"
        for row in before:
            gone = row["_change"] == "delete"
            self.model.write(*(row[name] for name in COLUMNS), gone=gone)  # type: ignore[arg-type]
        self.model.truncate(str(self.order(at, 1)) if self.mode.by else "")
        for row in after:
            gone = row["_change"] == "delete"
            self.model.write(*(row[name] for name in COLUMNS), gone=gone)  # type: ignore[arg-type]
        emptied = {"op": "t", "source": {"sequence": f'["{at}","{at}"]'}}
        rows = [[message(row, self.mode) for row in some] for some in (before, after)]
        self.messages([*rows[0], emptied, *rows[1]], self.random.choice(("json", "http")))

    def condition(self) -> str:
        key, value = self.random.randrange(KEYS), self.random.randrange(8)
        kind, at = self.random.choice("abc"), self.random.randrange(TIMES)
        order = f"'{self.order(at, 2)}'" if self.mode.order == "string" else str(at)
        return self.random.choice(
            (
                f"n = {value}",
                f"kind = '{kind}' OR n IS NULL",
                f"kind <> '{kind}'",
                f"k BETWEEN {key} AND {key + 3}",
                f"o < {order} AND k > {key}",
                f"NOT (n > {value} OR k < {key})",
                f"kind IN ('{kind}', 'z') AND n IS NOT NULL",
            )
        )

    def delete_where(self) -> None:
        where = self.condition()
        door = self.random.choice(("python", "sql", "http"))
        self.steps[-1] += f" {where} by {door}"
        self.model.delete(where)
        if door == "python":
            self.handle.delete(where)
        elif door == "sql":
            self.instance.sql(f"DELETE FROM t WHERE {where}")
        else:
            self.request({"where": where})

    def request(self, rows: dict[str, object]) -> None:
        api = Api(self.instance)
        location = api.found("POST", "/tables/t/delete", rows)["location"]
        self.instance.wait()
        while (done := api.get(location))["state"] == "waiting":
            self.instance.wait()
        assert done["state"] == "finished", done

    def keys(self) -> list[int]:
        keys = [self.random.randrange(KEYS) for _ in range(self.random.choice((1, 3)))]
        self.steps[-1] += f" {keys}"
        return keys

    def delete_keys(self) -> None:
        keys = self.keys()
        self.model.delete(f"k IN ({', '.join(map(str, keys))})")
        if self.random.random() < 0.3:
            self.request({"keys": [[key] for key in keys]})
        elif self.mode.by or self.random.random() < 0.5:
            self.handle.delete(keys=keys)
        else:
            self.handle.delete(keys=pa.table({"k": sorted({*keys})}))

    def purge(self) -> None:
        if self.random.random() < 0.5:
            keys = self.keys()
            purge = self.handle.purge(keys=keys, release_tags=True)
            self.model.purge(f"k IN ({', '.join(map(str, keys))})")
        else:
            where = self.condition()
            self.steps[-1] += f" {where}"
            purge = self.handle.purge(where, release_tags=True)
            if where.startswith("k BETWEEN"):
                self.model.purge(where)  # no tombstone is left either
            else:
                self.model.delete(where)
        assert self.rows_by("query") == self.model.rows(), "they are hidden at once"
        purge.wait()
        assert not any(each.purge_id for each in self.handle.state().deletions)
        proof = purge.proof()
        assert not proof.rows
        self.purged, self.tag = self.handle.state().version, 0

    def compact(self) -> None:
        everything = self.random.random() < 0.5
        self.steps[-1] += f" {everything}"
        self.instance.compact("t", everything=everything)
        self.instance.wait()

    def split(self) -> None:
        self.instance.split("t", forced=True)
        self.instance.wait()

    def move_tag(self) -> None:
        self.tag = self.handle.state().version
        self.handle.tag(self.tag, "mark", move=True)

    def restore(self) -> None:
        newest = self.handle.state().version
        known = [each for each in sorted(self.versions) if self.purged <= each < newest]
        if known:
            version = self.random.choice(known)
            self.steps[-1] += f" {version}"
            self.handle.restore(version)
            self.model.restore(*self.versions[version])
            self.begun = self.handle.state().version

    def rebuild(self) -> None:
        if self.tag:
            self.handle.untag("mark")
        self.handle.rebuild()
        # files without rows are no longer known, and read again
        missed = sweep(self.instance.services, self.handle.current(), audit=True)
        self.instance.queues.send(missed)
        self.instance.wait()
        self.versions, self.tag = {}, 0

    def path(self, ending: str) -> Path:
        return self.folder / f"{len(self.steps)}.{ending}"

    # What is read of it.

    def check(self) -> None:
        """Check all rows by one way to read them, and one thing more."""
        version, model = self.handle.state().version, self.model
        self.versions[version] = model.all()
        doors = ["query"] * 5 + ["remote", "sql", "http", "command", "export", "published"]
        door = self.random.choice(doors if self.is_published else doors[:-1])
        found, wanted = Counter(self.rows_by(door)), Counter(model.rows())
        assert found == wanted, (door, found - wanted, wanted - found)
        looks = self.check_look_ups, self.check_sql, self.check_version, self.check_changes
        self.random.choice(looks)()

    def check_look_ups(self) -> None:
        key, where, model = self.random.randrange(KEYS), self.condition(), self.model
        assert self.handle.count() == len(model.rows())
        found = told(self.handle.query(exact=key).to_arrow())
        assert found == model.rows(f"k = {key}"), key
        assert told(self.handle.query(where=where).to_arrow()) == model.rows(where), where
        if self.random.random() < 0.3:
            assert not self.handle.check().findings

    def check_sql(self) -> None:
        asked = (
            f"SELECT count(*), min(k), max(o), sum(n) FROM t WHERE {self.condition()}",
            "SELECT kind, count(*) c, sum(n) s FROM t GROUP BY kind ORDER BY kind NULLS FIRST",
            "SELECT DISTINCT n FROM t ORDER BY n NULLS FIRST",
        )
        sql = self.random.choice(asked)
        answer = [tuple(row.values()) for row in self.instance.sql(sql).to_arrow().to_pylist()]
        assert answer == self.model.query(sql), sql

    def rows_by(self, door: str) -> list[Row]:
        match door:
            case "sql":
                return told(self.instance.sql(f"SELECT {NAMES} FROM t").to_arrow())
            case "remote":
                return told(self.handle.query(run="remote").to_arrow())
            case "http":
                return in_order(self.pages())
            case "command":
                arguments = ["--instance", str(self.folder / "mice"), "query", "t"]
                answer = CliRunner().invoke(app, [*arguments, "--format", "json"])
                assert answer.exit_code == 0, answer.output
                rows = map(json.loads, answer.stdout.splitlines())
                return in_order(tuple(row[name] for name in COLUMNS) for row in rows)
            case "export":
                return self.exported()
            case "published":
                return in_order(published(self.instance, self.handle, COLUMNS))
            case _:
                return told(self.handle.query().to_arrow())

    def exported(self, as_of: int | str | None = None) -> list[Row]:
        with TemporaryDirectory(dir=self.folder) as to:
            export = self.handle.export(as_of=as_of)
            export.wait()
            export.download(to)
            files = [pq.read_table(path) for path in Path(to).glob("*.parquet")]
        return told(pa.concat_tables(files)) if files else []

    def pages(self) -> Iterator[Row]:
        after, question = "", {"page_rows": self.random.choice((3, 50))}
        while True:
            asked = {**question, "after": after}
            page = Api(self.instance).found("POST", "/tables/t/query", asked)
            yield from (tuple(row[name] for name in COLUMNS) for row in page["rows"])
            if not (after := page["next"]):
                return

    def earlier(self) -> tuple[int, int | str]:
        """Return a version that is known, and how it is named."""
        if self.tag in self.versions and self.random.random() < 0.3:
            return self.tag, "mark"
        version = self.random.choice(sorted(self.versions))
        return version, version

    def check_version(self) -> None:
        version, as_of = self.earlier()
        if self.random.random() < 0.2:
            then = self.exported(as_of)
        else:
            then = told(self.handle.query(as_of=as_of).to_arrow())
        assert then == shown(self.versions[version][1]), as_of

    def check_changes(self) -> None:
        version, as_of = self.earlier()
        if self.mode.keep == "all" and version < self.begun:
            return  # refused, as these are not what was ingested since
        found = self.handle.changes(as_of, before=self.mode.keep == "latest", deleted=True)
        table = found.to_arrow()
        kinds = table["_change"].to_pylist()
        pairs = Counter(zip(kinds, told(table, in_order=False), strict=True))
        assert pairs == self.changed(shown(self.versions[version][1]), pairs), as_of
        assert all(version < each <= found.version for each in table["_version"].to_pylist())

    def changed(self, old: list[Row], found: Counter[tuple[str, Row]]) -> Counter[tuple[str, Row]]:
        """Return what changed from rows to those of now; if all rows are kept, what was found if it
        makes these of those.
        """
        new = self.model.rows()
        if self.mode.keep == "all":
            made = Counter(old)
            for (kind, row), count in found.items():
                made[row] += count if kind == "insert" else -count
            is_right = +made == Counter(new) and min(made.values(), default=0) >= 0
            return found if is_right else Counter()
        before, after = ({row[0]: row for row in rows} for rows in (old, new))
        wanted = [("insert", row) for key, row in after.items() if key not in before]
        wanted += [("delete", row) for key, row in before.items() if key not in after]
        for key in before.keys() & after.keys():
            if before[key] != after[key]:
                wanted += [("before", before[key]), ("update", after[key])]
        return Counter(wanted)


def message(row: dict[str, object], mode: Mode) -> dict[str, object]:
    """Return a change as Debezium writes it."""
    names = ("k", "kind", "n") if mode.by else COLUMNS
    values = {name: row[name] for name in names}
    source = {"sequence": f'["{row["at"]}","{row["at"]}"]'}
    if row["_change"] == "delete":
        return {"op": "d", "before": {"k": row["k"]}, "after": None, "source": source}
    op = "u" if row["_change"] == "update" else "c"
    return {"op": op, "before": None, "after": values, "source": source}


def shown(rows: Sequence[tuple[object, ...]]) -> list[Row]:
    return in_order(row[:-1] for row in rows if not row[-1])  # type: ignore[misc]


def in_order(rows: Iterator[Row] | Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[0], repr(row)))


def told(found: pa.Table, *, in_order: bool = True) -> list[Row]:
    rows = [*zip(*(found[name].to_pylist() for name in COLUMNS), strict=True)]
    if not in_order:
        return rows
    return sorted(rows, key=lambda row: (row[0], repr(row)))


STEPS = (
    *["ingest"] * 8,
    *["delete_where"] * 3,
    *["delete_keys"] * 2,
    *["compact"] * 3,
    *["purge", "split", "truncate", "restore", "rebuild", "move_tag"],
)


@contextmanager
def history(seed: int, folder: Path) -> Iterator[History]:
    mode = MODES[seed % len(MODES)]
    with Instance.open(folder / "mice", background=False) as instance:
        rules = {"keep": mode.keep, "latest_by": mode.by, "change_data": mode.form}
        is_published = seed // len(MODES) % 2 == 0
        properties = {**rules, "compaction_files": 3, "iceberg": "on" if is_published else "off"}
        columns = f"k:long, o:{mode.order}, kind:string?, n:long?"
        handle = instance.create_table("t", columns, properties, row_keys=["k"])
        model = Model(mode)
        with closing(model.db):
            yield History(instance, handle, random.Random(seed), mode, folder, model, is_published)


def run(seed: int, folder: Path, *, steps: int) -> Counter[str]:
    """Run a history; return how often it took each step."""
    with history(seed, folder) as made:
        for _ in range(steps):
            step = made.random.choice(STEPS)
            made.steps.append(step)
            try:
                getattr(made, step)()
                made.check()
            except Exception:
                print(f"seed {seed}:", *made.steps, sep="\n    ")
                raise
        return Counter(each.split()[0] for each in made.steps)


def main() -> None:
    """Run many histories."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--folder", help="where the tables are: the quicker its disk, the better")
    asked = parser.parse_args()
    taken: Counter[str] = Counter()
    for seed in range(asked.seed, asked.seed + asked.seeds):
        print(f"seed {seed}", flush=True)
        with TemporaryDirectory(dir=asked.folder) as folder:
            taken += run(seed, Path(folder), steps=asked.steps)
    print(f"{taken.total():,} steps: {dict(taken)}")


if __name__ == "__main__":
    main()
