"""Merges of merges: more inputs than one thread merges fast come with the same rows in order."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.rows import datafusion as engine
from dormouse.rows.datafusion import changed
from dormouse.rows.predicates import parse_predicate
from dormouse.schema.schema import Schema

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "IntType"}],
        "sortKeyFields": [],
        "valueFields": [{"name": "v", "type": "IntType"}],
    }
)
COLUMNS = ["k", "v"]
FILES, ROWS = 7, 50


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return files of which each is merged with two or three, before the merges are."""
    monkeypatch.setattr(engine, "MOST_IN_ONE_MERGE", 4)
    monkeypatch.setattr(engine, "GROUP_INPUTS", 3)
    made = [tmp_path / f"{n}.parquet" for n in range(FILES)]
    columns = engine.arrow_schema(SCHEMA)
    for n, local in enumerate(made):
        rows = [{"k": k, "v": n} for k in range(n, n + ROWS)]
        pq.write_table(pa.Table.from_pylist(rows, columns), local, row_group_size=9)
    return made


def _merged(
    files: list[Path], most_rows: int, where: str = "", *, stored: bool = True
) -> tuple[int, list[tuple[int, int]]]:
    """Return how many merges the plan has, and the rows that it yields."""
    context = engine.session(8)
    columns = engine.arrow_schema(SCHEMA)
    frames = [engine.sorted_columns(context, local, columns, SCHEMA) for local in files]
    if where:
        condition = parse_predicate(where, SCHEMA)
        frames = [frame.filter(condition.expr(context)) for frame in frames]
    plan = engine.plan_merge(frames, SCHEMA, COLUMNS, most_rows=most_rows)
    merges = plan.display_indent().count("SortPreservingMergeExec")
    if stored:  # as every merge of row groups is
        whole = {files[0].name: range(0, files[0].stat().st_size)}
        plan = changed(context, plan, whole, joined=16)
    batches = engine.batches_of(context.execute(plan, 0))
    return merges, [(row["k"], row["v"]) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("where", ["", "v > 2 AND k < 40"])
def test_a_merge_of_merges_has_all_rows_in_order(
    files: list[Path], where: str, stored: bool
) -> None:
    expected = sorted((k, n) for n in range(FILES) for k in range(n, n + ROWS))
    if where:
        expected = [(k, v) for k, v in expected if v > 2 and k < 40]
    merges, rows = _merged(files, FILES * ROWS, where, stored=stored)
    assert merges == 1 + 3
    assert [k for k, _ in rows] == [k for k, _ in expected]
    assert sorted(rows) == expected


def test_more_rows_than_a_stored_plan_counts_are_merged_at_once(files: list[Path]) -> None:
    merges, rows = _merged(files, engine.MOST_ROWS)
    assert merges == 1
    assert len(rows) == FILES * ROWS


def test_no_row_is_lost_at_the_largest_number_that_a_stored_plan_counts(files: list[Path]) -> None:
    merges, rows = _merged(files, engine.MOST_ROWS - 1)
    assert merges == 1 + 3
    assert len(rows) == FILES * ROWS


@pytest.mark.parametrize(
    ("inputs", "groups"), [(1, 0), (10, 0), (32, 0), (33, 3), (50, 5), (100, 9)]
)
def test_few_inputs_are_merged_at_once(inputs: int, groups: int) -> None:
    assert engine.merge_groups(inputs) == groups
