from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dormouse.client.table import TableHandle
from dormouse.errors import (
    AlreadyExistsError,
    InvalidRequestError,
    NotFoundError,
    RefusedSourceError,
    TimedOutError,
)
from dormouse.features import purge_rows
from dormouse.messages.stages import GarbageCandidates, OutboundMessage, PurgeStep, SparkRunChanged
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse.tables.table import Table
from tests.support.instances import InMemory
from tests.support.world import LETTERS, World, letters, letters_file


@pytest.fixture
def memory(tmp_path: Path) -> InMemory:
    return InMemory.over(World(tmp_path))


def letters_table(text: str) -> pa.Table:
    schema = pa.schema([("letter", pa.string()), ("at", pa.int64()), ("note", pa.string())])
    return pa.Table.from_pylist(letters(text), schema)


def write_letters(path: Path, text: str) -> Path:
    path.write_bytes(letters_file(letters(text)))
    return path


def test_rows_given_in_memory_come_back_sorted(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS, split_points=["m"])
    table.ingest(letters_table("zebra")).wait()
    assert [row["letter"] for row in table.query().read_all().to_pylist()] == list("aberz")
    assert table.count() == 5


def test_ranges_are_half_open_and_overlaps_give_no_row_twice(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    table.ingest(letters_table("abcdefg")).wait()
    found = table.query([("b", "d"), ("c", "e")], exact="g", columns=["letter"]).read_all()
    assert found.to_pydict() == {"letter": list("bcdg")}
    assert table.count(exact=[]) == 0
    assert table.count([("c", "c")]) == 0
    assert table.query([(None, "c")], limit=1).read_all().num_rows == 1


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda table: table.query(where=5), "condition"),
        (lambda table: table.delete(None), "where"),
        (lambda table: table.purge(5), "where"),
        (lambda table: table.export(where=5), "where"),
        (lambda table: table.export(to=0), "to"),
        (lambda table: table.tag(1, object()), "object"),
        (lambda table: table.ingest("x" * 5000), "xxx"),
    ],
)
def test_a_parameter_of_another_type_is_refused_by_name(
    call: Callable[[TableHandle], object], name: str, memory: InMemory
) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    table.ingest(letters_table("ab")).wait()
    with pytest.raises(InvalidRequestError, match=name):
        call(table)
    assert table.count() == 2


def test_a_text_is_no_list_and_a_pair_no_range(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    table.ingest(letters_table("ab")).wait()
    for ranges in (("a", "f"), ("ab", "cd"), [("a",)], ["ab"], 5):
        with pytest.raises(InvalidRequestError, match="list of pairs of keys"):
            table.query(ranges)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequestError, match="list of pairs of keys"):
            table.export(ranges)  # type: ignore[arg-type]
    for columns in ("letter", "carrier", letters_table("ab")):
        with pytest.raises(InvalidRequestError, match="columns is a list"):
            table.query(columns=columns)
        with pytest.raises(InvalidRequestError, match="columns is a list"):
            table.export(columns=columns)
    with pytest.raises(InvalidRequestError, match="row_keys is a list"):
        memory.instance.create_table("more", "letter: string", row_keys="letter")
    with pytest.raises(InvalidRequestError, match="drop is a list"):
        table.alter(drop="note")
    for fields in ({"n": "string"}, [("n", "string")], "n:string"):
        with pytest.raises(InvalidRequestError, match="add is a list of columns"):
            table.alter(add=fields)  # type: ignore[arg-type]
    assert table.count() == 2 and table.latest().schema == table.schema


@pytest.mark.parametrize(
    ("keys", "rows"),
    [
        ("x", 3),
        (("x", "y"), 1),
        ([("x", "y"), "z"], 4),
        (["x", "z"], 6),
        ({"a": "x", "b": "z"}, 1),
        (np.array(["z"]), 3),
        ({"z"}, 3),
    ],
    ids=str,
)
def test_keys_to_delete_are_one_or_many_as_in_a_query(
    memory: InMemory, keys: Any, rows: int
) -> None:
    table = memory.instance.create_table("pairs", "a:string, b:string", row_keys=["a", "b"])
    pairs = [(a, b) for a in "xyz" for b in "xyz"]
    table.ingest(pa.table(dict(zip("ab", zip(*pairs, strict=True), strict=True)))).wait()
    gone = table.query(exact=keys).to_arrow()
    assert gone.num_rows == rows
    table.delete(keys=keys)
    rest = table.query().to_arrow()
    assert sorted(map(tuple, map(dict.values, (rest.to_pylist() + gone.to_pylist())))) == pairs
    table.ingest(gone).wait()
    table.purge(keys=keys).wait()
    assert table.query().to_arrow() == rest


