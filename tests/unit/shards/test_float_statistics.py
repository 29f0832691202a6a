"""What other readers find in columns of floats, in shards and in exported files: they believe the
statistics of Parquet, which leave out NaN.
"""

from __future__ import annotations

import math
from pathlib import Path

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dormouse.files.results import ParquetRows
from dormouse.schema.schema import parse_schema
from dormouse.storage import FolderStorage
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import ShardTable

NAN = math.nan
SCHEMA = parse_schema(
    "k:long, late:double?, small:float?, nans:double?, none:double?, ends:double?, "
    "s:struct<d:double>?, s.d:double?",
    ["k"],
)
COLUMNS = ("late", "small", "nans", "none", "ends")
CONDITIONS = [
    f"{column} {op} {value}"
    for column in COLUMNS
    for op in ("=", "<>", ">=")
    for value in ("'NaN'::double", "1.5::double")
]
ROWS = [
    {
        "k": k,
        "late": NAN if k == 9 else 1.5,
        "small": NAN if k == 0 else -0.0,
        "nans": NAN,
        "none": None if k % 2 else k / 2,
        "ends": math.inf if k % 2 else -math.inf,
        "s": {"d": NAN},
        "s.d": 1.0,
    }
    for k in range(10)
]


@pytest.fixture(params=["shard", "export"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a file of small row groups with `ROWS`."""
    write_small_blocks(monkeypatch, 2)
    table = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path)
    table.add(ROWS)
    (shard,) = (tmp_path / "data").rglob("*.parquet")
    if request.param == "shard":
        return shard
    rows, exported = pq.read_table(shard), tmp_path / "exported.parquet"
    with exported.open("wb") as sink:
        writer = ParquetRows(sink, rows.schema)
        for batch in rows.to_batches():
            writer.write(batch)
        writer.close()
    return exported


def test_columns_with_nan_have_no_bounds_and_keep_the_number_of_their_nulls(path: Path) -> None:
    file = pq.read_metadata(path)
    is_shard = file.num_row_groups == 3
    for group in (file.row_group(number) for number in range(file.num_row_groups)):
        chunks = [group.column(i) for i in range(group.num_columns)]
        bounded = [c.path_in_schema for c in chunks if c.statistics and c.statistics.has_min_max]
        # of the two columns that have one path, s.d, the one without NaN is bounded
        assert bounded == (["k", "none", "ends", "s.d"] if is_shard else ["k"])
        assert [c.path_in_schema for c in chunks if c.has_column_index] == bounded
        assert all(chunk.has_offset_index for chunk in chunks)
        if is_shard:
            assert chunks[1].statistics.null_count == 0
    assert pq.read_table(path).num_rows == len(ROWS)


def test_engines_lose_no_row_by_a_condition_that_nan_fulfils(path: Path) -> None:
    rows = pq.read_table(path, columns=["k", *COLUMNS])
    context = datafusion.SessionContext()
    context.register_parquet("stored", str(path))
    context.register_record_batches("memory", [rows.to_batches()])
    duck = duckdb.connect()
    duck.execute("CREATE TABLE memory AS SELECT * FROM rows")  # without Arrow's own filters
    for condition in [*CONDITIONS, *(f"NOT ({each})" for each in CONDITIONS)]:
        asked = f"SELECT k FROM {{}} WHERE {condition} ORDER BY k"
        found = [context.sql(asked.format(name)).to_pydict() for name in ("stored", "memory")]
        assert found[0] == found[1], condition
        each = [
            duck.execute(asked.format(name)).fetchall()
            for name in (f"read_parquet('{path}')", "memory")
        ]
        assert each[0] == each[1], condition
    stored = ds.dataset(path)
    for name in COLUMNS:
        field = pc.field(name)
        for test in (field != 1.5, ~(field <= 1.5), ~(field == 0.0), pc.is_nan(field)):
            assert stored.count_rows(filter=test) == rows.filter(test).num_rows, test
    for name in COLUMNS:
        greatest = pa.table(context.sql(f"SELECT max({name}) m FROM stored").to_arrow_table())
        has_nan = any(row[name] is not None and math.isnan(row[name]) for row in ROWS)  # type: ignore[arg-type]
        assert math.isnan(greatest["m"][0].as_py()) == has_nan
