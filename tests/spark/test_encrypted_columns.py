"""Encrypted columns in Spark: as a DataFrame, in the files themselves, and by its jobs."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import ForbiddenError
from dormouse.keys import KeyRange
from dormouse.query.rows import query_slices
from dormouse.query.selection import Selection, slices_to_read
from dormouse.tables.properties import SparkOptions
from dormouse_spark.datasource import register
from tests.support.plaintext import places_of

DECRYPT = (
    "CAST(aes_decrypt(substring(ssn, 9), unhex(sha2(concat(X'00000001', unbase64('{key}'), "
    "substring(ssn, 5, 12)), 256)), 'GCM', 'DEFAULT', X'{column:08x}') AS STRING)"
)
"""As docs/encryption.md has it."""


@pytest.fixture
def instance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    monkeypatch.delenv("DORMOUSE_SPARK", raising=False)
    with Instance.open(tmp_path / "mice", background=False) as opened:
        yield opened


@pytest.fixture
def table(instance: Instance, tmp_path: Path) -> TableHandle:
    settings: dict[str, object] = {"encrypted_columns": "ssn"}
    table = instance.create_table("people", "id:long, ssn:string?", settings, row_keys=["id"])
    path = tmp_path / "people.csv"
    path.write_text("id,ssn\n" + "".join(f"{n},Quokka{n}\n" for n in range(2000)))
    table.ingest(path)
    return table


def test_spark_reads_values_by_the_source_and_by_its_own_functions(
    spark: SparkContext, instance: Instance, table: TableHandle, tmp_path: Path
) -> None:
    session = SparkSession(spark)
    register(session)
    wanted = [f"Quokka{n}" for n in range(2000)]

    def frame() -> list[str]:
        source = session.read.format("dormouse").option("instance", str(tmp_path / "mice"))
        rows = source.option("table", "people").load().orderBy("id").collect()
        return [row["ssn"] for row in rows]

    assert frame() == wanted
    schema = table.table.schema
    (data_key,) = schema.data_keys
    key = instance.services.keys.unwrap("default", data_key.wrapped, table.table.id)
    own = DECRYPT.format(key=base64.b64encode(key).decode(), column=schema.field_named("ssn").id)
    files = session.read.parquet(*map(str, (tmp_path / "mice" / "tables").rglob("*.parquet")))
    files.createOrReplaceTempView("shards")
    read = session.sql(f"SELECT {own} AS ssn FROM shards ORDER BY id").collect()
    assert [row["ssn"] for row in read] == wanted
    (tmp_path / "mice.keys").rename(tmp_path / "elsewhere")
    with pytest.raises(PySparkException, match="is encrypted by the key"):
        frame()


def test_jobs_of_spark_encrypt_and_encrypt_anew(
    instance: Instance, table: TableHandle, tmp_path: Path
) -> None:
    path = tmp_path / "more.csv"
    path.write_text("id,ssn\n" + "".join(f"{n},Quokka{n}\n" for n in range(2000, 2100)))
    instance.set_properties("people", {"data_key": 2, "ingest_spark_bytes": 1})
    table.latest().ingest(path).wait()
    assert instance.compact("people", everything=True, spark=SparkOptions()) == 1
    instance.wait()
    latest = instance.table("people")
    assert latest.query().to_arrow()["ssn"].to_pylist() == [f"Quokka{n}" for n in range(2100)]
    assert {cell[:4] for cell in cells(latest)} == {(2).to_bytes(4, "big")}
    assert places_of(b"Quokka", tmp_path / "mice") == []
    with pytest.raises(ForbiddenError, match="stored as files"):
        instance.sql("SELECT max(ssn) AS m FROM people", run="remote", spark=SparkOptions())
    counted = instance.sql(
        "SELECT count(*) AS n FROM people", run="remote", spark=SparkOptions()
    ).to_arrow()
    assert counted.to_pylist() == [{"n": 2100}]


def cells(table: TableHandle) -> list[bytes]:
    state = table.state()
    parts = slices_to_read(state, [KeyRange()])
    selection = Selection(state.version, ("ssn",))
    found = query_slices(table.services, table.table, parts, selection, as_stored=True)
    return [cell.as_py() for cell in found.to_arrow()["ssn"]]


def test_executors_make_keys_of_subjects_and_see_that_one_is_forgotten(
    spark: SparkContext, instance: Instance, tmp_path: Path
) -> None:
    settings: dict[str, object] = {
        "encrypted_columns": "ssn",
        "subject_column": "who",
        "ingest_spark_bytes": 1,
    }
    columns = "id:long, who:int, ssn:string?"
    table = instance.create_table("subjects", columns, settings, row_keys=["id"])
    path = tmp_path / "subjects.csv"
    path.write_text("id,who,ssn\n" + "".join(f"{n},{n % 7},Quokka{n}\n" for n in range(300)))
    table.ingest(path).wait()
    assert table.forget([3]) == 1
    instance.set_properties("subjects", {"data_key": 2})
    instance.compact("subjects", everything=True, spark=SparkOptions())
    instance.wait()
    session = SparkSession(spark)
    register(session)
    source = session.read.format("dormouse").option("instance", str(tmp_path / "mice"))
    found = source.option("table", "subjects").load().orderBy("id").collect()
    wanted = [None if n % 7 == 3 else f"Quokka{n}" for n in range(300)]
    assert [row["ssn"] for row in found] == wanted
    assert table.latest().query().to_arrow()["ssn"].to_pylist() == wanted
    assert places_of(b"Quokka", tmp_path / "mice") == []
