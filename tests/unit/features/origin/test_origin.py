"""Where rows come from: known through compactions, and of just the rows that have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError
from dormouse.features.copying import copy_table
from dormouse.features.rebuild import rebuild
from dormouse.messages.requests import CompactTable, DeleteRows, SetProperties, SplitPartitions
from dormouse.messages.stages import SelectionMessage
from dormouse.tables.table import Table
from tests.support.instances import InMemory
from tests.support.world import World, letters

ORIGIN = ["letter", "_file", "_row", "_version"]
CSV = b'letter,at,note\na,1,x\n\nb,2,"y\nz"\nc,3,\n'
JSON = b'{"letter": "d", "at": 4}\n\n{"letter": "e", "at": 5}\n'


def compact(world: World) -> None:
    world.administer(CompactTable(world.ids.new(), "letters", all=True))
    world.settle()


def opened(world: World) -> TableHandle:
    return InMemory.over(world).instance.table("letters")


def origins(world: World, where: str | None = None, **asked: Any) -> list[tuple[object, ...]]:
    found = opened(world).query(where=where, columns=ORIGIN, **asked).read_all().to_pylist()
    return [
        (r["letter"], r["_file"].removeprefix("letters/"), r["_row"], r["_version"]) for r in found
    ]


def drop(world: World, key: str, body: Any) -> int:
    """Drop a file; return the version that has its rows."""
    world.drop(f"letters/{key}", body)
    world.settle()
    return opened(world).state().version


@pytest.fixture
def table(world: World) -> Table:
    return world.create(row_origin="on", compaction_files=100)


@pytest.fixture
def rows(world: World, table: Table) -> list[tuple[object, ...]]:
    first = drop(world, "a.csv", CSV)
    second = drop(world, "b.jsonl", JSON)
    third = drop(world, "c.parquet", letters("fa", at=10))
    wanted = [
        ("a", "c.parquet", 2, third),
        ("a", "a.csv", 2, first),
        ("b", "a.csv", 4, first),
        ("c", "a.csv", 6, first),
        ("d", "b.jsonl", 1, second),
        ("e", "b.jsonl", 3, second),
        ("f", "c.parquet", 1, third),
    ]
    return sorted(wanted, key=lambda each: (each[0], each[1] != "a.csv"))


def test_each_row_has_its_file_its_line_there_and_its_commit_through_compactions(
    world: World, table: Table, rows: list[tuple[object, ...]]
) -> None:
    assert origins(world) == rows
    before = opened(world).query(columns=["_ingested_at", "_etag"]).read_all()
    compact(world)
    assert origins(world) == rows
    assert opened(world).query(columns=["_ingested_at", "_etag"]).read_all() == before
    drop(world, "more.csv", b"letter,at,note\nz,9,\n")
    world.administer(SplitPartitions(world.ids.new(), "letters", forced=True))
    world.settle()
    compact(world)
    assert origins(world)[:-1] == rows
    assert opened(world).query().read_all().column_names == ["letter", "at", "note"]


def test_conditions_find_rows_by_their_origin(
    world: World, table: Table, rows: list[tuple[object, ...]]
) -> None:
    version = rows[3][3]
    for _ in range(2):
        for where, letters_found in {
            "_file = 'letters/b.jsonl'": "de",
            "_file LIKE '%.csv' AND _row > 2": "bc",
            f"_version = {version}": "".join(str(r[0]) for r in rows if r[3] == version),
            "_ingested_at > TIMESTAMP '2000-01-01' AND letter = 'd'": "d",
            "_file IS NULL": "",
        }.items():
            assert "".join(str(r[0]) for r in origins(world, where)) == letters_found, where
            assert opened(world).count(where=where) == len(letters_found)
        compact(world)


def test_rows_of_a_file_are_deleted_by_its_name_also_if_origins_are_given_up_meanwhile(
    world: World, table: Table, rows: list[tuple[object, ...]]
) -> None:
    compact(world)
    selection = SelectionMessage(where="_file = 'letters/a.csv'")
    world.administer(DeleteRows("d", "letters", selection))
    world.settle()
    assert [r[0] for r in origins(world)] == ["a", "d", "e", "f"]
    world.administer(SetProperties("p", "letters", {"row_origin": "off"}))
    for _ in range(3):
        assert world.names(table) == "adef"
        compact(world)
    assert world.state(table).deletions == ()


def test_rows_that_were_ingested_before_have_no_origin_and_none_is_made_up(world: World) -> None:
    world.create(compaction_files=100)
    drop(world, "a.csv", CSV)
    drop(world, "b.jsonl", JSON)
    compact(world)
    with pytest.raises(InvalidRequestError, match="does not keep"):
        origins(world)
    world.administer(SetProperties("p", "letters", {"row_origin": "on"}))
    version = drop(world, "c.parquet", letters("f"))
    for _ in range(2):
        found = opened(world).query(columns=ORIGIN).read_all().to_pylist()
        assert [r["_file"] for r in found] == [None] * 5 + ["letters/c.parquet"]
        assert [r["_version"] for r in found] == [None] * 5 + [version]
        times = opened(world).query(columns=["_ingested_at"]).read_all()
        assert times.column("_ingested_at").null_count == 5
        compact(world)


def test_rows_that_are_left_out_count_as_lines(world: World) -> None:
    world.create(row_origin="on", ingest_on_error="skip")
    drop(world, "a.csv", b"letter,at,note\na,1,\nb,bad,\nc,3,\n")
    drop(world, "b.jsonl", b'{"letter": "d", "at": 4}\n{"letter": 5}\n{"letter": "e", "at": 5}\n')
    assert [(r[0], r[2]) for r in origins(world)] == [("a", 2), ("c", 4), ("d", 1), ("e", 3)]


def test_many_lines_have_their_numbers(world: World) -> None:
    world.create(row_origin="on")
    body = b"letter,at,note\n" + b"".join(
        b'%c,%d,"%s"\n' % (97 + n % 26, n, b"\n" * (n % 7 == 0)) for n in range(150_000)
    )
    drop(world, "a.csv", body.rstrip(b"\n"))
    found = opened(world).query(columns=["at", "_row"]).read_all().sort_by("at")
    line, wanted = 2, []
    for n in range(150_000):
        wanted.append(line)
        line += 1 + (n % 7 == 0)
    assert found.column("_row").to_pylist() == wanted


def test_the_latest_row_has_its_own_origin(world: World) -> None:
    world.create(keep="latest", row_origin="on", compaction_files=100)
    first = drop(world, "a.csv", b"letter,at,note\na,1,x\nb,1,x\n")
    second = drop(world, "b.csv", b"letter,at,note\nb,2,y\n")
    for _ in range(2):
        assert origins(world) == [("a", "a.csv", 2, first), ("b", "b.csv", 2, second)]
        assert opened(world).why("b")[0].file == "letters/b.csv"
        compact(world)


def test_a_copy_and_a_rebuild_know_files_and_lines(
    world: World, table: Table, rows: list[tuple[object, ...]], tmp_path: Path
) -> None:
    other = World(tmp_path / "other")
    other.clock.advance(seconds=100_000)  # so that its ids are others
    copy_table(world.services, table, world.sources.bucket, other.services, "letters")
    assert origins(other) == rows
    compact(other)
    assert origins(other) == rows
    rebuild(world.services, table)
    assert [r[:3] for r in origins(world)] == [r[:3] for r in rows]
    assert [r[3] for r in origins(world)] == [None] * len(rows), "the log that had versions is lost"
    compact(world)
    assert [r[:3] for r in origins(world)] == [r[:3] for r in rows]


def test_a_purge_leaves_no_origin_of_its_rows(
    world: World, table: Table, rows: list[tuple[object, ...]]
) -> None:
    compact(world)
    world.purge(table, "letter IN ('d', 'e')")
    world.settle()
    assert [r[0] for r in origins(world)] == ["a", "a", "b", "c", "f"]
    world.clock.advance(seconds=10 * table.properties.gc_delay_seconds)
    world.sweep(audit=True)
    world.settle()
    held = [f.read_bytes() for f in (world.folder / "data").rglob("*.parquet")]
    assert held and not any(b"b.jsonl" in body for body in held)


def test_an_export_has_origins_only_if_they_are_asked_for(
    world: World, table: Table, rows: list[tuple[object, ...]]
) -> None:
    compact(world)
    world.export(table, "plain")
    world.export(table, "named", columns=("letter", "_file", "_row"), where="_row > 2")
    world.settle()
    assert not [r for r in world.tracker.kept.values() if r.state == "failed"]
    columns = {}
    for name in ("plain", "named"):
        (file,) = [f for f in world.results.list(name) if f.path.endswith(".parquet")]
        columns[name] = pq.read_table(world.folder / "results" / file.path)
    assert columns["plain"].column_names == ["letter", "at", "note"]
    assert columns["named"].column("_row").to_pylist() == [4, 6, 3]


def test_a_query_over_messages_knows_tags_and_origins(
    world: World, table: Table, rows: list[tuple[object, ...]]
) -> None:
    drop(world, "tag.day=1/z.csv", b"letter,at,note\nz,9,\n")
    compact(world)
    assert origins(world, "_row > 2 OR tag('day') = '1'", run="remote")[-1][:3] == (
        "z",
        "tag.day=1/z.csv",
        2,
    )


def test_time_travel_reads_origins_as_they_were(
    world: World, table: Table, rows: list[tuple[object, ...]]
) -> None:
    version = opened(world).state().version
    opened(world).tag(version, "kept")
    compact(world)
    drop(world, "z.csv", b"letter,at,note\nz,9,\n")
    assert origins(world, as_of=version) == rows


def test_a_row_is_followed_from_its_file_through_each_compaction(
    world: World, table: Table, rows: list[tuple[object, ...]]
) -> None:
    (ingested,) = opened(world).why("d")
    opened(world).tag(opened(world).state().version, "kept")
    compact(world)
    (row,) = opened(world).why("d")
    assert (row.file, row.row, row.etag) == ("letters/b.jsonl", 1, ingested.etag)
    assert (row.version, row.ingested_at) == (ingested.version, ingested.ingested_at)
    assert row.steps[0].shard == row.shards[0] and ingested.shards[0] in row.steps[0].made_of
    assert {s.shard for s in row.steps} >= {row.shards[0], ingested.shards[0]}
    assert opened(world).why("q") == []
    assert len(opened(world).why("a")) == 2


def test_without_the_property_the_files_are_told_that_may_have_a_row(world: World) -> None:
    world.create(compaction_files=100)
    drop(world, "a.csv", CSV)
    drop(world, "b.jsonl", JSON)
    (row,) = opened(world).why("d")
    assert (row.file, row.files) == (None, ("letters/b.jsonl",))
    compact(world)
    (row,) = opened(world).why("d")
    assert row.files == ("letters/a.csv", "letters/b.jsonl")


def test_rows_that_are_made_of_several_are_told_by_their_shards(world: World) -> None:
    world.create(aggregations="last(note)", row_origin="on", compaction_files=100)
    drop(world, "a.csv", b"letter,at,note\na,1,x\n")
    drop(world, "b.csv", b"letter,at,note\na,2,y\n")
    (row,) = opened(world).why("a")
    assert len(row.shards) == 2 and row.file is None
    with pytest.raises(InvalidRequestError, match="aggregations"):
        origins(world)


def test_frames_and_sql_know_origins_by_name_alone(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table(
            "t", "id:long, name:string?", row_keys=["id"], properties={"row_origin": "on"}
        )
        table.ingest(pa.table({"id": [2, 1], "name": ["b", "a"]}), name="x.parquet")
        found = instance.sql("SELECT _row, _file, * FROM t ORDER BY id").to_arrow()
        assert found.to_pylist() == [
            {"_row": 2, "_file": "t/x.parquet", "id": 1, "name": "a"},
            {"_row": 1, "_file": "t/x.parquet", "id": 2, "name": "b"},
        ]
        text = (
            "SELECT id FROM t WHERE _file = 't/x.parquet' AND _ingested_at > TIMESTAMP '2020-01-01'"
        )
        assert instance.sql(text).to_arrow().num_rows == 2
        assert instance.sql("SELECT * FROM t").to_arrow().column_names == ["id", "name"]
        shard = instance.sql("SELECT DISTINCT _shard FROM t").to_arrow().to_pylist()
        assert [s["_shard"] for s in shard] == [each.id for each in table.shards()]
        table.ingest(pa.table({"id": [3], "name": ["c"]}))
        assert table.query(exact=3, columns=["_row"]).read_all().to_pylist() == [{"_row": 1}]
        again = table.query(columns=["id", "_version"]).read_all()
        assert again.column("_version").null_count == 0
