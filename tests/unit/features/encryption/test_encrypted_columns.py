"""Encrypted columns: nothing of an instance has their values, and who has the key reads them."""

from __future__ import annotations

import base64
import datetime as dt
import json
import random
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dormouse.arrow.sealing import ColumnKeys, check_encrypted
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.encryption import decrypted_once, derived_key
from dormouse.errors import (
    CorruptDataError,
    DormouseError,
    ForbiddenError,
    InvalidRequestError,
    InvariantError,
    RefusedSourceError,
)
from dormouse.files.loader import loader_of
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import DecimalType, Primitive
from dormouse.shards.footer import METADATA_KEY
from dormouse.stored.paths import shard_path
from tests.support.plaintext import places_of

SCHEMA = "id:long, name:string?, ssn:string?, pay:decimal(10,2)?, born:date?, ok:boolean?"
SECRET = b"Quokka"
"""What is in each value of the column ssn, and nowhere else."""
SETTINGS: dict[str, object] = {"encrypted_columns": "ssn, pay:pay, born, ok:pay"}
EVERY: dict[str, object] = {"encrypted_columns": "*"}


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
            "name": [f"name{n}" for n in numbers],
            "ssn": [None if n % 7 == 3 else f"Quokka{n}" for n in numbers],
            "pay": pa.array([Decimal(n) / 100 for n in numbers], pa.decimal128(10, 2)),
            "born": pa.array([dt.date(1990, 1, 1) + dt.timedelta(n % 999) for n in numbers]),
            "ok": [None if n % 5 == 2 else n % 2 == 0 for n in numbers],
        }
    )


def as_csv(folder: Path, name: str, first: int, count: int) -> Path:
    path = folder / name
    lines = [
        ",".join("" if cell is None else str(cell) for cell in row.values())
        for row in rows(first, count).to_pylist()
    ]
    path.write_text("id,name,ssn,pay,born,ok\n" + "\n".join(lines) + "\n")
    return path


def take_keys(root: Path) -> Path:
    return root.with_name("mice.keys").rename(root.with_name("elsewhere"))


def test_what_is_written_is_read_back_at_each_door(
    mice: Instance, table: TableHandle, tmp_path: Path
) -> None:
    table.ingest(rows(0, 40)).wait()
    table.ingest(as_csv(tmp_path, "a.csv", 40, 40)).wait()
    wanted = pa.concat_tables([rows(0, 80)]).to_pylist()
    assert table.query().to_arrow().to_pylist() == wanted
    assert table.query(exact=50, columns=["ok", "ssn"]).to_arrow().to_pylist() == [
        {"ok": wanted[50]["ok"], "ssn": "Quokka50"}
    ]
    assert mice.sql("SELECT * FROM people ORDER BY id").to_arrow().to_pylist() == wanted
    words = mice.sql("SELECT id FROM people WHERE has(ssn, 'quokka7')").to_arrow()
    equal = mice.sql("SELECT id FROM people WHERE ssn = 'Quokka7'").to_arrow()
    assert words == equal and len(words)
    found = mice.sql("SELECT id FROM people WHERE ssn = 'Quokka7' AND pay > 0 LIMIT 3")
    assert found.to_arrow().to_pylist() == [{"id": 7}]
    counted = mice.sql("SELECT count(*) AS n, count(ssn) AS s FROM people").to_arrow().to_pylist()
    assert counted == [{"n": 80, "s": sum(row["ssn"] is not None for row in wanted)}]
    assert table.schema.field_named("pay").type == DecimalType(10, 2)
    assert table.query().schema.field("pay").type == pa.decimal128(10, 2)


def test_bytes_are_compared_as_values_and_not_as_they_are_stored(mice: Instance) -> None:
    table = mice.create_table("raw", "id:long, v:bytes?", EVERY, row_keys=["id"])
    table.ingest(pa.table({"id": [1, 2], "v": [b"Quokka1", b"Quokka2"]})).wait()
    table.delete(keys=[1])  # so that rows are left out where they are read
    found = mice.sql("SELECT id FROM raw WHERE v = 'Quokka2'::BLOB").to_arrow()
    assert found.to_pylist() == [{"id": 2}]


