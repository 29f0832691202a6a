"""Exports: the rows of one version, in files whose manifest is there just if all of them are."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from dormouse.features import export_rows as stage
from dormouse.messages.stages import ExportTask
from dormouse.query import selection as cutting
from tests.support.world import World, letters
from tests.unit.features.exports import (
    ALL,
    LEAVES,
    assert_forgotten,
    exported,
    filled,
    manifest,
    record_of,
    rows_of,
)


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every leaf is a task of its own."""
    monkeypatch.setattr(cutting, "MAX_TASK_SHARDS", 1)


@pytest.mark.parametrize("splits", [[], LEAVES])
def test_all_rows_are_exported_in_order_and_counted(
    world: World, splits: list[tuple[object, ...]]
) -> None:
    table = filled(world, splits=splits)
    export = world.export(table, to="out")
    world.settle()
    assert rows_of(world) == world.rows(table)
    manifest_ = manifest(world)
    assert (manifest_.export, manifest_.table, manifest_.version) == (
        export,
        "letters",
        world.state(table).version,
    )
    assert manifest_.ranges == (((), None),)
    assert record_of(world, table, export).state == "finished"
    assert record_of(world, table, export).rows == len(ALL)
    assert_forgotten(world, table)


@pytest.mark.usefixtures("small_tasks")
def test_leaves_are_tasks_whose_files_follow_each_other(world: World) -> None:
    table = filled(world)
    world.export(table, to="out")
    assert len([m for m in world.queue if m.queue == "exports"]) == 4
    world.queue.rotate(2)  # whichever comes first
    world.settle()
    assert exported(world) == ALL
    assert [file.name for file in manifest(world).files] == [
        f"part-{task:05d}-000.parquet" for task in range(4)
    ]


def test_a_dataset_reader_finds_the_rows_and_passes_over_the_manifest(world: World) -> None:
    table = filled(world)
    world.export(table, to="a/b/c")
    world.settle()
    read = pq.read_table(world.folder / "results" / "a" / "b" / "c")
    assert read.num_rows == len(ALL)
    assert read.schema.names == ["letter", "at", "note"]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"keys": (("a",), ("z",), ("a",))}, "aaaazzz"),
        ({"ranges": ((("a",), ("c",)), (("b",), ("d",)))}, "aaaabbbbc"),
        ({"ranges": ((None, ("b",)), (("y",), None))}, "aaaayzzz"),
        ({"where": "letter IN ('q', 'a') OR note = 'd116'"}, "aaaadq"),
        ({"where": "at >= 200", "keys": (("b",),)}, "bbb"),
        ({"where": "letter > 'zz'"}, ""),
        ({"ranges": ((("b",), ("b",)),)}, ""),
    ],
)
def test_keys_ranges_and_conditions_choose_the_rows(
    world: World, asked: dict[str, Any], expected: str
) -> None:
    table = filled(world)
    world.export(table, to="out", **asked)
    world.settle()
    assert exported(world) == expected


def test_columns_are_the_requested_ones_in_the_requested_order(world: World) -> None:
    table = filled(world)
    world.export(table, to="out", columns=("note", "at"), keys=(("q",),))
    world.export(table, to="alone", columns=("note",))
    world.settle()
    assert rows_of(world) == [{"note": "q3", "at": 3}]
    assert [list(row) for row in rows_of(world)] == [["note", "at"]]
    assert [r["note"] for r in rows_of(world, "alone")] == [r["note"] for r in world.rows(table)]


def test_an_empty_table_has_a_manifest_without_files(world: World) -> None:
    table = world.create()
    world.export(table, to="out")
    world.settle()
    assert manifest(world).files == ()
    assert rows_of(world) == []


def test_without_a_prefix_each_export_has_one_of_its_own(world: World) -> None:
    table = filled(world)
    first, second = world.export(table), world.export(table)
    world.settle()
    assert exported(world, f"letters/{first}") == exported(world, f"letters/{second}") == ALL


