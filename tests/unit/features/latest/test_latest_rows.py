"""Tables that keep the latest row of each key: what is latest, and what must not come back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.client import changes
from dormouse.client.inferring import check_file, estimate_splits, infer_schema
from dormouse.client.ingesting import FEW_BYTES
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError, RefusedSourceError
from dormouse.features.copying import copy_table
from dormouse.query import doubtful_rows
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.statements import running
from dormouse.stored.paths import shard_path
from dormouse.system import SystemClock
from dormouse.tables.properties import parse_settings, properties_of
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.small_blocks import write_small_blocks

COLUMNS = pa.schema({"id": pa.int64(), "o": pa.int64(), "v": pa.string(), "_change": pa.string()})
YEAR = 365 * 24 * 60 * 60


@pytest.fixture
def instance(tmp_path: Path) -> Any:
    with Instance.open(tmp_path / "mice", background=False) as opened:
        yield opened


def create(instance: Instance, by: str = "", **properties: object) -> TableHandle:
    given = {"keep": "latest", "latest_by": by, **properties}
    return instance.create_table("t", "id:long, o:long, v:string", given, row_keys=["id"])


def write(table: TableHandle, *rows: Sequence[object]) -> None:
    """Ingest rows of id, order and value; a row without a value deletes."""
    by = bool(table.current().properties.latest_by)
    found = [
        {"id": id_, "o": order, "v": value}
        if value is not None
        else {"id": id_, "o": order if by else None, "_change": "delete"}
        for id_, order, value in rows
    ]
    table.ingest(pa.Table.from_pylist(found, schema=COLUMNS)).wait()


def seen(table: TableHandle) -> dict[int, str]:
    return {row["id"]: row["v"] for row in table.query().to_arrow().to_pylist()}


def compact(instance: Instance) -> None:
    instance.compact("t", everything=True)
    instance.wait()


def test_the_row_that_came_last_is_the_latest_within_a_file_and_across(instance: Instance) -> None:
    table = create(instance)
    write(table, (1, 0, "a"), (2, 0, "z"), (1, 0, "b"), (2, 0, "a"))
    assert seen(table) == {1: "b", 2: "a"}
    write(table, (2, 0, None), (1, 0, "c"))
    write(table, (2, 0, "again"))
    assert seen(table) == {1: "c", 2: "again"}
    compact(instance)
    assert (seen(table), table.state().rows) == ({1: "c", 2: "again"}, 2)


def test_a_leaf_with_one_shard_is_read_as_its_neighbours_with_several_are(
    instance: Instance,
) -> None:
    """What of several leaves is read at once may be of one shard here and of more there."""
    table = create(instance)
    write(table, *((n, 0, "a") for n in range(40)))
    instance.split("t", forced=True)
    instance.wait()
    compact(instance)
    write(table, (39, 0, "b"), (3, 0, "c"), (4, 0, None))
    for keys in ([1, 3, 4, 39], [1], [39], None):
        found = table.query(exact=keys).to_arrow().to_pylist()
        wanted = {n: {3: "c", 39: "b"}.get(n, "a") for n in keys or range(40) if n != 4}
        assert {row["id"]: row["v"] for row in found} == wanted
        assert len(found) == len(wanted)
    compact(instance)
    assert table.count() == 39
    assert table.query(exact=[3, 4], where="v = 'c'", columns=["v"]).read_all().to_pylist() == [
        {"v": "c"}
    ]


def test_a_latest_row_outside_of_the_asked_sort_keys_is_none(instance: Instance) -> None:
    table = instance.create_table(
        "t", "id:long, o:long, v:string", {"keep": "latest"}, row_keys=["id"], sort_keys=["o"]
    )
    write(table, (1, 5, "a"), (2, 5, "b"))
    for _ in range(2):
        assert table.query([((1, 1), (1, 4))], columns=["v"]).read_all().num_rows == 0
        assert table.query(exact=(1, 5), columns=["v"]).read_all()["v"].to_pylist() == ["a"]
        write(table, (1, 5, "a"))


@pytest.mark.parametrize("seed", range(8))
def test_as_many_rows_are_counted_as_a_query_finds(
    instance: Instance, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    monkeypatch.setattr(running.engine, "plan", lambda *_: pytest.fail("DuckDB counts"))
    write_small_blocks(monkeypatch, random.choice([2, 4, 8]))
    monkeypatch.setattr(doubtful_rows, "FEW_ROWS", random.choice([0, 3, 200]))
    table = instance.create_table(
        "t", "id:long, o:long, v:string", {"keep": "latest"}, row_keys=["id"], sort_keys=["o"]
    )
    write(table, *((n, n % 3, "old") for n in range(100, 200, 2)))
    if seed % 2:
        instance.split("t", forced=True)
        instance.wait()
    for _ in range(5):
        some = random.sample(range(300), random.choice([1, 2, 6]))
        given = [
            {"id": n, "o": random.randrange(3), "v": "new"}
            if random.random() < 0.7
            else {"id": n, "o": random.randrange(3), "_change": "delete"}
            for n in some
        ]
        table.ingest(pa.Table.from_pylist(given, schema=COLUMNS)).wait()
        ends = sorted(random.sample(range(300), 4))
        of_sort_keys = [((n, o), (n, o + 1)) for n in some for o in range(3)]
        ranges = [(ends[0], ends[1]), (ends[2], ends[3])]
        for each in (
            None,
            ranges,
            [((ends[0], 2), (ends[3], 1))],
            *([one] for one in of_sort_keys),
        ):
            assert table.count(each) == table.query(each).to_arrow().num_rows
        where = f" WHERE id >= {ends[0]} AND id < {ends[1]}"
        for each, text in ((None, ""), (ranges[:1], where)):
            found = instance.sql(f"SELECT count(*) AS n FROM t{text}").to_arrow()
            assert found.to_pylist() == [{"n": table.query(each).to_arrow().num_rows}]
        if random.random() < 0.3:
            compact(instance)


def test_a_row_between_the_keys_of_a_small_shard_is_counted(instance: Instance) -> None:
    table = create(instance)
    for rows in [((1, 0, "a"), (1000, 0, "a")), ((5, 0, "a"), (6, 0, "a")), ((6, 0, "b"),)]:
        write(table, *rows)
    assert table.count() == 4
    assert table.count([(7, 900)]) == 0


def test_files_of_one_job_follow_each_other(instance: Instance, tmp_path: Path) -> None:
    table = create(instance, ingest_batch_min_files=3)
    files = []
    for n, lines in enumerate(
        (
            '{"id":2,"o":0,"v":"y"}\n{"id":1,"o":0,"v":"z"}',
            '{"id":1,"_change":"delete"}',
            '{"id":1,"o":0,"v":"a"}\n{"id":2,"o":0,"v":"b"}',
        )
    ):
        files.append(tmp_path / f"{n}.jsonl")
        files[-1].write_text(lines)
    table.ingest(files).wait()
    assert (seen(table), len(table.shards())) == ({1: "a", 2: "b"}, 1)


@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_late_row_does_not_overwrite_a_later_one(instance: Instance, is_compacted: bool) -> None:
    table = create(instance, by="o")
    write(table, (1, 5, "five"), (2, 5, None), (3, 5, "five"))
    if is_compacted:
        compact(instance)
    write(table, (1, 4, "late"), (2, 4, "late"), (3, 5, "tie"))
    assert seen(table) == {1: "five", 3: "tie"}, "of equal ones, the last that came"
    compact(instance)
    assert seen(table) == {1: "five", 3: "tie"}
    write(table, (2, 6, "six"))
    assert seen(table) == {1: "five", 2: "six", 3: "tie"}


def test_what_is_hidden_hides_older_rows_of_its_key(instance: Instance) -> None:
    table = create(instance, filters="where(v <> 'gone')")
    write(table, (1, 0, "a"), (2, 0, "a"), (3, 0, "a"), (4, 0, "a"))
    write(table, (1, 0, "gone"), (2, 0, "b"), (3, 0, "b"))
    table.delete("v = 'b'")
    assert seen(table) == {4: "a"}
    instance.compact("t")
    instance.wait()
    assert seen(table) == {4: "a"}
    compact(instance)
    assert (seen(table), table.state().rows) == ({4: "a"}, 1)


def test_a_tombstone_stays_while_an_older_row_may_lie_in_another_shard(instance: Instance) -> None:
    table = create(instance, compaction_files=2, compaction_size_ratio=1)
    write(table, *((n, 0, "old") for n in range(500)))
    write(table, (1, 0, None))
    write(table, (2, 0, None))
    write(table, (3, 0, None))
    instance.compact("t")
    instance.wait()
    assert len(table.shards()) in (2, 3), "the large shard was not merged with the small ones"
    assert table.count() == 497
    compact(instance)
    assert (table.count(), table.state().rows) == (497, 497)


def test_tombstones_are_kept_for_late_rows_as_long_as_the_property_says(instance: Instance) -> None:
    table = create(instance, by="o")
    write(table, (1, 5, "five"), (2, 5, "five"))
    write(table, (1, 6, None))
    table.delete("id = 2")
    compact(instance)
    assert table.state().rows == 2, "both are tombstones"
    write(table, (1, 4, "late"), (2, 4, "late"))
    compact(instance)
    assert (seen(table), table.state().rows) == ({}, 2)
    instance.set_properties("t", {"tombstone_age_seconds": 0})
    write(table, (3, 1, "new"))
    compact(instance)
    assert (seen(table), table.state().rows) == ({3: "new"}, 1)


@pytest.mark.parametrize("is_nullable", [True, False])
def test_values_of_every_type_are_blank_in_a_tombstone_and_stay_in_a_row(
    instance: Instance, *, is_nullable: bool
) -> None:
    values = tuple(replace(field, nullable=is_nullable) for field in EVERY_TYPE.values)
    schema = replace(EVERY_TYPE, values=values)
    table = instance.create_table("t", schema, {"keep": "latest"})
    rows = [row_of_every_type(n) for n in range(20)]
    rows = rows if is_nullable else [row for row in rows if None not in row.values()]
    assert len(rows) > 1
    table.ingest(pa.Table.from_pylist(rows, schema=table.query().schema)).wait()
    before = table.query().to_arrow()
    keys = before.select([field.name for field in EVERY_TYPE.keys])
    table.delete(keys=keys.filter(every_third(1, len(rows))))
    row_keys = keys.filter(every_third(2, len(rows))).to_pylist()
    table.delete(keys=[(key["t"], key["b"]) for key in row_keys])
    kept = before.filter(every_third(0, len(rows)))
    assert table.query().to_arrow().equals(kept)
    compact(instance)
    assert table.query().to_arrow().equals(kept)


def every_third(first: int, rows: int) -> pa.Array[Any]:
    return pa.array([n % 3 == first for n in range(rows)])


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"id": 1, "o": 1, "v": "x", "_change": "upsert"}, "row 1, column '_change'"),
        ({"id": 1, "v": "x", "_change": "delete"}, "row 1, column 'v'"),
        ({"id": 1, "o": 1, "_change": "update"}, "row 1, column 'v'"),
        ({"id": None, "_change": "delete"}, "row 1, column 'id'"),
    ],
)
def test_a_change_that_is_none_is_refused_with_its_row(
    instance: Instance, row: Mapping[str, object], reason: str
) -> None:
    table = create(instance)
    good = {"id": 7, "o": 1, "v": "seven", "_change": None}
    with pytest.raises(RefusedSourceError, match=reason.replace("1", "2", 1)):
        table.ingest(pa.Table.from_pylist([good, row], schema=COLUMNS)).wait()
    assert seen(table) == {}


def test_what_is_neither_earlier_nor_later_orders_no_rows(instance: Instance) -> None:
    """NaN, once stored, would win over all that comes later."""
    given = {"keep": "latest", "latest_by": "o"}
    table = instance.create_table("t", "id:long, o:double", given, row_keys=["id"])
    with pytest.raises(RefusedSourceError, match="row 2, column 'o'"):
        table.ingest(pa.table({"id": [1, 2], "o": [1.0, float("nan")]})).wait()
    assert table.count() == 0


def test_a_deletion_is_not_applied_again_to_rows_without_a_column_dropped_since(
    instance: Instance,
) -> None:
    """A compaction leaves the column out of rows that were not deleted: they seem to match."""
    given = {"keep": "latest", "compaction_strategy": "batch", "compaction_files": 2}
    table = instance.create_table("t", "id:long, x:long?, v:string?", given, [100], row_keys=["id"])
    frame = pa.table({"id": [1, 2, 200], "x": [5, 5, 7]})
    table.ingest(frame).wait()
    table.delete("x IS NULL")
    for row_id in (3, 4):
        table.ingest(pa.table({"id": [row_id], "x": [1]})).wait()
        instance.compact("t")
        instance.wait()
        table = table.latest()
        if row_id == 3:
            table = table.alter(drop=["x"], add=[Field("x", Primitive.LONG, nullable=True)])
    assert table.state().deletions, "the last leaf still needs it"
    assert sorted(table.query().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 200]


def test_a_rebuild_knows_which_row_came_a_millisecond_later(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [10**12]
    monkeypatch.setattr(SystemClock, "now_ms", lambda _: times[-1])
    table = create(instance)
    for values in "ab", "cd":
        for value in values:
            write(table, (1, 0, value))
        compact(instance)
        times.append(times[-1] + 2)
    write(table, (1, 0, "d"))
    table.rebuild()
    assert seen(table) == {1: "d"}


def test_bad_changes_of_a_file_are_left_out_where_rows_may_be(
    instance: Instance, tmp_path: Path
) -> None:
    table = create(instance, ingest_on_error="skip")
    file = tmp_path / "changes.csv"
    file.write_text("id,o,v,_change\n1,1,a,\n2,1,b,upsert\n3,1,,insert\n1,,,delete\n4,1,d,insert\n")
    table.ingest(file).wait()
    assert seen(table) == {4: "d"}


def test_rules_that_do_not_fit_are_refused(instance: Instance) -> None:
    for given in (
        {"latest_by": "o"},
        {"keep": "latest", "latest_by": "id"},
        {"keep": "latest", "latest_by": "n"},
        {"keep": "latest", "aggregations": "last(o), last(n)"},
    ):
        with pytest.raises(InvalidRequestError):
            instance.create_table("u", "id:long, o:long, n:long?", given, row_keys=["id"])
    create(instance, by="o")
    for change in ({"keep": "all"}, {"latest_by": ""}):
        with pytest.raises(InvalidRequestError, match="cannot change"):
            instance.set_properties("t", change)


@pytest.mark.parametrize("rows", [{"where": "id = 1"}, {"keys": [1]}], ids=["condition", "keys"])
def test_what_a_purge_takes_has_no_older_rows_and_no_tombstones(
    instance: Instance, rows: dict[str, Any]
) -> None:
    table = create(instance, compaction_files=100)
    write(table, (1, 0, "a"), (2, 0, "a"))
    write(table, (1, 0, "b"), (2, 0, "b"))
    write(table, (1, 0, None), (2, 0, "c"))
    write(table, (3, 0, "c"))
    table.purge(**rows).wait()
    assert seen(table) == {2: "c", 3: "c"}
    assert table.prove_purge(keys=[1]).rows == 0


def test_a_purge_by_values_brings_no_older_row_back_and_leaves_no_value(instance: Instance) -> None:
    table = create(instance, by="o", gc_delay_seconds=60)
    write(table, (1, 1, "x"), (2, 1, "y"), (3, 2, "x"), (4, 1, "z"))
    write(table, (1, 2, "y"), (2, 2, "x"), (4, 2, "x"))
    write(table, (4, 3, None))
    purge = table.purge("v = 'x'")
    assert seen(table) == {1: "y"}
    purge.wait()
    assert (seen(table), table.state().deletions) == ({1: "y"}, ())
    assert purge.proof().rows == 0
    held = [pq.read_table(path)["v"].to_pylist() for path in current_files(table)]
    assert "x" not in [value for values in held for value in values]
    write(table, (2, 1, "late"), (3, 1, "late"), (4, 2, "late"), (3, 3, "new"))
    assert seen(table) == {1: "y", 3: "new"}
    table.purge("v = ''").wait()
    assert seen(table) == {1: "y", 3: "new"}, "what tombstones have instead of values is none"


def current_files(table: TableHandle) -> list[BytesIO]:
    services, state = table.services, table.state()
    live = [shard for shard, count in state.reference_counts.items() if count]
    paths = (shard_path(table.current().id, shard) for shard in live)
    return [BytesIO(services.storage.get(path)) for path in paths]


def test_a_copy_and_an_export_have_the_latest_rows(instance: Instance, tmp_path: Path) -> None:
    table = create(instance, by="o")
    write(table, (1, 5, "five"), (2, 5, "five"))
    compact(instance)
    write(table, (1, 4, "late"), (2, 6, None), (3, 1, "new"))
    with Instance.open(tmp_path / "others", background=False) as other:
        _, messages = copy_table(
            instance.services, table.current(), table.bucket.name, other.services, "t"
        )
        other.queues.send(messages)
        copied = other.table("t")
        assert seen(copied) == {1: "five", 3: "new"}
        write(copied, (2, 5, "late"), (3, 0, "late"))
        assert seen(copied) == {1: "five", 3: "new"}
    manifest = table.export().wait()
    assert manifest.rows == 2
    asked = table.query(run="remote").to_arrow().to_pylist()
    assert {row["id"]: row["v"] for row in asked} == {1: "five", 3: "new"}


def test_keys_of_a_frame_are_deleted_however_many_they_are(instance: Instance) -> None:
    table = create(instance)
    write(table, *((n, 0, "x") for n in range(3000)))
    table.delete(keys=pa.table({"id": range(0, 3000, 2)}))
    assert table.count() == 1500
    assert not table.state().deletions


def test_a_number_that_is_there_twice_is_one_row(instance: Instance) -> None:
    """An event id as the row key is all that takes duplicates away."""
    table = create(instance)
    for _ in range(3):
        write(table, *((n, 0, "event") for n in range(10)), *((n, 0, "event") for n in range(5)))
    assert (table.count(), instance.sql("SELECT count(*) c FROM t").to_arrow()["c"][0].as_py()) == (
        10,
        10,
    )


@pytest.mark.parametrize("name", ["_change", "_sequence", "_tombstone", "_version"])
def test_no_column_gets_the_name_of_what_tells_about_rows(instance: Instance, name: str) -> None:
    table = create(instance)
    taken = Field(name, Primitive.LONG, nullable=True)
    for change in ({"rename": {"v": name}}, {"add": [taken]}, {"drop": ["v"], "add": [taken]}):
        with pytest.raises(InvalidRequestError, match="no column of a table"):
            table.alter(**change)  # type: ignore[arg-type]  # one of each


@pytest.mark.parametrize("form", ["", "dms"])
def test_a_table_is_made_like_a_file_that_says_what_becomes_of_rows(
    instance: Instance, tmp_path: Path, form: str
) -> None:
    file = tmp_path / "changes.csv"
    name, delete = ("Op", "D") if form else ("_change", "delete")
    insert, was = ("I", "a") if form else ("", "")
    at = [f"{n:0>35}" for n in (5, 4, 6)]
    lines = f"{insert},1,{at[0]},a", f"{insert},2,{at[1]},b", f"{delete},1,{at[2]},{was}"
    file.write_text("\n".join((f"{name},id,at,v", *lines)))
    given = {"keep": "latest", "change_data": form, "latest_by": "at"}
    schema = infer_schema(file, ["id"], properties=given).schema
    check_file(file, schema, properties_of(parse_settings(given)))
    assert estimate_splits(schema, [file], 2, properties=given).rows == 3
    instance.set_defaults({"keep": "latest"})
    by_default = {name: value for name, value in given.items() if name != "keep"}
    table = instance.create_table("t", like=file, row_keys=["id"], properties=by_default)
    table.ingest(file).wait()
    assert [*table.query().to_arrow()["id"].to_pylist()] == [2]


def test_what_changed_has_the_version_of_the_commit_that_made_it(instance: Instance) -> None:
    table = create(instance, by="o")
    write(table, (1, 5, "a"), (2, 5, "b"), (3, 5, "c"), (4, 5, "d"))
    versions = [table.state().version]
    for rows in (((1, 6, "aa"),), ((1, 4, "late"), (5, 1, "e")), ((2, 6, None),)):
        write(table, *rows)
        versions.append(table.state().version)
    versions.append(table.delete("v = 'c'"))
    compact(instance)
    found = table.changes(versions[0], before=True).to_arrow().to_pylist()
    told = {(row["_change"], row["id"]): row["_version"] for row in found}
    first, updated, inserted, deleted, last = versions
    assert told == {
        ("before", 1): updated,
        ("update", 1): updated,
        ("insert", 5): inserted,
        ("delete", 2): deleted,
        ("delete", 3): last,
    }
    rows = instance.create_table("u", "id:long, v:string", row_keys=["id"])
    for n in range(3):
        rows.ingest(pa.table({"id": [n], "v": ["x"]})).wait()
    at = [rows.state().version - 1, rows.state().version, rows.delete("id = 0")]
    found = rows.changes(at[0] - 1, deleted=True).to_arrow().to_pylist()
    assert sorted((row["_version"], row["_change"], row["id"]) for row in found) == [
        (at[0], "insert", 1),
        (at[1], "insert", 2),
        (at[2], "delete", 0),
    ]


def test_what_changed_of_wide_rows_is_told_of_a_few_at_a_time(
    instance: Instance, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, wide, rows = create(instance), "x" * 100_000, 64
    write(table, *((n, 0, wide) for n in range(rows)))
    since = table.state().version
    write(table, *((n, 0, f"{wide}y" if n % 2 else None) for n in range(rows)))
    most_bytes = 4 * len(wide)
    monkeypatch.setattr(changes, "SHARE_OF_MEMORY", instance.services.memory_bytes // most_bytes)
    found = list(table.changes(since, before=True))
    assert all(batch.nbytes <= most_bytes for batch in found)
    kinds = sorted(kind for batch in found for kind in batch.column("_change").to_pylist())
    assert kinds == [kind for kind in ("before", "delete", "update") for _ in range(rows // 2)]


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_who_begins_at_version_0_is_told_all_rows_whatever_became_of_the_table(
    instance: Instance, is_rebuilt: bool
) -> None:
    table = create(instance)
    write(table, (1, 0, "a"), (2, 0, "b"), (3, 0, "c"))
    since = table.state().version
    write(table, (1, 0, "new"))
    if is_rebuilt:
        table.rebuild()
    else:
        table.restore(since)
    table.delete("id = 2")
    found = table.changes(0, deleted=True).to_arrow().to_pylist()
    assert {row["id"]: row["v"] for row in found} == seen(table)
    assert {row["_change"] for row in found} == {"insert"}


def test_a_deletion_that_a_restore_undoes_is_told(instance: Instance) -> None:
    table = create(instance)
    write(table, (1, 0, "a"), (2, 0, "b"))
    before = table.state().version
    table.delete("id = 1")
    deleted = table.state().version
    for version, since, kind in ((before, deleted, "insert"), (deleted, before, "delete")):
        table.restore(version)
        (told,) = table.changes(since, before=True).to_arrow().to_pylist()
        assert (told["_change"], told["id"], told["v"]) == (kind, 1, "a")


def test_rows_are_told_of_a_shard_of_which_one_leaf_has_none_any_more(instance: Instance) -> None:
    table = create(instance, compaction_strategy="batch", compaction_files=2)
    write(table, *((n, 0, "a") for n in range(4)))
    instance.split("t", forced=True)
    instance.wait()
    before = table.state().version
    write(table, (0, 0, None), (1, 0, None))
    instance.compact("t")
    instance.wait()
    after = table.state().version
    assert len(table.shards()) == 1, "it has the rows of the other leaf, and those of before"
    for version, since, kind in ((before, after, "insert"), (after, before, "delete")):
        table.restore(version)
        told = table.changes(since, deleted=True).to_arrow().to_pylist()
        assert sorted((row["_change"], row["id"]) for row in told) == [(kind, 0), (kind, 1)]


def test_files_of_aws_dms_say_what_becomes_of_rows(instance: Instance, tmp_path: Path) -> None:
    """A full load, changes, and changes that come late; of a deleted row DMS also says the rest."""
    rules = {"keep": "latest", "latest_by": "seq", "change_data": "dms"}
    schema = "id:long, seq:string, name:string?"
    table = instance.create_table("t", schema, rules, row_keys=["id"])

    def ingest(name: str, *lines: str) -> dict[int, str]:
        file = tmp_path / name
        file.write_text("\n".join(lines))
        table.ingest(file).wait()
        return {row["id"]: row["name"] for row in table.query().to_arrow().to_pylist()}

    def at(number: int) -> str:
        return f"20260101000000{number:021d}"

    loaded = ingest("LOAD1.csv", "id,seq,name", "1,,Hazel", '2,"",Ash', "3,,Elm")
    assert loaded == {1: "Hazel", 2: "Ash", 3: "Elm"}
    header = "Op,id,seq,name"
    changes = f"U,1,{at(5)},Hazel II", f"D,2,{at(6)},Ash", f"I,4,{at(7)},Oak"
    assert ingest("a.csv", header, *changes) == {1: "Hazel II", 3: "Elm", 4: "Oak"}
    late = f"U,1,{at(4)},late", f"U,2,{at(5)},late", f"U,4,{at(8)},Oak II"
    assert ingest("b.csv", header, *late) == {1: "Hazel II", 3: "Elm", 4: "Oak II"}
    with pytest.raises(RefusedSourceError, match="row 1, column 'Op': the operation is unknown"):
        ingest("c.csv", header, f"X,1,{at(9)},no")
    for change in ("U,1,9,no", "U,1,,no", "D,1,,"):  # as text, 10 would be before 9
        with pytest.raises(RefusedSourceError, match="row 2, column 'seq': .* of 35 digits"):
            ingest(f"{change}.csv", header, f"I,7,{at(9)},Yew", change)
    with pytest.raises(RefusedSourceError, match="row 1, column '_change'"):
        ingest("d.csv", f"{header},_change", f"I,7,{at(9)},Yew,delete")


def test_frames_and_rows_of_aws_dms_are_read_as_its_files(instance: Instance) -> None:
    """Also frames of which a file is written, which has no operations any more."""
    rules = {"keep": "latest", "latest_by": "seq", "change_data": "dms"}
    table = instance.create_table("t", "id:long, seq:string, name:string?", rules, row_keys=["id"])
    names = [f"{n:0>64}" for n in range(8_000)]
    keys = range(len(names))
    assert sum(map(len, names)) > FEW_BYTES
    table.ingest(pa.table({"id": keys, "name": names})).wait()
    places = [f"{n:0>35}" for n in range(1, len(names) + 1)]
    operations = ["D" if n % 2 else "U" for n in keys]
    changes = {"Op": operations, "id": keys, "seq": places, "name": names[::-1]}
    table.ingest(pa.table(changes)).wait()
    found = {row["id"]: row["name"] for row in table.query().to_arrow().to_pylist()}
    assert found == {key: names[-1 - key] for key in keys if key % 2 == 0}
    with table.writer() as writer:
        writer.write({"Op": "D", "id": 0, "seq": "9" * 35, "name": "gone"})
        writer.write({"Op": "U", "id": 1, "seq": "9" * 35, "name": "back"})
        writer.write({"Op": "U", "id": 2, "seq": "0" * 35, "name": "late"})
    assert table.query(exact=0).to_arrow().num_rows == 0
    told = [table.query(exact=key).to_arrow()["name"].to_pylist() for key in (1, 2)]
    assert told == [["back"], [names[-3]]]


def test_a_folder_gives_rows_that_delete_no_values(instance: Instance, tmp_path: Path) -> None:
    rules = {"keep": "latest"}
    table = instance.create_table("t", "id:long, day:date, name:string?", rules, row_keys=["id"])
    for day, lines in (("01", "id,name\n1,Hazel\n2,Ash\n"), ("02", "id,name,_change\n1,,delete\n")):
        file = tmp_path / f"day=2026-01-{day}" / "a.csv"
        file.parent.mkdir()
        file.write_text(lines)
        table.ingest(file).wait()
    assert [row["id"] for row in table.query().to_arrow().to_pylist()] == [2]