def test_without_the_key_a_column_is_refused_and_the_others_go_on(
    mice: Instance, table: TableHandle, root: Path
) -> None:
    table.ingest(rows(0, 40)).wait()
    take_keys(root)
    for refused in (
        lambda: table.query(),
        lambda: table.query(columns=["ssn"]),
        lambda: mice.sql("SELECT id FROM people WHERE ssn = 'Quokka1'").to_arrow(),
        lambda: table.changes(since=0).to_arrow(),
    ):
        with pytest.raises(ForbiddenError, match="ssn.*key 'default'"):
            refused()
    assert table.query(columns=["id", "name"]).to_arrow().num_rows == 40
    assert mice.sql("SELECT max(name) FROM people").to_arrow().num_rows == 1
    assert table.count() == 40


def test_nothing_is_ingested_without_the_key_and_nothing_lost(
    mice: Instance, table: TableHandle, root: Path, tmp_path: Path
) -> None:
    hidden = take_keys(root)
    with pytest.raises(ForbiddenError, match="no key 'default'"):
        table.ingest(rows(0, 4))
    with pytest.raises(InvalidRequestError, match="no key 'default'"):
        mice.set_properties("people", {"data_key": 2})  # by a key that nobody else has
    assert not root.with_name("mice.keys").exists()
    assert table.count() == 0
    hidden.rename(root.with_name("mice.keys"))
    table.ingest(rows(0, 4)).wait()
    assert table.count() == 4


def test_no_byte_of_an_instance_has_a_value(
    mice: Instance, table: TableHandle, root: Path, tmp_path: Path
) -> None:
    """By all that happens to rows, in an order that differs from seed to seed."""
    draw = random.Random(20)
    small = {"split_threshold_rows": 400, "compaction_files": 3}
    mice.set_properties("people", {**small, "iceberg": "on", "bloom_columns": "name"})
    known, numbers = 0, count(2)

    def ingest_frame() -> None:
        nonlocal known
        more = draw.choice([3, 300])
        table.ingest(rows(known, more)).wait()
        known += more

    def ingest_file() -> None:
        nonlocal known
        table.ingest(as_csv(tmp_path, f"{known}.csv", known, 150)).wait()
        known += 150

    def refuse_file() -> None:
        bad = tmp_path / "bad.csv"
        bad.write_text("id,name,ssn,pay,born,ok\n1,a,Quokka,QuokkaPay,1990-01-01,true\n")
        with pytest.raises(RefusedSourceError) as error:
            table.ingest(bad).wait()
        assert "Quokka" not in error.value.explanation
        inbox = root / "inbox" / "people"
        for path in inbox.rglob("bad.csv"):  # it stays where it was dropped, as it was
            path.unlink()

    steps = [
        ingest_frame,
        ingest_file,
        refuse_file,
        lambda: mice.compact("people", everything=True),
        lambda: table.delete(keys=[draw.randrange(known)]),
        lambda: table.purge(keys=[draw.randrange(known)]),
        lambda: mice.sql("SELECT ssn, count(*) FROM people GROUP BY 1 ORDER BY 1").to_arrow(),
        lambda: table.query(where="id > 5").to_arrow(),
        lambda: table.changes(since=0, deleted=True).to_arrow(),
        lambda: mice.set_properties("people", {"data_key": next(numbers)}),
        lambda: mice.wait(),
    ]
    for step in [ingest_frame, *steps, *(draw.choice(steps) for _ in range(25))]:
        step()
        assert places_of(SECRET, root) == [], step
    mice.wait()
    table.export().wait()
    table.rebuild()
    assert places_of(SECRET, root) == []
    live = mice.table("people").query(columns=["id", "ssn"]).to_arrow().to_pylist()
    wanted = {row["id"]: row["ssn"] for row in rows(0, known).to_pylist()}
    assert live
    assert all(row["ssn"] == wanted[row["id"]] for row in live)
    keys = json.loads(root.with_name("mice.keys").read_text())["keys"]
    assert all(places_of(bytes.fromhex(key), root) == [] for of in keys.values() for key in of)
    assert all(places_of(key.encode(), root) == [] for of in keys.values() for key in of)


