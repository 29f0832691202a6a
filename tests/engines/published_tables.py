"""Tables of every kind, published; with the rows of each version, as Dormouse reads them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

from dormouse.client.instance import Instance
from dormouse.schema.schema import Field, Schema, parse_schema
from dormouse.schema.types import DecimalType, Primitive
from dormouse.tables.properties import Properties
from dormouse.tables.table import Alteration, apply_alteration
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.published import Published, PublishedTable

Rows = list[dict[str, Any]]
NESTED = parse_schema(
    "k:long, tags:list<string>?, m:map<string,long>?, "
    "s:struct<x:long?,deep:list<struct<y:string?>>?>?",
    ["k"],
)
FLAT = parse_schema("k:long, s:string?, d:double?", ["k"])
COARSE = Schema(
    EVERY_TYPE.row_keys,
    EVERY_TYPE.sort_keys,
    tuple(field for field in EVERY_TYPE.values if field.name not in ("ns", "nn")),
)
"""Every type but the nanoseconds, which format 2 has not."""
COMMON = Schema(
    COARSE.row_keys,
    COARSE.sort_keys,
    tuple(field for field in COARSE.values if field.name != "clock"),
)
"""Every type but the nanoseconds and the time of day, which Spark has not."""


@dataclass(frozen=True, slots=True)
class Version:
    """A published version: where its metadata is, and its rows, or those where a condition holds.

    An earlier one is asked for by its ``snapshot``, its ``tag`` or its ``time_ms``; by ``since``,
    the rows that were ingested after another snapshot.
    """

    name: str
    metadata: str
    rows: Rows
    where: str = ""
    at: Mapping[str, int | str] = field(default_factory=dict)


def flat(start: int, end: int) -> Rows:
    return [
        {
            "k": n,
            "s": None if n % 7 == 0 else f"text {n} 🐭",
            "d": [n / 3, float("nan"), -0.0][n % 3],
        }
        for n in range(start, end)
    ]


def nested(start: int, end: int) -> Rows:
    return [
        {
            "k": n,
            "tags": None if n % 5 == 0 else [f"t{n}", None][: n % 3],
            "m": [("a", n), ("b", None)],
            "s": None if n % 4 == 0 else {"x": n, "deep": deep(n)},
        }
        for n in range(start, end)
    ]


def plain(table: PublishedTable) -> None:
    table.ingest(flat(0, 3000))
    table.ingest(flat(1000, 1500))


def empty(table: PublishedTable) -> None:
    """Publish nothing but the schema."""


def altered(table: PublishedTable) -> None:
    """A renamed column, a dropped one whose name came back as another type, and an added one."""
    table.ingest(flat(0, 1000))
    s, d = FLAT.values
    added = Field("more", Primitive.DATE, nullable=True)
    table.schema = replace(FLAT, values=(replace(s, name="t"), added))
    back = Field("d", Primitive.STRING, nullable=True)
    table.schema = replace(table.schema, values=(*table.schema.values, back))
    assert d.id not in {field.id for field in table.schema.fields}
    table.ingest([{"k": 5000, "t": "new", "more": None, "d": "text now"}])


def altered_alone(table: PublishedTable) -> None:
    """A change of the schema that no version follows."""
    table.ingest(flat(0, 10))
    table.publish()
    table.schema = replace(FLAT, values=(replace(FLAT.values[0], name="renamed"),))


EVOLVED = parse_schema(
    "k:int, n:int?, f:float?, d:decimal(4,2)?, p:struct<a:int?,b:string?>?, "
    "l:list<struct<x:int?,y:string?>>?, m:map<string,struct<x:float?>>?",
    ["k"],
)
EVOLUTION = Alteration(
    add=(
        Field("p.c", Primitive.DATE, nullable=True),
        Field("p.a", Primitive.STRING, nullable=True),
        Field("l.element.z", Primitive.LONG, nullable=True),
    ),
    drop=("p.a", "l.element.y"),
    rename={"p.b": "e", "m.value.x": "w"},
    types={
        "k": Primitive.LONG,
        "n": Primitive.LONG,
        "f": Primitive.DOUBLE,
        "d": DecimalType(30, 2),
        "l.element.x": Primitive.LONG,
        "m.value.x": Primitive.DOUBLE,
    },
)


def evolved(table: PublishedTable) -> None:
    """Types that became wider, and members that came, went and were renamed, between two files."""
    _before_evolution(table)
    table.schema = apply_alteration(table.schema, EVOLUTION, Properties())
    new = {"f": 0.1, "d": Decimal("1e20"), "p": {"c": None, "a": "a", "e": "e"}, "m": []}
    rows = range(2**40, 2**40 + 100)
    table.ingest([{"k": n, "n": n, "l": [{"x": n, "z": n}], **new} for n in rows])


def _before_evolution(table: PublishedTable) -> None:
    old = {"f": 0.1, "d": Decimal("1.25"), "p": {"a": 1, "b": "x"}, "m": [("u", {"x": 0.1})]}
    table.ingest([{"k": n, "n": n, "l": [{"x": n, "y": "y"}], **old} for n in range(100)])


def split(table: PublishedTable) -> None:
    table.ingest(flat(0, 3000))
    table.split((1000,))
    table.split((2000,))
    table.ingest(flat(500, 2500))


def half_dead(table: PublishedTable) -> None:
    """Three shards, whose rows are dead at their beginning, in their middle, and at their end."""
    for start in (0, 2000, 4000):
        table.ingest(flat(start, start + 2000))
    for at in (900, 2700, 3400, 5100):
        table.split((at,))
    for key in (0, 2700, 5100):
        table.compact((key,))


def deleted(table: PublishedTable) -> None:
    """Deletions by several columns, over shards of which rows are dead anyway, and rows since."""
    half_dead(table)
    table.delete("k % 10 = 3 OR d <> d")
    table.ingest(flat(2690, 2700))
    table.delete("s LIKE 'text 26%' AND k < 3000")
    table.ingest(flat(5000, 5003))


def nested_rows(table: PublishedTable) -> None:
    table.ingest(nested(0, 2000))
    table.split((700,))
    table.compact((0,))


def every_type(table: PublishedTable) -> None:
    table.ingest(
        [
            {name: row[name] for name in (field.name for field in table.schema.fields)}
            for row in (row_of_every_type(n) for n in range(200))
        ]
    )


def deep(number: int) -> list[dict[str, str | None]] | None:
    return None if number % 7 == 1 else [{"y": f"y{number}"}, {"y": None}][: number % 5]


def long_keys(table: PublishedTable) -> None:
    """Keys whose beginnings are alike for longer than a bound is."""
    for part in range(3):
        table.ingest([{"k": long_key(n), "n": n} for n in range(part * 10, part * 10 + 10)])


def long_key(number: int) -> str:
    return "ü" * 100 + f"{number:03d}"


LONG_KEYS = parse_schema("k:string, n:long", ["k"])
CONDITIONS = {
    "plain": "k >= 1200 and k < 1203",
    "evolved": "k >= 98 and k <= 1099511627777",
    "half-dead": "k > 2690 and k <= 2701",
    "half-dead-v3": "k > 2690 and k <= 2701",
    "deleted": "k > 2690 and k <= 2701",
    "long-keys": f"k = '{long_key(17)}'",
}
KINDS: list[tuple[str, Schema, int, Callable[[PublishedTable], None]]] = [
    ("plain", FLAT, 2, plain),
    ("plain-v3", FLAT, 3, plain),
    ("empty", FLAT, 2, empty),
    ("empty-v3", FLAT, 3, empty),
    ("altered", FLAT, 2, altered),
    ("altered-alone", FLAT, 2, altered_alone),
    ("evolved", EVOLVED, 2, evolved),
    ("evolved-v3", EVOLVED, 3, evolved),
    ("split", FLAT, 2, split),
    ("half-dead", FLAT, 2, half_dead),
    ("half-dead-v3", FLAT, 3, half_dead),
    ("deleted", FLAT, 2, deleted),
    ("deleted-v3", FLAT, 3, deleted),
    ("nested", NESTED, 2, nested_rows),
    ("nested-v3", NESTED, 3, nested_rows),
    ("long-keys", LONG_KEYS, 2, long_keys),
    ("common-types", COMMON, 2, every_type),
    ("common-types-on", COMMON, 2, every_type),
    ("every-type", COARSE, 2, every_type),
    ("every-type-v3", EVERY_TYPE, 3, every_type),
]


ENCODED_PLAINLY = ("common-types-on",)
"""The tables that were published before their first shard was written."""


def publish_all(folder: Path) -> list[Version]:
    """Publish a table of each kind, and a table with a history."""
    versions = []
    for name, schema, format_version, fill in KINDS:
        (folder / name).mkdir()
        table = PublishedTable(folder / name, schema, format_version=format_version)
        if name in ENCODED_PLAINLY:
            table.properties = Properties(iceberg="on")
        fill(table)
        table.publish()
        versions.append(Version(name, table.metadata_file, table.rows()))
        if where := CONDITIONS.get(name):
            rows = table.rows(where=where)
            versions.append(Version(f"{name}-where", table.metadata_file, rows, where))
    latest = (_latest(folder, format_version) for format_version in (2, 3))
    others = _quick_unsaid(folder), _evolved_history(folder), _history(folder)
    return [*versions, *chain(*latest, *others)]


def _latest(folder: Path, format_version: int) -> Iterator[Version]:
    """Yield a table that keeps the latest rows: late ones, tombstones in files and by deletions,
    a split, and a compaction of some of its shards.
    """
    name = "latest" if format_version == 2 else "latest-v3"
    given = {"keep": "latest", "latest_by": "o", "iceberg": "on", "compaction_files": 2}
    given |= {"iceberg_format": str(format_version)}
    with Instance.open(folder / name, background=False) as instance:
        table = instance.create_table("t", "k:long, o:long, s:string?", given, row_keys=["k"])
        columns = pa.schema([*table.query().schema, ("_change", pa.string())])

        def write(*rows: dict[str, object]) -> None:
            table.ingest(pa.Table.from_pylist(list(rows), columns)).wait()

        write(*({"k": n, "o": 5, "s": f"text {n}"} for n in range(3000)))
        instance.split("t", forced=True)
        instance.wait()
        write(*({"k": n, "o": n % 10, "s": "more"} for n in range(500, 2500, 3)))
        write(*({"k": n, "o": 7, "_change": "delete"} for n in range(0, 3000, 5)))
        instance.compact("t")
        instance.wait()
        write(*({"k": n, "o": 6 + n % 3, "s": "late"} for n in range(0, 3000, 10)))
        table.delete("s = 'more' AND k % 4 = 1")
        table.delete(keys=[1, 2, 1501])
        write(*({"k": n, "o": 5, "s": "again"} for n in range(4)))
        instance.wait()
        metadata = table.iceberg.show().metadata
        for suffix, where in (("", ""), ("-where", "k >= 1500 and k < 1520")):
            rows = table.query(where=where or None).to_arrow().to_pylist()
            yield Version(f"{name}{suffix}", metadata, rows, where)


def _quick_unsaid(folder: Path) -> Iterator[Version]:
    """Yield a table in quick encodings whose metadata does not ask readers to go row by row."""
    (folder / "quick-unsaid").mkdir()
    table = PublishedTable(folder / "quick-unsaid", FLAT)
    plain(table)
    table.publish()
    file = Path(table.metadata_file)
    body = table.metadata()
    del body["properties"]["read.parquet.vectorization.enabled"]
    file.write_text(json.dumps(body))
    yield Version("quick-unsaid", str(file), table.rows())


def _evolved_history(folder: Path) -> Iterator[Version]:
    """Publish before types and members change, and after it: both have the schema of their time."""
    (folder / "evolved-history").mkdir()
    table = PublishedTable(folder / "evolved-history", EVOLVED)
    _before_evolution(table)
    before, rows = table.publish(), table.rows()
    table.schema = apply_alteration(table.schema, EVOLUTION, Properties())
    table.ingest([{"k": 2**40, "n": 2**40}])
    table.publish()
    at = {"snapshot": before.snapshot_id}
    yield Version("evolved-history-before", table.metadata_file, rows, at=at)
    yield Version("evolved-history-after", table.metadata_file, table.rows())


def _history(folder: Path) -> Iterator[Version]:
    """Publish after each of several changes; all of its versions are read by the last metadata."""
    (folder / "history").mkdir()
    table = PublishedTable(folder / "history", FLAT)
    steps: list[tuple[Callable[[], object], Rows]] = [
        (lambda: table.ingest(flat(0, 300)), flat(0, 300)),
        (lambda: table.split((100,)), []),
        (lambda: table.compact((0,)), []),
        (lambda: _ingest_and_compact(table, flat(50, 150)), flat(50, 150)),
        (lambda: table.compact((200,)), []),
        (lambda: table.ingest(flat(250, 260)), flat(250, 260)),
    ]
    published: list[tuple[Published, Rows, Rows]] = []
    for change, ingested in steps:
        change()
        published.append((table.publish(), table.rows(), ingested))
    unique = {record.snapshot_id: (record, rows) for record, rows, _ in reversed(published)}
    for snapshot, (record, rows) in unique.items():
        named = {"snapshot": snapshot, "tag": f"v{record.version}", "time_ms": record.state_ms}
        for key, value in named.items():
            name = f"history-{key}-{snapshot}"
            yield Version(name, table.metadata_file, rows, at={key: value})
    last = published[-1][0].snapshot_id
    for number, (record, _, _) in enumerate(published[:-1]):
        rows = [row for _, _, ingested in published[number + 1 :] for row in ingested]
        at = {"since": record.snapshot_id, "snapshot": last}
        yield Version(f"changes-{record.snapshot_id}", table.metadata_file, rows, at=at)


def _ingest_and_compact(table: PublishedTable, rows: Rows) -> None:
    """Compact what is ingested away before it is published."""
    table.ingest(rows)
    table.compact((0,))
