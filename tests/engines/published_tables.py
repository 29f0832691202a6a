"""Tables of every kind, published; with the rows of each version, as Dormouse reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dormouse.schema.columns import parse_schema
from dormouse.schema.schema import Field, Primitive, Schema
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.published import PublishedTable

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


@dataclass(frozen=True, slots=True)
class Version:
    """A published version: where its metadata is, its snapshot if it may be an earlier one, and its
    rows, or those where a condition holds.
    """

    name: str
    metadata: str
    snapshot: int | None
    rows: Rows
    where: str = ""


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
            "s": None if n % 4 == 0 else {"x": n, "deep": [{"y": f"y{n}"}, {"y": None}]},
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


def long_keys(table: PublishedTable) -> None:
    """Keys whose beginnings are alike for longer than a bound is."""
    for part in range(3):
        table.ingest([{"k": long_key(n), "n": n} for n in range(part * 10, part * 10 + 10)])


def long_key(number: int) -> str:
    return "ü" * 100 + f"{number:03d}"


LONG_KEYS = parse_schema("k:string, n:long", ["k"])
CONDITIONS = {
    "plain": "k >= 1200 and k < 1203",
    "half-dead": "k > 2690 and k <= 2701",
    "half-dead-v3": "k > 2690 and k <= 2701",
    "long-keys": f"k = '{long_key(17)}'",
}
KINDS: list[tuple[str, Schema, int, Callable[[PublishedTable], None]]] = [
    ("plain", FLAT, 2, plain),
    ("plain-v3", FLAT, 3, plain),
    ("empty", FLAT, 2, empty),
    ("empty-v3", FLAT, 3, empty),
    ("altered", FLAT, 2, altered),
    ("altered-alone", FLAT, 2, altered_alone),
    ("split", FLAT, 2, split),
    ("half-dead", FLAT, 2, half_dead),
    ("half-dead-v3", FLAT, 3, half_dead),
    ("nested", NESTED, 2, nested_rows),
    ("nested-v3", NESTED, 3, nested_rows),
    ("long-keys", LONG_KEYS, 2, long_keys),
    ("every-type", COARSE, 2, every_type),
    ("every-type-v3", EVERY_TYPE, 3, every_type),
]


def publish_all(folder: Path) -> list[Version]:
    """Publish a table of each kind, and a table with a history."""
    versions = []
    for name, schema, format_version, fill in KINDS:
        (folder / name).mkdir()
        table = PublishedTable(folder / name, schema, format_version=format_version)
        fill(table)
        table.publish()
        versions.append(Version(name, table.metadata_file, None, table.rows()))
        if where := CONDITIONS.get(name):
            rows = table.rows(where=where)
            versions.append(Version(f"{name}-where", table.metadata_file, None, rows, where))
    return versions + _history(folder)


def _history(folder: Path) -> list[Version]:
    """Publish after each of several changes; all of its versions are read by the last metadata."""
    (folder / "history").mkdir()
    table = PublishedTable(folder / "history", FLAT)
    found = []
    for step in (
        lambda: table.ingest(flat(0, 300)),
        lambda: table.split((100,)),
        lambda: table.compact((0,)),
        lambda: table.ingest(flat(50, 150)),
        lambda: table.compact((200,)),
        lambda: table.compact((0,)),
    ):
        step()
        record = table.publish()
        found.append((record.snapshot_id, table.rows()))
    unique = dict(found)
    return [
        Version(f"history-{snapshot}", table.metadata_file, snapshot, rows)
        for snapshot, rows in unique.items()
    ]