def test_compactions_encrypt_anew_by_a_greater_data_key_and_versions_before_stay_readable(
    mice: Instance, table: TableHandle, root: Path
) -> None:
    for first in range(0, 90, 30):
        table.ingest(rows(first, 30)).wait()
    before = table.state().version
    mice.set_properties("people", {"data_key": 2})
    mice.compact("people", everything=True)
    mice.wait()
    (shard,) = table.shards()
    stored = cells(table, shard.id, root)
    assert {cell[:4] for cell in stored if cell} == {(2).to_bytes(4, "big")}
    assert table.latest().query().to_arrow().to_pylist() == rows(0, 90).to_pylist()
    earlier = table.latest().query(as_of=before).to_arrow().to_pylist()
    assert earlier == rows(0, 90).to_pylist()
    mice.set_properties("people", {"data_key": 3})
    mice.compact("people", everything=True)  # the only shard, too, of which nothing is merged
    mice.wait()
    (alone,) = table.shards()
    assert {cell[:4] for cell in cells(table, alone.id, root) if cell} == {(3).to_bytes(4, "big")}
    with pytest.raises(InvalidRequestError, match="only grows"):
        mice.set_properties("people", {"data_key": 1})


def file_of(table: TableHandle, shard: str, folder: Path) -> Path:
    """Return a shard as a file: a small one lies in SQLite."""
    local = folder.with_name(f"{shard}.parquet")
    path = shard_path(table.table.id, shard)
    storage = table.services.storage
    (item,) = (each for each in storage.list(path) if each.path == path)
    with storage.open(path, item.size_bytes) as content:
        local.write_bytes(content.read())
    return local


def cells(table: TableHandle, shard: str, root: Path) -> list[bytes | None]:
    stored = pq.read_table(file_of(table, shard, root))
    found: list[bytes | None] = stored.column("ssn").to_pylist()
    return found


def test_equal_values_are_stored_as_different_bytes_that_say_nothing_of_them(
    mice: Instance, table: TableHandle, root: Path
) -> None:
    same = rows(0, 50).set_column(2, "ssn", pa.array(["Quokka"] * 50))
    table.ingest(same).wait()
    (shard,) = table.shards()
    assert len(set(cells(table, shard.id, root))) == 50
    path = file_of(table, shard.id, root)
    metadata = pq.ParquetFile(path).metadata
    for place in range(metadata.num_columns):
        chunk = metadata.row_group(0).column(place)
        plain = chunk.path_in_schema in ("id", "name")
        assert plain or chunk.statistics is None or not chunk.statistics.has_min_max
        assert plain or chunk.path_in_schema in ("ssn", "pay", "born", "ok")


