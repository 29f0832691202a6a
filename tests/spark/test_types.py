"""What Spark reads columns as: as the table in `docs/schema.md` says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dormouse.arrow.types import arrow_schema, conform
from dormouse.schema.types import parse_type_text
from dormouse_spark.types import spark_arrow_schema, spark_type
from tests.support.every_type import EVERY_TYPE, row_of_every_type
from tests.support.frame_types import ROWS, FrameType


@pytest.mark.parametrize("row", [r for r in ROWS if r.stored], ids=lambda row: row.stored)
def test_spark_reads_a_column_as_the_table_says(row: FrameType) -> None:
    assert spark_type(parse_type_text(row.stored)).simpleString() == row.spark


def test_what_spark_has_no_type_for_is_read_as_the_number_or_bytes_it_is() -> None:
    rows = [row_of_every_type(n) for n in range(1, 5)]
    batch = pa.RecordBatch.from_pylist(rows, arrow_schema(EVERY_TYPE))
    found = conform(batch, spark_arrow_schema(batch.schema)).to_pylist()
    assert [row["ns"] for row in found] == [0, 1, 2, 3]
    assert [row["nn"] for row in found] == [2**60 + n for n in range(1, 5)]
    assert found[0]["clock"] == 3_600_000_001 and found[0]["u"] == b"\1" * 16
    assert found[0]["ntz"] == rows[0]["ntz"] and found[0]["t"] == rows[0]["t"]


def test_no_type_of_a_nested_column_is_left_that_spark_does_not_have() -> None:
    inner = pa.struct([("a", pa.time64("us")), ("b", pa.map_(pa.binary(16), pa.timestamp("ns")))])
    found = spark_arrow_schema(pa.schema([("v", pa.list_(inner))])).field("v").type
    plain = pa.struct([("a", pa.int64()), ("b", pa.map_(pa.binary(), pa.int64()))])
    assert found == pa.list_(plain)
