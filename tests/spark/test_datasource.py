"""Tables as DataFrames, on an instance that Spark's own processes connect to."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, datasource

from dormouse.arrow.types import arrow_schema, conform
from dormouse.aws.wiring import wire
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.errors import DormouseError
from dormouse.features.spark import save_spark_request
from dormouse.messages.stages import IngestJob
from dormouse.settings import Settings
from dormouse.state.sources import Source, job_id_of
from dormouse_spark.datasource import DormouseSource, register
from dormouse_spark.entry import main
from dormouse_spark.types import spark_arrow_schema
from tests.spark.conftest import INSTANCE
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.world import LETTERS, letters, letters_file


@pytest.fixture
def instance(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Instance:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return Instance.connect()


@pytest.fixture
def session(spark: SparkContext) -> Iterator[SparkSession]:
    session = SparkSession(spark)
    register(session)
    return session


def filled(instance: Instance, name: str, *texts: str, **properties: object) -> TableHandle:
    """Return a table of three leaves and the letters of some files."""
    table = instance.create_table(name, LETTERS, properties, split_points=["h", "p"])
    for n, text in enumerate(texts):
        imported(table, f"{n}.parquet", letters_file(letters(text, at=1000 * n)))
    return table


def imported(table: TableHandle, name: str, body: bytes) -> Source:
    """Have a dropped file imported as a job that is started by its command line."""
    services = table.services
    local = Path(services.scratch) / f"{services.ids.new()}.parquet"
    local.write_bytes(body)
    source = table.bucket.drop(f"{table.name}/{name}", local)
    local.unlink()
    job = IngestJob(table.table.id, 0, job_id_of((source,)), (source,))
    save_spark_request(services, job)
    arguments = ["--instance", INSTANCE, "--table-id", job.table_id, "--job-id", job.job_id]
    assert main("ingest", [*arguments, "--generation", "0"]) == 0
    return source


def frame(session: SparkSession, of: TableHandle, **options: str) -> DataFrame:
    named = {"instance": INSTANCE, "table": of.name}
    return session.read.format("dormouse").options(**{**named, **options}).load()


def found(rows: DataFrame) -> str:
    return "".join(sorted(row.letter for row in rows.collect()))


def test_a_table_is_a_data_frame_of_one_partition_a_leaf(
    session: SparkSession, instance: Instance
) -> None:
    table = filled(instance, "leaves", "azhhpz", "bq")
    rows = frame(session, table)
    assert rows.columns == ["letter", "at", "note"]
    assert rows.rdd.getNumPartitions() == 3
    assert found(rows) == "abhhpqzz"
    assert rows.where("letter >= 'p'").count() == 4
    assert rows.groupBy("letter").count().where("count > 1").count() == 2
    assert rows.count() == 8


def test_ranges_conditions_and_versions_are_read_and_nothing_else(
    session: SparkSession, instance: Instance
) -> None:
    table = filled(instance, "options", "abhipq")
    version = table.state().version
    imported(table, "later.parquet", letters_file(letters("ccc", at=500)))
    assert found(frame(session, table, **{"from": "b", "to": "p"})) == "bccchi"
    assert found(frame(session, table, **{"from": '["h"]'})) == "hipq"
    assert found(frame(session, table, where="letter IN ('a', 'q') AND at < 3")) == "a"
    assert found(frame(session, table, as_of=str(version))) == "abhipq"
    assert frame(session, table, **{"from": "h"}).rdd.getNumPartitions() == 2
    assert found(frame(session, table, **{"from": "x"})) == ""


hands_filters = pytest.mark.skipif(
    not hasattr(datasource, "Filter"), reason="Spark 4.0 hands over no filters"
)


@hands_filters
def test_filters_of_a_frame_are_done_by_the_source_and_narrow_what_is_read(
    session: SparkSession, instance: Instance
) -> None:
    register(session, push_filters=True)
    table = filled(instance, "filters", "abhipqz", "azz")
    assert frame(session, table).where("letter >= 'p'").rdd.getNumPartitions() == 1
    for condition, expected in {
        "letter >= 'p' AND letter < 'z'": "pq",
        "letter IN ('a', 'i') AND note LIKE 'a%'": "aa",
        "letter = 'a' OR at = 1002": "aaz",
        "letter = 'q' AND length(note) > 1": "q",
    }.items():
        assert found(frame(session, table).where(condition)) == expected
    assert found(frame(session, table, where="at >= 1000").where("letter <> 'z'")) == "a"


@hands_filters
def test_filters_find_the_same_rows_whether_the_source_does_them_or_spark(
    session: SparkSession, instance: Instance
) -> None:
    rows = [row_of_every_type(n) for n in range(40)]
    table = instance.create_table("same", EVERY_TYPE)
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema(EVERY_TYPE)), sink)
    imported(table, "1.parquet", sink.getvalue())
    there = frame(session, table).toArrow().to_pylist()
    register(session, push_filters=True)
    for condition, expected in CONDITIONS.items():
        asked = frame(session, table).where(condition)
        numbers = asked.select("i").toArrow()["i"].to_pylist()
        assert sorted(numbers) == sorted(row["i"] for row in there if expected(row)), condition


@pytest.mark.skipif(hasattr(datasource, "Filter"), reason="this Spark hands over filters")
def test_filters_that_this_spark_does_not_push_down_are_refused(session: SparkSession) -> None:
    with pytest.raises(DormouseError, match="no filter pushdown"):
        register(session, push_filters=True)


CONDITIONS = {
    "t = TIMESTAMP '1969-12-31 00:00:00.000003Z'": lambda row: row["t"].microsecond == 3,
    "b > X'FE00'": lambda row: row["b"] > b"\xfe\0",
    "i <= -30": lambda row: row["i"] <= -30,
    f"l IN ({2**40}, {3 * 2**40})": lambda row: row["l"] in (2**40, 3 * 2**40),
    "f >= 0.5f AND f < 3f": lambda row: row["f"] is not None and 0.5 <= row["f"] < 3,
    "d = 1d": lambda row: row["d"] == 1,
    "NOT (d <=> 1d)": lambda row: row["d"] != 1,
    "o": lambda row: row["o"] is True,
    "NOT o": lambda row: row["o"] is False,
    "s LIKE 'üü%'": lambda row: row["s"] is not None and row["s"].startswith("üü"),
    "day < DATE '1950-01-08'": lambda row: row["day"] and row["day"] < dt.date(1950, 1, 8),
    "n > -99999999999999999999.9998BD": lambda row: (
        row["n"] is not None and row["n"] > Decimal("-99999999999999999999.9998")
    ),
    "m IS NULL": lambda row: row["m"] is None,
    "st.y = 'z'": lambda row: row["st"] is not None,
}


def test_a_frame_stays_at_its_version_whatever_is_ingested(
    session: SparkSession, instance: Instance
) -> None:
    table = filled(instance, "version", "abc")
    rows = frame(session, table)
    assert rows.count() == 3
    imported(table, "later.parquet", letters_file(letters("xyz", at=500)))
    assert found(rows) == "abc"
    assert found(frame(session, table)) == "abcxyz"


def test_the_rules_of_the_table_hold(session: SparkSession, instance: Instance) -> None:
    table = filled(
        instance, "rules", "aab", "az", filters="where(letter < 'y')", aggregations="last(note)"
    )
    assert sorted((r.letter, r.at) for r in frame(session, table).collect()) == [
        ("a", 1000),
        ("b", 2),
    ]


def test_values_of_every_type_are_sparks(session: SparkSession, instance: Instance) -> None:
    rows = [row_of_every_type(n) for n in range(40)]
    table = instance.create_table("every", EVERY_TYPE)
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, arrow_schema(EVERY_TYPE)), sink)
    imported(table, "1.parquet", sink.getvalue())
    found = frame(session, table).toArrow()  # Python's rows of Spark cannot have bytes as keys
    columns = [name for name in found.column_names if name != "t"]
    batch = pa.RecordBatch.from_pylist(in_order(rows), arrow_schema(EVERY_TYPE))
    wanted = conform(batch, spark_arrow_schema(batch.schema)).select(columns).to_pylist()
    assert found.select(columns).to_pylist() == wanted
    assert found["t"].cast(pa.int64()).to_pylist() == micros(rows)


def in_order(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: (row["t"], row["b"], row["i"]))  # type: ignore[index]


def micros(rows: list[dict[str, object]]) -> list[int]:
    times = pa.array([row["t"] for row in in_order(rows)], pa.timestamp("us", "UTC"))
    return times.cast(pa.int64()).to_pylist()


def test_what_cannot_be_read_is_refused_with_the_reason(
    session: SparkSession, instance: Instance
) -> None:
    table = instance.create_table("refusals", LETTERS)
    for options, reason in (
        ({"table": "nowhere"}, "there is no table 'nowhere'"),
        ({"form": "x"}, "there is no option 'form'"),
        ({"where": "letter ="}, "ends too early"),
        ({"as_of": "999999"}, "version"),
        ({"from": "[1"}, "not a JSON list"),
    ):
        with pytest.raises(DormouseError, match=reason):
            DormouseSource({"instance": INSTANCE, "table": table.name, **options})
    with pytest.raises(PySparkException, match="there is no table 'nowhere'"):
        frame(session, table, table="nowhere")


def test_a_job_that_cannot_be_run_ends_with_one_and_says_why(
    session: SparkSession, instance: Instance, capsys: pytest.CaptureFixture[str]
) -> None:
    table = filled(instance, "failing")
    source = Source(wire(Settings.from_environment()).settings.names.ingest_bucket, "x", "0", 1)
    job = IngestJob(table.table.id, 7, job_id_of((source,)), (source,))
    save_spark_request(table.services, job)
    arguments = ["--instance", INSTANCE, "--table-id", job.table_id, "--job-id", job.job_id]
    assert main("ingest", [*arguments, "--generation", "7"]) == 1
    assert "is about to be reset" in capsys.readouterr().err
    assert main("ingest", [*arguments[:-1], "unknown", "--generation", "0"]) == 0
