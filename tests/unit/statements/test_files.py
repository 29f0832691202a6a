"""What DataFusion makes of the order of files: rows that are sorted are not sorted again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.schema.schema import Field, Primitive, Schema
from dormouse.statements.child.planning import FileUse, file_use
from dormouse.statements.child.session import open_session, plan, register_files

FILES, ROWS = 6, 500
SCHEMA = Schema(
    row_keys=(Field("meter", Primitive.LONG),),
    sort_keys=(Field("at", Primitive.LONG),),
    values=(Field("watts", Primitive.DOUBLE), Field("kind", Primitive.STRING, nullable=True)),
)
ALL = FileUse(statistics=True, bounds=True, filters=True)


def physical_plan(folder: Path, text: str) -> str:
    """The plan of a statement over files that follow each other in the order of keys."""
    for number in range(FILES):
        rows = {
            "meter": [number * ROWS + n // 5 for n in range(ROWS)],
            "at": [n % 5 for n in range(ROWS)],
            "watts": [n / 2 for n in range(ROWS)],
            "kind": ["grid" if n % 2 else None for n in range(ROWS)],
        }
        name = f"{number * 5 % 7}.parquet"  # their names say nothing of their order
        pq.write_table(pa.table(rows), folder / name)
    context = open_session(str(folder), 2**28, 2, ALL)
    register_files(context, "readings", str(folder), SCHEMA, ALL)
    frame = plan(context, text, {})
    assert frame.to_arrow_table().num_rows
    return frame.execution_plan().display_indent()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM readings ORDER BY meter, at",
        "SELECT at, kind FROM readings WHERE meter > 700 ORDER BY meter",
        "SELECT meter, lag(watts) OVER (PARTITION BY meter ORDER BY at) FROM readings",
        "SELECT meter, at, watts FROM readings ORDER BY meter, at LIMIT 3",
    ],
)
def test_rows_in_the_order_of_keys_are_not_sorted(tmp_path: Path, text: str) -> None:
    assert "SortExec" not in physical_plan(tmp_path, text)


def test_groups_by_the_first_keys_are_complete_one_after_the_other(tmp_path: Path) -> None:
    text = "SELECT meter, sum(watts) FROM readings GROUP BY meter"
    assert physical_plan(tmp_path, text).count("ordering_mode=Sorted") == 2


def test_rows_in_another_order_are_sorted(tmp_path: Path) -> None:
    for order in ("at", "meter, watts", "meter DESC"):
        text = f"SELECT meter, at, watts FROM readings ORDER BY {order}"
        assert "SortExec" in physical_plan(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "known", "unknown"),
    [
        ("SELECT meter FROM readings ORDER BY watts DESC LIMIT 3", True, False),
        ("SELECT count(*) FROM readings WHERE watts > 3", True, False),
        ("SELECT max(watts) FROM readings", False, False),
        ("SELECT sum(watts) FROM readings GROUP BY kind", True, False),
        ("SELECT x FROM (SELECT watts AS x FROM readings) ORDER BY x LIMIT 3", True, False),
        ("SELECT max(x) FROM (SELECT watts AS x FROM readings)", False, False),
        ("SELECT count(*) FROM readings GROUP BY kind", True, True),
    ],
)
def test_statistics_of_floats_are_used_where_no_nan_is_known(
    tmp_path: Path, text: str, known: bool, unknown: bool
) -> None:
    pq.write_table(
        pa.table({"meter": [1], "at": [1], "watts": [1.5], "kind": ["a"]}), tmp_path / "a"
    )
    context = open_session(str(tmp_path), 2**28, 2)
    register_files(context, "readings", str(tmp_path), SCHEMA, ALL)
    logical = plan(context, text, {}).optimized_logical_plan()
    for no_nan, is_used in (({"watts"}, known), ({"kind"}, unknown), (set(), unknown)):
        assert file_use(logical, {"readings": SCHEMA}, {"readings": no_nan}).statistics == is_used


def test_the_ends_of_all_rows_leave_out_none_of_those_with_a_condition(tmp_path: Path) -> None:
    rows = 20_000
    for number in range(FILES):
        kind = "z" if number == 0 else "b"
        of_file = {"meter": [number] * rows, "at": list(range(rows)), "kind": [kind] * rows}
        watts = pa.array([0.5] * rows)
        table = pa.table({**of_file, "watts": watts}).select(["meter", "at", "watts", "kind"])
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=2_000)
    context = open_session(str(tmp_path), 2**28, 2, ALL)
    register_files(context, "readings", str(tmp_path), SCHEMA, ALL)
    last = f"max(kind) FILTER (WHERE meter = {FILES - 1})"
    (row,) = (
        plan(context, f"SELECT {last}, max(kind) FROM readings", {}).to_arrow_table().to_pylist()
    )
    assert list(row.values()) == ["b", "z"]
