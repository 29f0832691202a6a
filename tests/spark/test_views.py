"""Spark runs the view of a table with row rules, and gets the rows that Dormouse reads."""

from __future__ import annotations

import decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from dormouse.iceberg.views import view_of
from tests.support.ruled_tables import CASES, Case, comparable, stored_and_read


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_spark_reads_a_view_as_dormouse_reads_the_table(
    case: Case, spark: SparkContext, tmp_path: Path
) -> None:
    table, stored, read = stored_and_read(case, tmp_path)
    view = view_of(table)
    assert view is not None
    file = tmp_path / "stored.parquet"
    pq.write_table(stored, file)
    session = SparkSession(spark)
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    session.read.parquet(str(file)).createOrReplaceTempView(f"`{view.parts}`")
    with decimal.localcontext(prec=60):
        found = session.sql(view.sql["spark"]).toArrow().to_pylist()
    assert comparable(found) == comparable(read)