@pytest.mark.parametrize("keys", [(), [()], [], None])
def test_no_key_at_all_deletes_nothing(memory: InMemory, keys: Any) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    table.ingest(letters_table("ab")).wait()
    for remove in (table.delete, table.purge):
        with pytest.raises(InvalidRequestError):
            remove(keys=keys)
    assert table.count() == 2


def test_a_purge_is_proved_in_the_log_that_the_table_has_now(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS, properties={"gc_delay_seconds": 60})
    table.ingest(letters_table("ab")).wait()
    purge = table.purge("note = 'a0'")
    purge.wait()
    table.rebuild()
    memory.sleeper.sleep(3600)
    assert purge.proof().rows == 0
    table.alter(drop=["note"], add=[Field("note", Primitive.STRING, nullable=True)])
    table.ingest(letters_table("a")).wait()
    assert purge.proof().rows == 0 and table.prove_purge("note = 'a0'").rows == 1


def test_a_schema_of_arrow_is_a_schema(memory: InMemory) -> None:
    found = pa.schema([("id", pa.int64()), ("name", pa.string())])
    table = memory.instance.create_table("users", found, row_keys=["id"])
    assert [field.name for field in table.schema.fields] == ["id", "name"]
    with pytest.raises(InvalidRequestError, match="not dict"):
        memory.instance.create_table("more", {"id": "long"})  # type: ignore[arg-type]


def test_a_type_is_written_as_in_a_schema(memory: InMemory) -> None:
    rows = pa.table({"id": [1], "name": [None]})
    create = memory.instance.create_table
    table = create("users", like=rows, row_keys=["id"], types={"name": "string?"})
    name = table.schema.field_named("name")
    assert (name.type, name.nullable) == (Primitive.STRING, True)