def test_who_has_the_key_reads_the_files_with_pyarrow_and_duckdb(
    mice: Instance, table: TableHandle, root: Path
) -> None:
    """As docs/encryption.md says, without the library."""
    table.ingest(rows(0, 50)).wait()
    (shard,) = table.shards()
    path = file_of(table, shard.id, root)
    footer = json.loads(pq.ParquetFile(path).metadata.metadata[METADATA_KEY.encode()])
    schema = json.loads(footer["schema"]) if isinstance(footer["schema"], str) else footer["schema"]
    (wrapped,) = [k["wrapped"] for k in schema["dataKeys"] if k["name"] == "default"]
    (field,) = [f["id"] for f in schema["valueFields"] if f["name"] == "ssn"]
    (own,) = json.loads(root.with_name("mice.keys").read_text())["keys"]["default"]
    key = decrypted_once(bytes.fromhex(own), base64.b64decode(wrapped), table.table.id.encode())

    def decrypt(value: bytes) -> str:
        cipher = AESGCM(derived_key(key, value[4:16]))
        return cipher.decrypt(value[8:20], value[20:], field.to_bytes(4, "big")).decode()

    wanted = rows(0, 50).column("ssn").to_pylist()
    assert [v and decrypt(v) for v in cells(table, shard.id, root)] == wanted
    duck = duckdb.connect()
    duck.create_function("decrypt", decrypt, ["BLOB"], "VARCHAR")
    read = duck.sql(f"SELECT decrypt(ssn) FROM '{path}' ORDER BY id").fetchall()
    assert [value for (value,) in read] == wanted


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"encrypted_columns": "ssn, nothing"}, "no column 'nothing'"),
        ({"encrypted_columns": "id"}, "id is a key"),
        ({"encrypted_columns": "ssn:"}, "is no column"),
        ({"encrypted_columns": "ssn:a b"}, "is no column"),
        ({"encrypted_columns": "ssn", "bloom_columns": "ssn"}, "bloom_columns uses"),
        ({"encrypted_columns": "ssn", "term_index": "ssn"}, "term_index uses"),
        ({"encrypted_columns": "ssn", "filters": "where(ssn = 'a')"}, "filters uses"),
        ({"encrypted_columns": "pay", "keep": "latest", "latest_by": "pay"}, "latest_by"),
        ({"encrypted_columns": "ssn", "ingest_on_error": "skip"}, "cannot skip rows"),
    ],
)
def test_what_reads_values_elsewhere_is_refused_where_it_is_asked_for(
    mice: Instance, settings: dict[str, object], problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        mice.create_table("other", SCHEMA, settings, row_keys=["id"])
    assert not mice.services.tables.named("other")


def test_values_with_parts_are_refused_and_star_takes_all_that_are_no_keys(mice: Instance) -> None:
    for kind in ("list<string>", "struct<a:string>", "dynamic"):
        with pytest.raises(InvalidRequestError, match="with parts"):
            mice.create_table(
                "x", f"id:long, v:{kind}?", {"encrypted_columns": "*"}, row_keys=["id"]
            )
    table = mice.create_table("every", SCHEMA, EVERY, row_keys=["id"])
    assert {f.name for f in table.table.schema.encrypted} == {"name", "ssn", "pay", "born", "ok"}


def test_properties_that_would_read_values_cannot_be_set_later(
    mice: Instance, table: TableHandle
) -> None:
    for settings in (
        {"bloom_columns": "ssn"},
        {"term_index": "ssn"},
        {"filters": "where(ssn IS NULL)"},
        {"ingest_on_error": "skip"},
        {"encrypted_columns": "ssn"},
        {"encrypted_columns": ""},
    ):
        with pytest.raises(InvalidRequestError):
            mice.set_properties("people", settings)
    with pytest.raises(InvalidRequestError, match="cannot change"):
        mice.set_properties("people", {}, unset=["encrypted_columns"])
    with pytest.raises(InvalidRequestError, match="no default"):
        mice.set_defaults({"data_key": 2})


@pytest.mark.parametrize("where", ["ssn = 'Quokka1'", "ssn IS NULL", "length(ssn) > 1", "pay > 1"])
def test_conditions_that_shards_cannot_answer_are_refused_and_never_empty(
    table: TableHandle, where: str
) -> None:
    for refused in (
        lambda: table.query(where=where),
        lambda: table.count(where=where),
        lambda: table.delete(where),
        lambda: table.purge(where),
        lambda: table.export(where=where),
        lambda: table.changes(since=0, where=where),
        lambda: table.query(where=where, run="remote"),
    ):
        with pytest.raises(InvalidRequestError, match="are encrypted"):
            refused()


def test_rows_cannot_be_skipped_by_a_request_either(
    table: TableHandle, root: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("id,name,ssn,pay,born,ok\n1,a,Quokka,x,1990-01-01,true\n")
    with pytest.raises(RefusedSourceError, match="encrypted columns"):
        table.ingest(bad, on_error="skip").wait()
    assert not list(root.rglob("rejected"))


def test_answers_that_are_stored_as_files_have_no_values(
    mice: Instance, table: TableHandle, root: Path
) -> None:
    table.ingest(rows(0, 30)).wait()
    with pytest.raises(ForbiddenError, match="stored as files"):
        table.query(run="remote").to_arrow()
    with pytest.raises(ForbiddenError, match="stored as files"):
        mice.sql("SELECT max(ssn) FROM people", run="remote").to_arrow()
    with pytest.raises(ForbiddenError, match="stored as files"):
        mice.export_sql("SELECT max(ssn) AS ssn FROM people")
    assert table.query(columns=["id"], run="remote").to_arrow().num_rows == 30
    assert mice.export_sql("SELECT id FROM people").manifest.rows == 30
    assert places_of(SECRET, root) == []


def test_an_export_has_what_is_stored_and_the_encrypted_data_keys(
    table: TableHandle, root: Path
) -> None:
    table.ingest(rows(0, 30)).wait()
    exported = table.export()
    exported.wait()
    (path,) = (root / "exports").rglob("*.parquet")
    found = pq.read_table(path)
    assert found.schema.field("ssn").type == pa.binary()
    assert all(cell is None or cell[:4] == b"\0\0\0\x01" for cell in found["ssn"].to_pylist())
    assert any(b"dataKeys" in each.read_bytes() for each in (root / "exports").rglob("*.json"))
    assert places_of(SECRET, root) == []


def test_a_copy_is_encrypted_by_the_keys_of_its_own_instance(
    mice: Instance, table: TableHandle, root: Path, tmp_path: Path
) -> None:
    table.ingest(rows(0, 60)).wait()
    other = tmp_path / "other"
    with Instance.open(other, background=False) as target:
        target.copy_table(mice.table("people"))
        assert target.table("people").query().to_arrow().to_pylist() == rows(0, 60).to_pylist()
        take_keys(root)
        assert target.table("people").query().to_arrow().num_rows == 60
        assert places_of(SECRET, other) == []
        with pytest.raises(ForbiddenError):
            target.copy_table(mice.table("people"), "again")


def test_columns_are_added_dropped_and_renamed_and_stay_what_they_are(
    mice: Instance, table: TableHandle, root: Path
) -> None:
    table.ingest(rows(0, 20)).wait()
    with pytest.raises(InvalidRequestError, match="keep their type"):
        table.alter(types={"pay": "decimal(12,2)"})
    with pytest.raises(InvalidRequestError, match="cannot be given as encrypted"):
        table.alter(add=[Field("x", Primitive.BYTES, True, encrypted=Primitive.STRING, key="k")])
    table.alter(rename={"ssn": "number"}, add=[Field("note", Primitive.STRING, True)])
    assert table.latest().query(columns=["number"]).to_arrow()["number"].to_pylist() == (
        rows(0, 20)["ssn"].to_pylist()
    )
    with pytest.raises(InvalidRequestError, match="stored in plain"):
        table.alter(rename={"note": "ssn"})
    table.alter(drop=["number"], add=[Field("ssn", Primitive.STRING, True)])
    new = rows(20, 20).append_column("note", pa.array(["n"] * 20))
    table.latest().ingest(new).wait()
    assert places_of(SECRET, root) == []
    found = table.latest().query(columns=["ssn", "note"]).to_arrow()
    assert found["ssn"].to_pylist() == [None] * 20 + rows(20, 20)["ssn"].to_pylist()


def test_a_table_with_star_encrypts_what_is_added(mice: Instance, root: Path) -> None:
    table = mice.create_table("every", "id:long, a:string?", EVERY, row_keys=["id"])
    table.alter(add=[Field("b", Primitive.STRING, True)])
    with pytest.raises(InvalidRequestError, match="with parts"):
        table.alter(add=[Field("c", Primitive.DYNAMIC, True)])
    table.latest().ingest(pa.table({"id": [1], "a": ["x"], "b": ["Quokka"]})).wait()
    assert places_of(SECRET, root) == []
    assert table.latest().query().to_arrow().to_pylist() == [{"id": 1, "a": "x", "b": "Quokka"}]
    schema = Schema.from_json(table.latest().schema.to_json())
    mice.reinitialise_table("every", schema=schema)
    mice.wait()
    mice.table("every").ingest(pa.table({"id": [2], "a": ["Quokka"], "b": ["Quokka"]})).wait()
    assert places_of(SECRET, root) == []
    assert mice.table("every").query().to_arrow().num_rows == 1


def test_what_ingest_spills_has_no_values(
    mice: Instance, table: TableHandle, tmp_path: Path
) -> None:
    dropped, scratch = tmp_path / "dropped", tmp_path / "scratch"
    dropped.mkdir()
    scratch.mkdir()
    local, services = as_csv(dropped, "many.csv", 0, 30_000), table.services
    loader = loader_of(
        table.table, services.storage, scratch, memory_bytes=1 << 20, keys=services.keys
    )
    loader.add(local, "people/many.csv")
    assert any(path.stat().st_size for path in scratch.rglob("*") if path.is_file())
    assert places_of(SECRET, scratch) == []
    assert sum(batch.num_rows for batch in loader.sorter.sorted_rows()) == 30_000


def test_latest_rows_of_a_table_are_found_by_keys_and_compared_by_values(
    mice: Instance, root: Path
) -> None:
    settings = {"encrypted_columns": "ssn", "keep": "latest"}
    table = mice.create_table("kept", "id:long, ssn:string?", settings, row_keys=["id"])
    table.ingest(pa.table({"id": [1, 2], "ssn": ["Quokka1", "Quokka2"]})).wait()
    since = table.state().version
    table.ingest(pa.table({"id": [1, 2], "ssn": ["Quokka1", "Quokka3"]})).wait()
    table.ingest(pa.table({"id": [3], "ssn": ["Quokka4"]})).wait()
    found = table.query().to_arrow().to_pylist()
    assert [row["ssn"] for row in found] == ["Quokka1", "Quokka3", "Quokka4"]
    changed = table.changes(since=since, deleted=True).to_arrow().to_pylist()
    assert {(row["_change"], row["id"]) for row in changed} == {("update", 2), ("insert", 3)}
    mice.set_properties("kept", {"data_key": 2})
    mice.compact("kept", everything=True)
    mice.wait()
    again = mice.table("kept").changes(since=since, deleted=True).to_arrow().to_pylist()
    assert {(row["_change"], row["id"]) for row in again} == {("update", 2), ("insert", 3)}
    assert places_of(SECRET, root) == []


def test_values_that_were_changed_or_moved_to_another_column_are_refused(
    mice: Instance, table: TableHandle
) -> None:
    table.ingest(rows(0, 5)).wait()
    keys = ColumnKeys(mice.services.keys, table.table.schema, table.table.id)
    plain = pa.record_batch(
        {"ssn": ["Quokka"], "pay": pa.array([Decimal(1)], pa.decimal128(10, 2))}
    )
    stored = keys.encrypted(plain)
    cell = stored.column(0)[0].as_py()
    for wrong in (cell[:-1] + bytes([cell[-1] ^ 1]), cell[:30], b"", bytes(4) + cell[4:]):
        batch = pa.record_batch({"ssn": pa.array([wrong], pa.binary())})
        with pytest.raises(CorruptDataError, match="ssn"):
            keys.decrypted(batch)
    born = pa.record_batch({"born": stored.column(0)})
    with pytest.raises(CorruptDataError):
        keys.decrypted(born)


def test_rows_in_plain_are_not_written_whoever_made_them(table: TableHandle) -> None:
    plain = pa.record_batch({"ssn": pa.array([b"Quokka in plain bytes, and long enough"])})
    with pytest.raises(InvariantError, match="in plain"):
        check_encrypted(table.table.schema, plain)


def test_a_statement_over_encrypted_columns_does_not_spill_and_says_so(
    table: TableHandle, mice: Instance, root: Path
) -> None:
    from dormouse.statements import engine

    database = engine.database(mice.services.scratch, 64 << 20, spills=False)
    with database.connection.cursor() as cursor, pytest.raises(duckdb.OutOfMemoryException):
        cursor.sql(
            "SELECT s FROM (SELECT 'Quokka' || k || repeat('x', 100) AS s "
            "FROM range(4000000) t(k)) ORDER BY s"
        ).to_arrow_table()
    assert places_of(SECRET, root) == []


def test_the_key_file_is_for_its_user_alone(mice: Instance, table: TableHandle, root: Path) -> None:
    path = root.with_name("mice.keys")
    assert path.stat().st_mode & 0o777 == 0o600
    table.ingest(rows(0, 3)).wait()
    path.chmod(0o644)
    with pytest.raises(ForbiddenError, match="others may read"):
        table.query()
    path.chmod(0o600)
    stored = json.loads(path.read_text())
    stored["keys"]["default"].append("00" * 32)  # from now on data keys are encrypted by this one
    path.write_text(json.dumps(stored))
    mice.set_properties("people", {"data_key": 2})
    table.latest().ingest(rows(3, 3)).wait()
    assert table.latest().query().to_arrow().num_rows == 6
    stored["keys"]["default"] = ["00" * 31]
    path.write_text(json.dumps(stored))
    with pytest.raises(DormouseError) as error:
        table.query()
    assert "00" * 31 not in error.value.explanation