def test_a_task_with_many_rows_is_cut_into_files_between_row_keys(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.files.results.ROW_GROUP_ROWS", 1)
    table = filled(world, splits=[])
    world.export(table, to="out")
    monkeypatch.setattr(stage, "FILE_BYTES", 1)
    (message,) = (m.message for m in world.queue if isinstance(m.message, ExportTask))
    assert stage.export_rows(world.services, message) == []
    assert rows_of(world) == world.rows(table)
    files = [
        "".join(pq.read_table(world.folder / "results" / "out" / file.name)["letter"].to_pylist())
        for file in manifest(world).files
    ]
    assert [set(text) for text in files] == [{letter} for letter in sorted(set(ALL))]


def test_a_task_without_time_goes_on_by_another_message(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dormouse.files.results.ROW_GROUP_ROWS", 1)
    monkeypatch.setattr(stage, "STEP_SECONDS", 0)
    table = filled(world, splits=[])
    world.export(table, to="out")
    messages = [m.message for m in world.queue if isinstance(m.message, ExportTask)]
    rounds = 0
    while messages:
        (message,) = messages
        sent = stage.export_rows(world.services, message)
        messages = [m.message for m in sent if isinstance(m.message, ExportTask)]
        rounds += 1
    assert rounds == len(set(ALL))
    assert rows_of(world) == world.rows(table)


def test_rules_and_ages_are_those_of_when_it_began(world: World) -> None:
    table = filled(world, filters="where(letter <> 'a')")
    world.export(table, to="out")
    world.tables.change(table.id, lambda t: t.with_settings({}, {}))
    world.clock.advance(seconds=50)
    world.settle()
    assert exported(world) == ALL.replace("a", "")


def test_a_version_and_a_time_before_can_be_exported(world: World) -> None:
    table = filled(world)
    version, time_ms = world.state(table).version, world.clock.now_ms()
    world.clock.advance(seconds=1)
    world.drop("letters/late.parquet", letters("late", at=900))
    world.settle()
    time = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC).isoformat()
    world.export(table, to="version", as_of=version)
    world.export(table, to="time", as_of=time)
    world.settle()
    assert exported(world, "version") == exported(world, "time") == ALL
    assert manifest(world, "version").version == manifest(world, "time").version == version
    with pytest.raises(NotFoundError):
        world.export(table, as_of=version + 1000)
    with pytest.raises(NotFoundError, match="no tag 'soon'"):
        world.export(table, as_of="soon")
    with pytest.raises(InvalidRequestError, match="'very soon'"):
        world.export(table, as_of="very soon")


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"to": "../away"}, "no prefix"),
        ({"to": "/root"}, "no prefix"),
        ({"to": "s3://bucket/x"}, "no prefix"),
        ({"columns": ("nothing",)}, "nothing"),
        ({"where": "nothing = 1"}, "nothing"),
        ({"where": "letter = 'a' OR"}, "ends too early"),
        ({"keys": ((1,),)}, "key 1"),
        ({"ranges": ((("b",), ("a",)),)}, "range 1 ends"),
        ({"ranges": (((), None),)}, "range 1 has 0 parts"),
        ({"limit": 5}, "an export has no limit"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_kept(
    world: World, asked: dict[str, Any], reason: str
) -> None:
    table = filled(world)
    with pytest.raises(InvalidRequestError, match=reason):
        world.export(table, **asked)
    assert not world.queue
    assert_forgotten(world, table)


def test_a_prefix_with_something_below_is_left_alone(world: World) -> None:
    table = filled(world)
    world.results.put("out/part-00000-000.parquet", b"somebody's")
    with pytest.raises(AlreadyExistsError, match="out"):
        world.export(table, to="out/")
    world.export(table, to="out/sub")
    world.settle()
    assert exported(world, "out/sub") == ALL


def test_exported_files_that_are_ingested_again_are_the_same_rows(world: World) -> None:
    table = filled(world)
    world.export(table, to="out")
    world.settle()
    restored = world.create("restored", splits=[("k",)])
    for file in manifest(world).files:
        body = (world.folder / "results" / "out" / file.name).read_bytes()
        world.drop(f"restored/{file.name}", body)
    world.settle()
    assert world.rows(restored) == world.rows(table)


def test_files_hold_sorted_rows_in_plain_parquet(world: World) -> None:
    table = filled(world, splits=[])
    world.export(table, to="out")
    world.settle()
    (file,) = manifest(world).files
    read = pq.ParquetFile(world.folder / "results" / "out" / file.name)
    assert [c.column_index for c in read.metadata.row_group(0).sorting_columns] == [0, 1]
    assert read.schema_arrow == pa.schema(
        [
            pa.field("letter", pa.string(), nullable=False),
            pa.field("at", pa.int64(), nullable=False),
            pa.field("note", pa.string()),
        ]
    )