def test_an_unknown_column_is_named_before_anything_is_read(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    with pytest.raises(InvalidRequestError, match="'colour'"):
        table.query(columns=["colour"])


@pytest.mark.parametrize("verb", ["table", "delete_table"])
def test_a_mistyped_name_is_refused_as_such_though_another_table_is_damaged(
    memory: InMemory, verb: str
) -> None:
    """The others are looked at for a hint only."""
    memory.instance.create_table("letters", LETTERS)
    broken = memory.world.create("lettuce")
    memory.world.tables.damaged.add(broken.id)
    with pytest.raises(NotFoundError, match="no table 'lettrs'") as refused:
        getattr(memory.instance, verb)("lettrs")
    assert refused.value.hint == "did you mean letters?"


def test_waiting_for_files_reports_why_one_was_refused_after_the_others_are_ingested(
    memory: InMemory, tmp_path: Path
) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    good = write_letters(tmp_path / "good.parquet", "abc")
    bad = tmp_path / "bad.parquet"
    bad.write_text("not Parquet")
    with pytest.raises(RefusedSourceError, match=r"letters/bad.parquet was refused: ."):
        table.ingest([good, bad]).wait()
    assert table.count() == 3
    assert [job.subject for job in table.jobs() if job.state == "refused"] == [
        "letters/bad.parquet"
    ]


def test_nothing_is_uploaded_when_one_of_several_files_is_missing(
    memory: InMemory, tmp_path: Path
) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    good = write_letters(tmp_path / "good.parquet", "abc")
    with pytest.raises(NotFoundError, match=r"missing\.parquet"):
        table.ingest([good, tmp_path / "missing.parquet"])
    assert memory.world.sources.objects == {}


@pytest.mark.parametrize("name", ["rows.xls", "rows.csv.zip", "rows", "rows.gz", "rowscsv"])
def test_nothing_is_uploaded_when_one_of_several_files_is_of_a_kind_that_nobody_reads(
    memory: InMemory, tmp_path: Path, name: str
) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    (folder := tmp_path / "given").mkdir()
    good, bad = folder / "a.csv", folder / name
    for path in (good, bad):
        path.write_text("letter,at,note\na,1,\n")
    for what in ([good, bad], folder):
        with pytest.raises(InvalidRequestError, match=f"'{name}' is of no known format") as caught:
            table.ingest(what)
        assert (
            ".parquet, .arrow, .arrows, .feather, .csv, .tsv, .txt, .json, .jsonl or .ndjson"
            in caught.value.hint
        )
    with pytest.raises(InvalidRequestError, match="no known format"):
        table.ingest(good, name)
    assert memory.world.sources.objects == {}


@pytest.fixture
def hive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with files of one name in folders, and files that are no data; go to it."""
    folder = tmp_path / "hive"
    for number, name in enumerate(["letter=a", "letter=b/at=0"]):
        (folder / name).mkdir(parents=True)
        write_letters(folder / name / "part-0.parquet", "ab"[number])
    (folder / "_SUCCESS").write_text("")
    (folder / "_delta_log").mkdir()
    (folder / "_delta_log" / "0.json").write_text("{}")
    (folder / "letter=a" / ".part-0.parquet.crc").write_text("")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.parametrize(
    "what",
    [
        "hive",
        "hive/**/*.parquet",
        ["hive/letter=a/part-0.parquet", "hive/letter=b/at=0/part-0.parquet"],
        ["../hive/letter=a/part-0.parquet", "./hive/letter=b/at=0/part-0.parquet"],
    ],
)
def test_files_of_one_name_in_different_folders_are_all_ingested(
    memory: InMemory, hive: Path, monkeypatch: pytest.MonkeyPatch, what: Any
) -> None:
    if ".." in what[0]:
        monkeypatch.chdir(hive)
        (hive / "hive").symlink_to(hive)
    table = memory.instance.create_table("letters", LETTERS)
    dropped = table.ingest(what)
    assert [source.key for source in dropped.sources] == [
        "letters/letter=a/part-0.parquet",
        "letters/letter=b/at=0/part-0.parquet",
    ]
    dropped.wait(60)
    assert table.count() == 2


def test_files_of_one_name_in_folders_that_give_no_value_are_named_by_the_paths_given(
    memory: InMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = memory.instance.create_table("letters", LETTERS)
    for name in ("monday", "tuesday"):
        (tmp_path / name).mkdir()
        write_letters(tmp_path / name / "1.parquet", name[0])
    dropped = table.ingest(["monday/1.parquet", "tuesday/1.parquet"])
    dropped.wait(60)
    assert table.count() == 2


def test_one_star_means_one_folder(memory: InMemory, hive: Path) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    (source,) = table.ingest("hive/*/*.parquet").sources
    assert source.key == "letters/letter=a/part-0.parquet"


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("hive/*.csv", r"no file fits 'hive/\*\.csv'"),
        ("nowhere/*.csv", "no file fits"),
        ("hive/_delta_log/*.csv", "no file fits"),
        ("hive/none.csv", "there is no file 'hive/none.csv'"),
    ],
)
def test_a_pattern_or_a_path_of_no_file_is_an_error(
    memory: InMemory, hive: Path, what: str, said: str
) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    with pytest.raises(NotFoundError, match=said) as raised:
        table.ingest(what)
    assert not raised.value.hint.startswith("it is a pipe")
    with pytest.raises(NotFoundError, match="there is no file '/dev/null'") as raised:
        table.ingest(os.devnull)
    assert raised.value.hint.startswith("it is a pipe or a device")


def test_a_file_that_is_given_twice_is_an_error(memory: InMemory, hive: Path) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    file = "hive/letter=a/part-0.parquet"
    with pytest.raises(InvalidRequestError, match="several files are called hive/letter=a/part-0"):
        table.ingest([file, file])
    assert memory.world.sources.objects == {}


def test_pending_counts_down_to_zero_only_when_all_is_done(
    memory: InMemory, tmp_path: Path
) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    assert table.status().pending == 0
    table.ingest([write_letters(tmp_path / f"{i}.parquet", "abc") for i in range(4)])
    assert table.status().pending == 4
    seen: list[int] = []
    table.wait(60, watch=seen.append)
    assert seen[0] == 4
    assert seen[-2:] == [0, 0]
    assert not memory.world.state(table.table).jobs
    status = table.status()
    assert (status.rows, status.shards, status.pending) == (12, 1, 0)


def test_waiting_ends_with_an_error_when_nothing_moves(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    memory.sleeper.asleep = True
    dropped = table.ingest(letters_table("abc"))
    (key,) = (source.key for source in dropped.sources)
    with pytest.raises(TimedOutError, match=rf"not done after 3 seconds: 1 pending \({key}\)"):
        dropped.wait(3)
    with pytest.raises(TimedOutError, match=rf"pending \({key}\)"):
        memory.instance.wait(3)


def test_a_wait_without_patience_ends_well_where_nothing_is_pending(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    table.wait()
    table.wait(0)


def test_a_wait_that_takes_too_long_names_some_of_what_is_pending(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    memory.sleeper.asleep = True
    memory.world.queue.append(OutboundMessage("purges", PurgeStep("t", "p")))
    with pytest.raises(TimedOutError, match=r"1 pending \(messages in purges\)"):
        table.wait(3)
    for name in "abcd":
        table.ingest(letters_table(name), f"{name}.parquet")
    with pytest.raises(TimedOutError, match=r"5 pending \((letters/\w\.parquet, ){3}…\)"):
        table.wait(3)
    export = table.export()
    with pytest.raises(TimedOutError, match=rf"1 pending \({export.id}\)"):
        export.wait(3)


@pytest.mark.parametrize(
    ("message", "pending"),
    [
        (OutboundMessage("purges", PurgeStep("t", "p")), 1),
        (OutboundMessage("spark-runs", SparkRunChanged("r")), 1),
        (OutboundMessage("gc-candidates", GarbageCandidates("t", 0, ("s",))), 0),
    ],
)
def test_a_message_of_work_that_changes_tables_is_waited_for_and_garbage_is_not(
    memory: InMemory, message: OutboundMessage, pending: int
) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    memory.sleeper.asleep = True
    memory.world.queue.append(message)
    assert table.status().pending == pending


def test_rows_that_come_once_a_purge_was_waited_for_stay(
    memory: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge_rows, "LEAST_WAIT_SECONDS", 60)
    table = memory.instance.create_table("letters", LETTERS)
    table.ingest(letters_table("abc")).wait()
    purge = table.purge("letter = 'a'")
    memory.instance.wait()
    assert purge.progress() is None
    table.ingest(letters_table("a")).wait()
    memory.sleeper.sleep(600)
    assert table.count(where="letter = 'a'") == 1


def test_a_file_refused_for_want_of_its_table_is_not_waited_for(memory: InMemory) -> None:
    source = memory.world.sources.drop("letters/early.parquet", letters_file(letters("a")))
    memory.world.notify(source)
    assert [job.subject for job in memory.instance.jobs()] == ["letters/early.parquet"]
    table = memory.instance.create_table("letters", LETTERS)
    assert table.status().pending == 0
    (refused,) = [job for job in table.jobs() if job.kind == "ingest"]
    assert "there is no table" in refused.reason


def test_a_file_refused_for_want_of_its_table_is_ingested_when_dropped_again(
    memory: InMemory, tmp_path: Path
) -> None:
    path = write_letters(tmp_path / "early.parquet", "abc")
    memory.world.notify(memory.world.sources.drop("letters/early.parquet", path.read_bytes()))
    table = memory.instance.create_table("letters", LETTERS)
    table.ingest(path).wait()
    assert table.count() == 3


def test_tables_are_created_once_listed_and_deleted(memory: InMemory) -> None:
    memory.instance.create_table("letters", LETTERS, {"compaction_files": 5})
    with pytest.raises(AlreadyExistsError):
        memory.instance.create_table("letters", LETTERS)
    (table,) = memory.instance.tables()
    assert table.table.properties.compaction_files == 5
    memory.instance.delete_table("letters")
    assert memory.instance.tables() == []
    with pytest.raises(NotFoundError):
        memory.instance.table("letters")
    with pytest.raises(NotFoundError, match="was deleted"):
        table.query()


def test_an_offline_table_ingests_and_answers_but_is_not_compacted(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    memory.instance.set_online("letters", False)
    for _ in range(4):
        table.ingest(letters_table("abc")).wait()
    memory.instance.wait()
    assert table.status().shards == 4
    assert table.count() == 12
    memory.instance.set_online("letters", True)
    memory.instance.wait()
    assert table.status().shards == 1


def test_a_handle_opened_before_an_alteration_queries_the_table_as_it_is(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    table.ingest(letters_table("ab")).wait()
    count = Field("count", Primitive.LONG, nullable=True)
    newer = table.alter(add=[count], rename={"note": "remark"})
    assert [field.name for field in newer.schema.values] == ["remark", "count"]
    expected = [
        {"letter": c, "at": i, "remark": f"{c}{i}", "count": None} for i, c in enumerate("ab")
    ]
    assert table.query().read_all().to_pylist() == newer.query().read_all().to_pylist() == expected
    with pytest.raises(InvalidRequestError, match="it was renamed to 'remark'"):
        table.query(columns=["note"])


def test_an_alteration_of_a_deleted_table_is_refused(memory: InMemory) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    memory.instance.delete_table("letters")
    with pytest.raises(NotFoundError):
        table.alter(drop=["note"])


def test_what_an_earlier_table_of_the_name_had_is_not_pending_for_ever(memory: InMemory) -> None:
    earlier = memory.instance.create_table("passing", LETTERS)
    memory.world.clock.advance(seconds=10)
    rows = {"letter": ["a"], "at": pa.array([1], pa.int64()), "note": ["x"]}
    earlier.ingest(pa.table(rows)).wait()
    memory.instance.delete_table("passing")
    assert memory.instance.create_table("passing", LETTERS).pending() == 0


def test_a_status_asks_the_registry_once(memory: InMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    table = memory.instance.create_table("letters", LETTERS)
    tables, asked = table.services.tables, []
    get = tables.get

    def watched(table_id: str) -> Table | None:
        asked.append(table_id)
        return get(table_id)

    monkeypatch.setattr(tables, "get", watched)
    assert table.status().rows == 0
    assert asked == [table.table.id]
