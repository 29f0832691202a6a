"""Subjects of encrypted columns: what is forgotten is null everywhere, for good; all else stays."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from dormouse.arrow.sealing import ColumnKeys
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.encryption import FILES, MARK_BYTES, subject_name
from dormouse.errors import (
    CorruptDataError,
    ForbiddenError,
    InvalidRequestError,
    RefusedSourceError,
)
from dormouse.features.administration import administer
from dormouse.messages.requests import ForgetSubjects
from dormouse.schema.schema import Field
from dormouse.schema.types import Primitive
from dormouse_cli.main import app
from tests.support.plaintext import places_of

SCHEMA = "id:long, who:int, name:string?, ssn:string?, pay:long?"
SECRET = b"Quokka"
SETTINGS: dict[str, object] = {"encrypted_columns": "ssn, pay:pay", "subject_column": "who"}
PEOPLE = 7


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "mice"


@pytest.fixture
def mice(root: Path) -> Iterator[Instance]:
    with Instance.open(root, background=False) as instance:
        yield instance


@pytest.fixture
def table(mice: Instance) -> TableHandle:
    return mice.create_table("people", SCHEMA, SETTINGS, row_keys=["id"])


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "who": pa.array([n % PEOPLE for n in numbers], pa.int32()),
            "name": [f"name{n}" for n in numbers],
            "ssn": [None if n % 5 == 3 else f"Quokka{n}" for n in numbers],
            "pay": pa.array([n * 100 for n in numbers], pa.int64()),
        }
    )


def seen(first: int, count: int, *forgotten: int) -> list[dict[str, object]]:
    """Return rows as they are read once some subjects are forgotten."""
    return [
        {**row, "ssn": None, "pay": None} if row["who"] in forgotten else row
        for row in rows(first, count).to_pylist()
    ]


def keys_of(table: TableHandle, *people: object) -> list[bytes]:
    """Return the keys that there are of some subjects."""
    names = [subject_name(table.table.id, each) for each in people]
    found = table.services.keys.subjects.made(table.table.id, names)
    return [key.key for key in found.values() if key.key]


def test_a_subject_that_is_forgotten_reads_as_null_at_each_door_and_in_each_version(
    mice: Instance, table: TableHandle, root: Path
) -> None:
    table.ingest(rows(0, 40)).wait()
    table.tag(table.state().version, "kept")
    early = table.state().version
    table.ingest(rows(40, 30)).wait()
    assert table.query().to_arrow().to_pylist() == rows(0, 70).to_pylist()
    assert table.forget([3]) == 1
    wanted = seen(0, 70, 3)
    assert table.query().to_arrow().to_pylist() == wanted
    assert table.query(exact=3, columns=["pay", "name"]).to_arrow().to_pylist() == [
        {"pay": None, "name": "name3"}
    ]
    for version in (early, "kept"):
        assert table.query(as_of=version).to_arrow().to_pylist() == wanted[:40]
    assert mice.sql("SELECT * FROM people ORDER BY id").to_arrow().to_pylist() == wanted
    counted = mice.sql("SELECT who, count(*) AS n, count(pay) AS p FROM people GROUP BY 1")
    assert {row["who"] for row in counted.to_arrow().to_pylist() if row["p"] == 0} == {3}
    found = mice.sql("SELECT id FROM people WHERE pay IS NULL ORDER BY id").to_arrow()
    assert found["id"].to_pylist() == [n for n in range(70) if n % PEOPLE == 3]
    changed = table.changes(since=0).to_arrow().sort_by("id").to_pylist()
    assert [row["ssn"] for row in changed] == [row["ssn"] for row in wanted]
    assert table.count() == 70
    table.restore(early)
    assert table.latest().query().to_arrow().to_pylist() == wanted[:40]


def test_no_byte_of_an_instance_has_a_value_or_a_key_that_was_forgotten(
    mice: Instance, table: TableHandle, root: Path
) -> None:
    """By all that happens to rows, in an order that differs from seed to seed."""
    draw = random.Random(7)
    mice.set_properties("people", {"compaction_files": 3, "split_threshold_rows": 200})
    known, number, forgotten = 60, 1, set[int]()
    table.ingest(rows(0, 60)).wait()

    def ingest() -> None:
        nonlocal known
        more = rows(known, 90)
        is_there = pc.invert(pc.is_in(more["who"], pa.array([*forgotten], pa.int32())))
        table.ingest(more.filter(is_there)).wait()
        known += 90

    def rotate() -> None:
        nonlocal number
        number += 1
        mice.set_properties("people", {"data_key": number})
        mice.compact("people", everything=True)

    gone: list[bytes] = []
    steps = [
        ingest,
        rotate,
        lambda: mice.compact("people", everything=True),
        lambda: table.purge(keys=[draw.randrange(known)]),
        lambda: table.export().wait(),
        mice.wait,
    ]
    for who in (2, 5, 0, 4):
        gone += keys_of(table, who)
        assert len(gone[-1]) == 32
        for step in draw.sample(steps, 4):
            step()
        table.forget([who])
        forgotten.add(who)
        for step in (*draw.sample(steps, 4), lambda: None):
            step()
            assert places_of(SECRET, root) == []
            assert not [at for key in gone for at in places_of(key, root)]
            assert not [at for key in gone for at in places_of(key.hex().encode(), root)]
    mice.wait()
    table.rebuild()
    wanted = {row["id"]: row for row in seen(0, known, *forgotten)}
    found = table.latest().query().to_arrow().to_pylist()
    assert len(found) > known // 2 and all(row == wanted[row["id"]] for row in found)


def test_rows_that_come_again_have_another_key(mice: Instance, table: TableHandle) -> None:
    table.ingest(rows(0, 20)).wait()
    mice.set_properties("people", {"compaction_files": 99})
    assert (table.forget([3, 6]), table.forget([3, 6])) == (2, 0)
    table.ingest(rows(20, 20)).wait()
    wanted = [*seen(0, 20, 3, 6), *seen(20, 20)]
    assert table.query().to_arrow().to_pylist() == wanted
    mice.compact("people", everything=True)
    mice.wait()
    assert len(table.shards()) == 1
    assert table.query().to_arrow().to_pylist() == wanted
    assert table.forget([3]) == 1
    assert table.query().to_arrow().to_pylist() == [*seen(0, 20, 3, 6), *seen(20, 20, 3)]


def test_a_request_that_is_delivered_again_forgets_no_later_key(
    mice: Instance, table: TableHandle
) -> None:
    table.ingest(rows(0, 10)).wait()
    request = ForgetSubjects("once", "people", (3,))
    administer(mice.services, request)
    table.ingest(rows(10, 10)).wait()
    administer(mice.services, request)
    assert table.query().to_arrow().to_pylist() == [*seen(0, 10, 3), *seen(10, 10)]


def test_a_text_is_one_subject_and_no_list_of_its_letters(mice: Instance) -> None:
    table = mice.create_table("people", SCHEMA.replace("int", "string"), SETTINGS, row_keys=["id"])
    table.ingest(rows(0, 9).set_column(1, "who", [["a", "b", "ab"] * 3])).wait()
    for subjects in ("ab", b"ab", 7, uuid.uuid4(), {"ab": 1}, None):
        with pytest.raises(InvalidRequestError, match="subjects is a list"):
            table.forget(subjects)  # type: ignore[arg-type]
    assert table.query().to_arrow().column("pay").null_count == 0
    assert table.forget({"ab"}) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "strange", [None, True, 10**40, 0.5, 1e308, "", "x", "\0", "9" * 5000, [], [1], {"a": 1}]
)
def test_what_is_no_subject_is_refused_and_nobody_else_forgotten(
    mice: Instance, table: TableHandle, strange: object
) -> None:
    table.ingest(rows(0, 10)).wait()
    with pytest.raises(InvalidRequestError, match=r"subjects\[1\]"):
        administer(mice.services, ForgetSubjects("r", "people", (3, strange)))
    assert table.query().to_arrow().to_pylist() == rows(0, 10).to_pylist()


def test_a_greater_data_key_encrypts_what_is_left_anew(
    mice: Instance, table: TableHandle, root: Path
) -> None:
    for first in (0, 20):
        table.ingest(rows(first, 20)).wait()
    table.forget([1])
    mice.set_properties("people", {"data_key": 2})
    mice.compact("people", everything=True)
    mice.wait()
    cells = stored(table, root)
    heads = {cell[:4] for cell in cells if cell}
    assert heads == {(2**31 + 2).to_bytes(4, "big")}
    assert mice.table("people").query().to_arrow().to_pylist() == seen(0, 40, 1)
    nulls = [row["ssn"] for row in seen(0, 40, 1)].count(None)
    assert cells.count(None) == nulls, "nothing is kept of the forgotten"


def stored(table: TableHandle, root: Path) -> list[bytes | None]:
    """Return what a table has in a column: an export has it as it is."""
    table.latest().export(to="stored").wait()
    cells: list[bytes | None] = pq.read_table(
        next((root / "exports" / "stored").rglob("*.parquet"))
    )["ssn"].to_pylist()
    return cells


def test_an_export_has_values_that_only_keys_of_the_instance_open(
    table: TableHandle, root: Path
) -> None:
    table.ingest(rows(0, 30)).wait()
    keys = keys_of(table, *range(PEOPLE))
    cells = [cell for cell in stored(table, root) if cell]
    assert {len(cell) for cell in cells} <= {4 + MARK_BYTES + 12 + 4 + 16 + n for n in (7, 8)}
    for path in (root / "exports").rglob("*"):
        assert path.is_dir() or not any(key in path.read_bytes() for key in keys)
    assert places_of(SECRET, root) == []


def test_who_has_no_keys_reads_neither_values_nor_whose_were_forgotten(
    table: TableHandle, root: Path
) -> None:
    table.ingest(rows(0, 30)).wait()
    table.forget([1])
    with pytest.raises(ForbiddenError, match="stored as files"):
        table.query(run="remote").to_arrow()
    column = table.schema.field_named("ssn")
    keys = ColumnKeys(FILES, table.table.schema, table.table.id)
    with pytest.raises(ForbiddenError):
        keys.decrypted(pa.record_batch({column.name: pa.array([stored(table, root)[1]])}))
    root.with_name("mice.keys").rename(root.with_name("elsewhere"))
    with pytest.raises(ForbiddenError, match="key 'default'"):
        table.query(columns=["ssn"])
    assert table.query(columns=["who"]).to_arrow().num_rows == 30
    assert table.forget([2]) == 1, "the data key is not needed to forget"


def test_a_key_that_is_lost_is_no_null(mice: Instance, table: TableHandle, root: Path) -> None:
    table.ingest(rows(0, 20)).wait()
    mice.services.keys.subjects.delete(table.table.id)
    with Instance.open(root, background=False) as later:
        people = later.table("people")
        with pytest.raises(CorruptDataError, match="lost"):
            people.query().to_arrow()
        assert people.query(columns=["id"]).to_arrow().num_rows == 20
        assert people.forget([*range(PEOPLE)]) == 0
        assert people.query().to_arrow().to_pylist() == seen(0, 20, *range(PEOPLE))


def test_a_row_must_say_whose_it_is(mice: Instance, table: TableHandle, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,who,name,ssn,pay\n1,1,a,x,1\n2,,b,y,2\n")
    with pytest.raises(RefusedSourceError, match="line 3.*'who'"):
        table.ingest(path).wait()
    path.write_text("id,name,ssn,pay\n1,a,x,1\n")
    with pytest.raises(RefusedSourceError, match="who"):
        table.ingest(path).wait()
    assert table.count() == 0


def test_rows_without_values_make_no_keys(mice: Instance, table: TableHandle) -> None:
    bare = rows(0, 14).set_column(3, "ssn", pa.nulls(14, pa.string()))
    table.ingest(bare.set_column(4, "pay", pa.nulls(14, pa.int64()))).wait()
    assert table.forget([*range(PEOPLE)]) == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"subject_column": "nobody"}, "no column 'nobody'"),
        ({"subject_column": "ssn"}, "encrypted itself"),
        ({"subject_column": "name"}, "can be null"),
        ({"subject_column": "at"}, "timestamp"),
        ({"encrypted_columns": "must"}, "must cannot be null"),
        ({"encrypted_columns": ""}, "no column is encrypted"),
    ],
)
def test_what_cannot_be_a_subject_is_refused_when_the_table_is_made(
    mice: Instance, settings: dict[str, object], reason: str
) -> None:
    schema = "id:long, who:int, at:timestamp, name:string?, ssn:string?, must:string"
    wanted = {"encrypted_columns": "ssn", "subject_column": "who", **settings}
    with pytest.raises(InvalidRequestError, match=reason):
        mice.create_table("people", schema, wanted, row_keys=["id"])


def test_columns_change_and_subjects_stay_who_they_are(
    mice: Instance, table: TableHandle, root: Path
) -> None:
    table.ingest(rows(0, 20)).wait()
    with pytest.raises(InvalidRequestError, match="cannot change"):
        mice.set_properties("people", {"subject_column": "id"})
    with pytest.raises(InvalidRequestError, match="whose"):
        table.alter(drop=["who"])
    table.alter(rename={"who": "person"}, types={"who": "long"})
    table = table.latest()
    more = rows(20, 20).rename_columns(["id", "person", "name", "ssn", "pay"])
    table.ingest(more).wait()
    assert table.forget([3]) == 1
    found = table.query(columns=["ssn"]).to_arrow()["ssn"].to_pylist()
    assert found == [row["ssn"] for row in seen(0, 40, 3)]
    for wrong in ("three", 3.5):
        with pytest.raises(InvalidRequestError, match="person"):
            table.forget([wrong])  # type: ignore[list-item]
    with pytest.raises(InvalidRequestError, match="no subject"):
        table.forget([])


def test_a_table_whose_star_takes_all_has_its_subject_in_plain(mice: Instance, root: Path) -> None:
    settings = {"encrypted_columns": "*", "subject_column": "who"}
    table = mice.create_table("every", "id:long, who:uuid, a:string?", settings, row_keys=["id"])
    people = [uuid.UUID(int=n) for n in range(3)]
    table.alter(add=[Field("b", Primitive.STRING, True)])
    frame = {"id": [0, 1, 2], "who": [p.bytes for p in people], "a": ["Quokka"] * 3}
    frame["who"] = pa.array(frame["who"], pa.binary(16))  # type: ignore[assignment]
    table.latest().ingest(pa.table({**frame, "b": ["Quokka"] * 3})).wait()
    assert table.forget([str(people[1])]) == 1
    found = table.latest().query(columns=["a", "b"]).to_arrow().to_pylist()
    assert [row["a"] == row["b"] == "Quokka" for row in found] == [True, False, True]
    mice.reinitialise_table("every", schema=table.latest().schema)
    mice.wait()
    again = mice.table("every")
    again.ingest(pa.table({**frame, "b": ["Quokka"] * 3})).wait()
    assert again.forget([people[2]]) == 1
    assert places_of(SECRET, root) == []
    found = mice.table("every").query(columns=["a"]).to_arrow()["a"].to_pylist()
    assert found == ["Quokka", "Quokka", None]


def test_latest_rows_change_hands_and_deleted_ones_make_no_keys(mice: Instance, root: Path) -> None:
    settings = {**SETTINGS, "keep": "latest"}
    table = mice.create_table("kept", SCHEMA, settings, row_keys=["id"])
    table.ingest(rows(0, 14)).wait()
    moved = rows(0, 2).set_column(1, "who", pa.array([5, 5], pa.int32()))
    table.ingest(moved).wait()
    table.delete(keys=pa.table({"id": [2]}))
    assert table.forget([0]) == 1
    found = {row["id"]: row["ssn"] for row in table.query().to_arrow().to_pylist()}
    assert found.keys() == {*range(14)} - {2}
    assert (found[0], found[7], found[1]) == ("Quokka0", None, "Quokka1")
    assert table.forget([0, *range(100, 103)]) == 0
    mice.compact("kept", everything=True)
    mice.wait()
    again = {row["id"]: row["ssn"] for row in table.query().to_arrow().to_pylist()}
    assert again == found


def test_a_table_of_subjects_is_not_copied(mice: Instance, table: TableHandle, root: Path) -> None:
    table.ingest(rows(0, 10)).wait()
    with (
        Instance.open(root.with_name("other"), background=False) as other,
        pytest.raises(InvalidRequestError, match="cannot be copied"),
    ):
        other.copy_table(table)
    with Instance.open(root.with_name("other"), background=False) as other:
        assert not [*other.services.storage.folders()]


def test_a_table_that_is_deleted_leaves_no_keys(
    mice: Instance, table: TableHandle, root: Path
) -> None:
    table.ingest(rows(0, 10)).wait()
    keys = keys_of(table, *range(PEOPLE))
    mice.delete_table("people")
    mice.wait()
    assert not [at for key in keys for at in places_of(key, root)]


def test_a_table_without_subjects_forgets_nobody(mice: Instance) -> None:
    plain = mice.create_table("plain", "id:long, a:string?", row_keys=["id"])
    with pytest.raises(InvalidRequestError, match="no column that says whose"):
        plain.forget([1])


def test_subjects_are_forgotten_by_the_command(
    mice: Instance, table: TableHandle, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.ingest(rows(0, 20)).wait()
    monkeypatch.setenv("DORMOUSE_INSTANCE", str(root))
    verb = ["table", "forget", "people", "--subject", "3", "--subject", "4"]
    asked = CliRunner().invoke(app, verb, input="n\n")
    assert asked.exit_code == 1 and "Forget the keys of 2 subjects" in asked.stderr
    done = CliRunner().invoke(app, [*verb, "--force"])
    assert done.exit_code == 0 and "forgot 2 keys of 2 subjects" in done.stderr
    again = CliRunner().invoke(app, [*verb, "--force"])
    assert again.exit_code == 0 and "forgot 0 keys of" in again.stderr
    read = CliRunner().invoke(app, ["query", "people", "--key", "id=3", "--format", "json"])
    assert '"ssn":null' in read.stdout.replace(" ", "")
    wrong = CliRunner().invoke(app, ["table", "forget", "people", "--subject", "x", "--force"])
    assert wrong.exit_code == 4 and "who" in wrong.stderr
