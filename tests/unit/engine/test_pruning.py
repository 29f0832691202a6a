"""What the engine leaves out of a scan: row groups and pages that cannot hold what is wanted."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import DataFrame
from datafusion.plan import ExecutionPlan

from dormouse.arrow.types import arrow_schema
from dormouse.keys import KeyRange
from dormouse.rows import datafusion as engine
from dormouse.rows.predicates import parse_predicate
from dormouse.schema.schema import Schema

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}, {"name": "n", "type": "LongType"}],
        "valueFields": [
            {"name": "v", "type": "LongType"},
            {"name": "f", "type": "DoubleType"},
            {"name": "t", "type": "StringType"},
        ],
    }
)
ROWS, ROW_GROUP, PAGE = 200_000, 50_000, 1_000


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of 20 keys of 10,000 rows, four row groups of fifty pages each."""
    path = tmp_path_factory.mktemp("pruning") / "rows.parquet"
    numbers = range(ROWS)
    rows = pa.Table.from_arrays(
        [
            pa.array([i // 10_000 for i in numbers]),
            pa.array([i % 10_000 for i in numbers]),
            pa.array([i * 7 for i in numbers]),
            pa.array([i / 8 for i in numbers]),
            pa.array([f"{i:06}" for i in numbers]),
        ],
        schema=arrow_schema(SCHEMA),
    )
    pq.write_table(
        rows,
        path,
        row_group_size=ROW_GROUP,
        write_page_index=True,
        max_rows_per_page=PAGE,
        use_dictionary=False,
    )
    return path


def rows_read(path: Path, wanted: KeyRange, where: str | None = None) -> tuple[int, int]:
    """Return how many rows a scan gives, and how many are read from the file for them."""
    context = engine.session()
    stored = {field.name: field for field in SCHEMA.fields}
    frame: DataFrame = engine.sorted_file(context, path, stored, SCHEMA, wanted)
    if where is not None:
        frame = frame.filter(parse_predicate(where, SCHEMA).expr(context))
    plan = engine.plan_merge([frame], SCHEMA, ["k", "n", "v"], most_rows=0)
    given = sum(batch.num_rows for batch in engine.batches_of(context.execute(plan, 0)))
    (source,) = [step for step in steps_of(plan) if step.display().startswith("DataSourceExec")]
    metrics = source.metrics()
    assert metrics is not None
    return given, metrics.output_rows or 0


def steps_of(plan: ExecutionPlan) -> list[ExecutionPlan]:
    return [plan, *(step for child in plan.children() for step in steps_of(child))]


@pytest.mark.parametrize(
    ("wanted", "given", "most_pages"),
    [
        (KeyRange((7, 4_200), (7, 4_300)), 100, 1),
        (KeyRange.exactly((7, 4_200)), 1, 1),
        (KeyRange.exactly((7,)), 10_000, 10),
        (KeyRange((7, 9_950), (8, 50)), 100, 20),
        (KeyRange((19,), None), 10_000, 10),
    ],
)
def test_a_key_range_reads_just_the_pages_that_may_hold_it(
    path: Path, wanted: KeyRange, given: int, most_pages: int
) -> None:
    found, read = rows_read(path, wanted)
    assert found == given
    assert read <= most_pages * PAGE


@pytest.mark.parametrize(
    ("where", "given", "most_pages"),
    [
        ("v BETWEEN 700000 AND 700693", 100, 2),
        ("v = 7", 1, 1),
        ("t >= '150000' AND t < '150100'", 100, 1),
        ("t LIKE '1500%'", 100, 1),
        ("v IN (7, 1000005, 14)", 2, 100),
        ("v < 70 AND n > 5", 4, 1),
        ("v < 0", 0, 0),
    ],
)
def test_a_condition_on_values_reads_just_the_pages_that_may_meet_it(
    path: Path, where: str, given: int, most_pages: int
) -> None:
    found, read = rows_read(path, KeyRange(), where)
    assert found == given
    assert read <= most_pages * PAGE


def test_a_condition_on_floats_reads_all_for_statistics_know_nothing_of_nan(path: Path) -> None:
    assert rows_read(path, KeyRange(), "f < 12.5") == (100, ROWS)
