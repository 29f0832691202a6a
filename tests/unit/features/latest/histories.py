"""Random histories of a table that changes, in a folder, beside the same changes in SQLite.

Each step is done by one of the ways there are to do it, and what is there then is read by another:
rows, look-ups, counts, SQL, what is published, copies, earlier versions, and what
changed since one.

    python -m tests.unit.features.latest.histories --seeds 50 --steps 200
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv, feather
from typer.testing import CliRunner

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.features.checking import Damage
from dormouse.folder.processes import DATABASE
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.system import SystemClock
from dormouse_cli.main import app
from tests.engines import environment
from tests.support.depth import is_whole
from tests.unit.features.http.conftest import Api
from tests.unit.features.latest.test_published import published

Row = tuple[int, int | str, str | None, int | None, str | None]
"""k, o, kind, n and note of a row; times are seconds since 1970."""
TOMBSTONE_SECONDS = 3600
KEYS, KINDS, TIMES = 40, ("a", "b", "c", None), 30
COLUMNS = ("k", "o", "kind", "n", "note")
NAMES = ", ".join(COLUMNS)


TYPES = {
    "long": pa.int64(),
    "double": pa.float64(),
    "decimal(9,2)": pa.decimal128(9, 2),
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
}


@dataclass(frozen=True)
class Mode:
    """How a table keeps rows: all or the latest, by a column or in the order they come, and whether
    its files are change data. `key` and `order` are types of k and o, which is a sort key of one
    that is `sorted`; `note` is what the last column is: words, encrypted or in documents. One that
    is `filtered` hides rows with an n of 6 and more.
    """

    keep: str = "latest"
    by: str = ""
    form: str = ""
    key: str = "long"
    order: str = "long"
    note: str = ""
    sorted: bool = False
    filtered: bool = False

    @property
    def properties(self) -> dict[str, object]:
        rules = {"keep": self.keep, "latest_by": self.by, "change_data": self.form}
        rules["filters"] = "where(n IS NULL OR n < 6)" if self.filtered else ""
        more = {"words": {"term_index": "note:word"}, "encrypted": {"encrypted_columns": "note"}}
        return {
            **rules,
            "compaction_files": 3,
            "tombstone_age_seconds": TOMBSTONE_SECONDS,
            **more.get(self.note, {}),
        }

    @property
    def columns(self) -> str:
        note = "dynamic" if self.note == "documents" else "string"
        return f"k:{self.key}, o:{self.order}, kind:string?, n:int?, note:{note}?"


MODES = (
    Mode(),
    Mode(by="o", key="decimal(9,2)"),
    Mode(by="o", order="string", form="debezium"),
    Mode(form="debezium", note="documents"),
    Mode(keep="all", note="words"),
    Mode(by="o", key="timestamp", order="timestamp", note="words"),
    Mode(by="o", order="string", form="dms"),
    Mode(by="o", order="double", note="documents"),
    Mode(note="encrypted", sorted=True),
    Mode(form="dms", filtered=True),
    Mode(by="o", order="decimal(9,2)", filtered=True, note="words"),
)
START = datetime(1970, 1, 1, tzinfo=UTC)


def typed(number: object, kind: str) -> object:
    """Return a number as a value of a type."""
    if number is None or kind in {"long", "string"}:
        return number
    if kind == "timestamp":
        return START + timedelta(seconds=int(str(number)))
    return Decimal(str(number)) if kind.startswith("decimal") else float(str(number))


def literal(number: object, kind: str) -> str:
    """Return a number as text of a condition on a column of a type."""
    if kind == "timestamp":
        return f"TIMESTAMP '1970-01-01 00:00:{number:02}'"
    return f"'{number}'" if kind == "string" else str(number)


def plain(value: object, name: str = "") -> object:
    """Return a value, as any door gives it, as it is in the model."""
    if name in {"k", "o"} and isinstance(value, str) and len(value) < 30:
        value = datetime.fromisoformat(value) if value[-1] == "Z" else Decimal(value)
    if isinstance(value, datetime):
        return round((value.replace(tzinfo=UTC) - START).total_seconds())
    if name == "note" and isinstance(value, str | dict) and "{" in str(value):
        return (value if isinstance(value, dict) else json.loads(value))["w"]
    return int(value) if isinstance(value, Decimal | float) else value


def of_model(sql: str) -> str:
    """Return a condition or statement as SQLite knows it."""
    sql = sql.replace(" FROM t", " FROM shown").replace("note.w", "note")
    sql = re.sub(r"TIMESTAMP '[-0-9]+ [0-9]+:[0-9]+:([0-9]+)'", r"\1", sql)
    return re.sub(r"has\(note, '(\w+)'\)", r"(' ' || note || ' ' LIKE '% \1 %')", sql)


class Model:
    """The rows in SQLite: of each key the one that counts, or that it is `gone`."""

    def __init__(self, mode: Mode) -> None:
        self.mode, self.floor = mode, ""
        self.db = sqlite3.connect(":memory:")
        unique = "PRIMARY KEY" if mode.keep == "latest" else ""
        order = "TEXT" if mode.order == "string" else "INTEGER"
        columns = f"k INTEGER {unique}, o {order}, kind TEXT, n INTEGER, note TEXT, gone"
        self.db.execute(f"CREATE TABLE t ({columns})")
        self.db.execute(f"CREATE VIEW shown AS SELECT {NAMES} FROM t WHERE NOT gone")

    def write(self, row: dict[str, object]) -> None:
        o, n = row["o"], row["n"]
        if self.mode.by and self.mode.form and str(o) < self.floor:
            return
        newer = "WHERE excluded.o >= t.o" if self.mode.by else ""
        values = ", ".join(f"{name} = excluded.{name}" for name in (*COLUMNS[1:], "gone"))
        upsert = f"ON CONFLICT (k) DO UPDATE SET {values} {newer}"
        end = upsert if self.mode.keep == "latest" else ""
        is_hidden = self.mode.filtered and isinstance(n, int) and n >= 6
        cells = *(row[name] for name in COLUMNS), row["_change"] == "delete" or is_hidden
        self.db.execute(f"INSERT INTO t VALUES (?, ?, ?, ?, ?, ?) {end}", cells)

    def delete(self, where: str) -> None:
        self.db.execute(f"UPDATE t SET gone = 1 WHERE NOT gone AND ({of_model(where)})")

    def purge(self, where: str) -> None:
        self.db.execute(f"DELETE FROM t WHERE {of_model(where)}")

    def truncate(self, floor: str) -> None:
        self.floor = max(self.floor, floor)
        self.purge(f"o < '{self.floor}'" if floor else "true")

    def query(self, sql: str) -> list[tuple[object, ...]]:
        return self.db.execute(of_model(sql)).fetchall()

    def rows(self, where: str = "true") -> list[Row]:
        found: list[Row] = self.query(f"SELECT {NAMES} FROM t WHERE {where}")  # type: ignore[assignment]
        return in_order(found)

    def all(self) -> tuple[str, list[tuple[object, ...]]]:
        return self.floor, self.db.execute("SELECT * FROM t").fetchall()

    def restore(self, floor: str, rows: Sequence[tuple[object, ...]]) -> None:
        self.floor = floor
        self.purge("true")
        self.db.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", rows)


@dataclass
class Moved:
    """The clock of the machine, some seconds later."""

    seconds: int = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + 1000 * self.seconds


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
    clock: Moved
    place: Path
    versions: dict[int, tuple[str, list[tuple[object, ...]]]] = field(default_factory=dict)
    aged: set[int] = field(default_factory=set)
    purged: int = 0
    begun: int = 0
    oldest: int = 0
    tag: int = 0
    fed: dict[int, Row] | None = None
    steps: list[str] = field(default_factory=list)

    # What changes the table.

    def ingest(self) -> None:
        mode, rows = self.mode, [self.change() for _ in range(self.random.choice((1, 5, 30)))]
        door = self.random.choice(("frame", "csv", "parquet", "command", "json", "http"))
        self.steps[-1] += f" {len(rows)} {door}"
        for row in rows:
            self.model.write(row)
        is_message = bool(mode.form) and door in {"json", "http"}
        if is_message:
            self.messages([message(row, mode) for row in rows], door)
            return
        table = self.file_of(rows)
        path = self.path("parquet" if door == "parquet" else "csv")
        if door in {"json", "http"}:
            lines = json.loads(json.dumps(table.to_pylist(), default=in_json))
            for line in lines if mode.note == "documents" else ():
                line["note"] = line["note"] and json.loads(line["note"])
            self.messages(lines, door)
        elif door == "frame":
            self.handle.ingest(table).wait()
        elif door == "parquet":
            pq.write_table(table, path)
            self.handle.ingest(path).wait()
        else:
            csv.write_csv(table, path, csv.WriteOptions(quoting_style="needed"))
            if door == "csv":
                self.handle.ingest(path).wait()
            else:
                self.command("ingest", "t", str(path))
                self.instance.wait()

    def file_of(self, rows: Sequence[dict[str, object]]) -> pa.Table:
        """Return the rows of a file that is none of messages."""
        mode, kinds = self.mode, (self.mode.key, self.mode.order)
        types = [*zip("ko", map(TYPES.__getitem__, kinds), strict=True)]
        types += [("kind", pa.string()), ("n", pa.int64()), ("note", pa.string())]
        typed_rows = [
            {
                **row,
                **{name: typed(row[name], kind) for name, kind in zip("ko", kinds, strict=True)},
            }
            for row in rows
        ]
        if mode.note == "documents":
            for row in typed_rows:
                row["note"] = row["note"] and json.dumps({"w": row["note"]})
        table = pa.Table.from_pylist(typed_rows, pa.schema([*types, ("_change", pa.string())]))
        if mode.form == "dms":
            letters = [str(row["_change"] or "insert")[0].upper() for row in rows]
            if mode.by:
                places = pa.array([f"{row['at']:0>35}" for row in rows])
                table = table.set_column(1, "o", places)
            return table.drop_columns(["_change"]).append_column("Op", pa.array(letters))
        is_plain = all(row["_change"] != "delete" for row in rows)
        if mode.keep == "all" or (is_plain and self.random.random() < 0.3):
            return table.drop_columns(["_change"])
        return table

    def command(self, *arguments: str) -> str:
        folder = ["--instance", str(self.place)]
        answer = CliRunner().invoke(app, [*folder, *arguments])
        assert answer.exit_code == 0, answer.output
        return answer.stdout

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
        if row["k"] in self.aged:
            at = row["at"] = TIMES - 1
        if self.mode.keep == "latest" and self.random.random() < 0.25:
            o = self.order(at, 1) if self.mode.by or self.mode.sorted else None
            return {**row, "o": o, "kind": None, "n": None, "note": None, "_change": "delete"}
        change = self.random.choice(("insert", "update", None))
        note = self.random.choice((None, f"w{at} {kind}", f"x{number} w{at % 7}"))
        return {**row, "note": note, "o": self.order(at, 2), "_change": change}

    def order(self, at: int, rank: int) -> int | str:
        if self.mode.order != "string":
            return at
        return f"{at:0>35}-{rank}" if self.mode.form == "dms" else f"{at:0>20}-{at:0>20}-{rank}"

    def truncate(self) -> None:
        if not self.mode.form or (self.mode.form == "dms" and self.mode.by):
            return
        at = self.random.randrange(TIMES)
        before, after = ([self.change() for _ in range(self.random.randrange(3))] for _ in "ab")
        self.steps[-1] += f" {at} between {len(before)} and {len(after)}"
        for row in before:
            self.model.write(row)
        self.model.truncate(str(self.order(at, 1)) if self.mode.by else "")
        for row in after:
            self.model.write(row)
        emptied: object = {"op": "t", "source": {"sequence": f'["{at}","{at}"]'}}
        if self.mode.form == "dms":
            emptied = {"metadata": {"record-type": "control", "operation": "truncate-table"}}
        rows = [[message(row, self.mode) for row in some] for some in (before, after)]
        self.messages([*rows[0], emptied, *rows[1]], self.random.choice(("json", "http")))

    def condition(self) -> str:
        value, kind = self.random.randrange(8), self.random.choice("abc")
        at, mode = self.random.randrange(TIMES), self.mode
        number = self.random.randrange(KEYS)
        order = literal(self.order(at, 2), mode.order)
        key, end = literal(number, mode.key), literal(number + 3, mode.key)
        some = (
            f"n = {value}",
            f"kind = '{kind}' OR n IS NULL",
            f"kind <> '{kind}'",
            f"k BETWEEN {key} AND {end}",
            f"o < {order} AND k > {key}",
            f"NOT (n > {value} OR k < {key})",
            f"kind IN ('{kind}', 'z') AND n IS NOT NULL",
        )
        note = "note.w" if mode.note == "documents" else "note"
        words = f"has({note}, 'w{at}')", f"NOT {note} = 'w{at} {kind}'", f"{note} IS NULL AND n > 3"
        return self.random.choice(some if mode.note == "encrypted" else some + words)

    def delete_where(self) -> None:
        where = self.condition()
        door = self.random.choice(("python", "sql", "http", "command"))
        self.steps[-1] += f" {where} by {door}"
        self.model.delete(where)
        match door:
            case "python":
                self.handle.delete(where)
            case "sql":
                self.instance.sql(f"DELETE FROM t WHERE {where}")
            case "command":
                self.command("delete", "t", "--where", where, "--force")
            case _:
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
        numbers = self.keys()
        self.model.delete(f"k IN ({', '.join(map(str, numbers))})")
        keys = [typed(number, self.mode.key) for number in numbers]
        if self.random.random() < 0.3:
            self.request({"keys": json.loads(json.dumps([[key] for key in keys], default=in_json))})
        elif self.mode.by or self.mode.sorted or self.random.random() < 0.5:
            self.handle.delete(keys=keys)  # type: ignore[arg-type]
        else:
            self.handle.delete(keys=pa.table({"k": pa.array({*keys}, TYPES[self.mode.key])}))

    def purge(self) -> None:
        if self.random.random() < 0.5:
            keys = self.keys()
            named = [typed(key, self.mode.key) for key in keys]
            purge = self.handle.purge(keys=named, release_tags=True)  # type: ignore[arg-type]
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
        self.release()
        self.purged, self.tag, self.fed = self.handle.state().version, 0, None

    def compact(self) -> None:
        everything = self.random.random() < 0.5
        self.steps[-1] += f" {everything}"
        self.instance.compact("t", everything=everything)
        self.instance.wait()

    def split(self) -> None:
        self.instance.split("t", forced=True)
        self.instance.wait()

    def move_tag(self) -> None:
        self.release()
        self.tag = self.handle.state().version
        self.handle.tag(self.tag, "mark", move=True)

    def release(self) -> None:
        """Know no more of the version that only the tag kept."""
        if self.tag < self.oldest:
            self.versions.pop(self.tag, None)

    def restore(self) -> None:
        newest = self.handle.state().version
        known = [each for each in sorted(self.versions) if self.purged <= each < newest]
        if known:
            version = self.random.choice(known)
            self.steps[-1] += f" {version}"
            self.handle.restore(version)
            self.model.restore(*self.versions[version])
            self.begun, self.fed = self.handle.state().version, None

    def rebuild(self) -> None:
        if self.tag:
            self.handle.untag("mark")
        if self.fed is not None:
            self.handle.untag("feed")
        if self.random.random() < 0.5:
            self.steps[-1] += " of a lost state"
            self.lose()
        self.handle.rebuild()
        self.instance.wait()
        self.versions, self.tag, self.fed = {}, 0, None

    def lose(self) -> None:
        """Lose the state, as whoever opens the instance then finds it."""
        self.instance.close()
        lost = "path LIKE '%/state/%' AND path NOT LIKE '%/restored/%'"
        with closing(sqlite3.connect(self.place / DATABASE)) as db, db:
            db.execute("DELETE FROM items WHERE space IN ('state', 'deltas')")
            db.execute(f"DELETE FROM objects WHERE {lost}")
        for each in self.place.glob("tables/*/state/*"):
            if each.name != "restored":
                rmtree(each)
        self.open(self.place)

    def open(self, place: Path) -> None:
        self.place, self.instance = place, Instance.open(place, background=False)
        self.handle = self.instance.table("t")

    def move(self) -> None:
        """Go on with a copy in another instance."""
        place = self.folder / f"mice{len(self.steps)}"
        with Instance.open(place, background=False) as other:
            other.copy_table(self.handle)
        self.instance.close()
        self.open(place)
        self.instance.wait()
        self.versions, self.tag, self.fed = {}, 0, None

    def age(self) -> None:
        """Let tombstones age, and versions; or only some seconds go by. What a compaction forgets,
        and when, is not known here: from then on, only newer rows come of these keys.
        """
        self.compact()
        seconds = self.random.choice((10, TOMBSTONE_SECONDS + 400, 90_000))
        self.steps[-1] += f" {seconds}"
        self.clock.seconds += seconds
        if seconds > TOMBSTONE_SECONDS:
            self.aged |= {k for (k,) in self.model.db.execute("SELECT k FROM t WHERE gone")}
            self.begun = self.oldest = self.handle.state().version
            kept = self.begun, self.tag
            self.versions = {each: rows for each, rows in self.versions.items() if each in kept}
        self.instance.collect_garbage("t")
        self.compact()

    def alter(self) -> None:
        """Change columns, and change them back, but for a type that became wider."""
        way = self.random.choice(
            ("widen", "add") if self.mode.filtered else ("widen", "add", "rename")
        )
        self.steps[-1] += f" {way}"
        if way == "widen":
            wide = self.handle.schema.field_named("n").type is Primitive.LONG
            self.handle = self.handle if wide else self.handle.alter(types={"n": "long"})
        elif way == "rename":
            self.handle.alter(rename={"kind": "sort", "n": "kind"})
            self.handle.delete("sort = 'b' AND kind = 3")
            self.model.delete("kind = 'b' AND n = 3")
            self.instance.wait()
            self.handle = self.handle.latest().alter(rename={"kind": "n", "sort": "kind"})
        else:
            self.handle.alter(add=[Field("more", Primitive.LONG, True)])
            assert self.handle.latest().query(where="more IS NOT NULL").to_arrow().num_rows == 0
            self.handle = self.handle.latest().alter(drop=["more"])
        self.instance.wait()

    def path(self, ending: str) -> Path:
        return self.folder / f"{len(self.steps)}.{ending}"

    # What is read of it.

    def check(self) -> None:
        """Check all rows by one way to read them, and one thing more."""
        version, model = self.handle.state().version, self.model
        self.versions[version] = model.all()
        doors, rare = ["query"] * 4 + ["sql", "http", "command", "copy"], ["remote", "export"]
        if self.mode.note != "encrypted":
            doors += rare + ["published"] * self.is_published
            doors += ["pyiceberg"] * (self.is_published and is_whole())
        door = self.random.choice(doors)
        found, wanted = Counter(self.rows_by(door)), Counter(model.rows())
        assert found == wanted, (door, found - wanted, wanted - found)
        looks = self.check_look_ups, self.check_sql, self.check_version, self.check_changes
        self.random.choice((*looks, self.check_feed))()

    def check_look_ups(self) -> None:
        key, where, model = self.random.randrange(KEYS), self.condition(), self.model
        assert self.handle.count() == len(model.rows())
        exact = typed(key, self.mode.key)
        found = told(self.handle.query(exact=exact).to_arrow())  # type: ignore[arg-type]
        assert found == model.rows(f"k = {key}"), key
        doors = ["query", "query", "sql", "http", "command"]
        doors += [] if self.mode.note == "encrypted" else ["remote"]
        door = self.random.choice(doors)
        assert self.rows_by(door, where) == model.rows(where), (door, where)
        if self.random.random() < 0.3:
            found = self.handle.check().findings
            assert not [each for each in found if each.damage is not Damage.GARBAGE_OVERDUE]

    def check_sql(self) -> None:
        asked = (
            f"SELECT count(*), min(k), max(o), sum(n) FROM t WHERE {self.condition()}",
            "SELECT kind, count(*) c, sum(n) s FROM t GROUP BY kind ORDER BY kind NULLS FIRST",
            "SELECT DISTINCT n FROM t ORDER BY n NULLS FIRST",
        )
        sql = self.random.choice(asked)
        rows = self.instance.sql(sql).to_arrow().to_pylist()
        answer = [tuple(map(plain, row.values())) for row in rows]
        assert answer == self.model.query(sql), sql

    def rows_by(self, door: str, where: str = "") -> list[Row]:
        match door:
            case "sql":
                tested = f" WHERE {where}" if where else ""
                return told(self.instance.sql(f"SELECT {NAMES} FROM t{tested}").to_arrow())
            case "remote":
                return told(self.handle.query(where=where or None, run="remote").to_arrow())
            case "http":
                return in_order(self.pages(where))
            case "command":
                tests = ["--where", where] if where else []
                lines = self.command("query", "t", "--format", "json", *tests).splitlines()
                return in_order(map(row_of, map(json.loads, lines)))
            case "export":
                return self.exported()
            case "copy":
                with (
                    TemporaryDirectory(dir=self.folder) as folder,
                    Instance.open(Path(folder) / "mice", background=False) as other,
                ):
                    return told(
                        other.table(other.copy_table(self.handle).table.name).query().to_arrow()
                    )
            case "published":
                found = published(self.instance, self.handle, COLUMNS)
                return in_order(row_of(dict(zip(COLUMNS, row, strict=True))) for row in found)
            case "pyiceberg":
                published(self.instance, self.handle, ("k",))
                task = {"name": "t", "metadata": self.handle.iceberg.show().metadata, "at": {}}
                to = environment.run("pyiceberg", [task | {"where": ""}], self.folder)
                return told(feather.read_table(to / "t.arrow"))
            case _:
                return told(self.handle.query(where=where or None).to_arrow())

    def exported(self, as_of: int | str | None = None) -> list[Row]:
        with TemporaryDirectory(dir=self.folder) as to:
            export = self.handle.export(as_of=as_of)
            export.wait()
            export.download(to)
            files = [pq.read_table(path) for path in Path(to).glob("*.parquet")]
        return told(pa.concat_tables(files)) if files else []

    def pages(self, where: str) -> Iterator[Row]:
        after, question = "", {"page_rows": self.random.choice((3, 50))}
        question |= {"where": where} if where else {}  # type: ignore[dict-item]
        while True:
            asked = {**question, "after": after}
            page = Api(self.instance).found("POST", "/tables/t/query", asked)
            yield from map(row_of, page["rows"])
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
        if self.random.random() < 0.2 and self.mode.note != "encrypted":
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

    def check_feed(self) -> None:
        """Follow the table from a tag on that moves."""
        if self.mode.keep == "all":
            return
        if self.fed is None:
            version, self.fed = self.handle.state().version, {r[0]: r for r in self.model.rows()}
        else:
            found = self.handle.changes("feed", deleted=True)
            version, table = found.version, found.to_arrow()
            rows = told(table, in_order=False)
            for kind, row in zip(table["_change"].to_pylist(), rows, strict=True):
                self.fed.pop(row[0], None)
                if kind != "delete":
                    self.fed[row[0]] = row
            assert in_order([*self.fed.values()]) == self.model.rows()
        self.handle.tag(version, "feed", move=True)

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
    """Return a change as Debezium or DMS writes it."""
    names = [name for name in COLUMNS if name != "o" or not mode.by]
    values = {name: row[name] for name in names}
    if mode.note == "documents":
        values["note"] = row["note"] and {"w": row["note"]}
    if mode.form == "dms":
        operation = row["_change"] or "insert"
        at = {"o": f"{row['at']:0>35}"} if mode.by else {}
        data = {"k": row["k"]} if operation == "delete" else values
        return {"data": data | at, "metadata": {"record-type": "data", "operation": operation}}
    source = {"sequence": f'["{row["at"]}","{row["at"]}"]'}
    if row["_change"] == "delete":
        return {"op": "d", "before": {"k": row["k"]}, "after": None, "source": source}
    op = "u" if row["_change"] == "update" else "c"
    return {"op": op, "before": None, "after": values, "source": source}


def in_json(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def row_of(row: dict[str, object]) -> Row:
    return tuple(plain(row[name], name) for name in COLUMNS)  # type: ignore[return-value]


def shown(rows: Sequence[tuple[object, ...]]) -> list[Row]:
    return in_order(row[:-1] for row in rows if not row[-1])  # type: ignore[misc]


def in_order(rows: Iterator[Row] | Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row[0], repr(row)))


def told(found: pa.Table, *, in_order: bool = True) -> list[Row]:
    rows = [row_of(row) for row in found.select(COLUMNS).to_pylist()]
    if not in_order:
        return rows
    return sorted(rows, key=lambda row: (row[0], repr(row)))


STEPS = (
    *["ingest"] * 8,
    *["delete_where"] * 3,
    *["delete_keys"] * 2,
    *["compact"] * 3,
    *["purge", "split", "truncate", "restore", "rebuild", "move_tag", "alter", "move", "age"],
)


@contextmanager
def history(seed: int, folder: Path) -> Iterator[History]:
    mode = MODES[seed % len(MODES)]
    clock, place = Moved(), folder / "mice"
    with patch.object(SystemClock, "now_ms", lambda _: clock.now_ms()):
        instance = Instance.open(place, background=False)
        is_published = seed // len(MODES) % 2 == 0 and not mode.filtered
        properties = {**mode.properties, "iceberg": "on" if is_published else "off"}
        keys = ["o"] if mode.sorted else []
        handle = instance.create_table(
            "t", mode.columns, properties, row_keys=["k"], sort_keys=keys
        )
        model = Model(mode)
        with closing(model.db):
            made = History(
                *(instance, handle, random.Random(seed), mode, folder, model),
                *(is_published, clock, place),
            )
            try:
                yield made
            finally:
                made.instance.close()


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
