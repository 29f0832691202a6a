"""Floats in conditions, against a model in plain Python: -0.0 is 0.0, NaN is NaN and above all."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.query.rows import LOOK_UP_BYTES
from dormouse.schema.schema import Schema
from dormouse.storage import FolderStorage
from tests.support.depth import examples
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import ShardTable

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "valueFields": [
            {"name": "d", "type": "DoubleType", "nullable": True},
            {"name": "e", "type": "DoubleType", "nullable": True},
            {"name": "f", "type": "FloatType", "nullable": True},
        ],
    }
)
Row = dict[str, object]
FLOATS = st.sampled_from([math.nan, -math.nan, -0.0, 0.0, 1.5, -1.5, math.inf, -math.inf])
CELLS = st.none() | FLOATS
ROWS = st.lists(st.fixed_dictionaries({"d": CELLS, "e": CELLS, "f": CELLS}), max_size=10)
Value = Callable[[Row], float | None]
Operand = tuple[str, Value]
Test = tuple[str, Callable[[Row], bool | None]]


def rank(value: float) -> tuple[bool, float]:
    """Return what floats are compared by."""
    return (True, 0.0) if math.isnan(value) else (False, value + 0.0)


def column(name: str) -> Operand:
    def value(row: Row) -> float | None:
        cell = row[name]
        assert cell is None or isinstance(cell, float)
        return cell

    return name, value


def calculated(sql: str, operand: Operand, f: Callable[[float], float]) -> Operand:
    def value(row: Row) -> float | None:
        found = operand[1](row)
        return None if found is None else f(found)

    return sql.format(operand[0]), value


def constant(text: str) -> Operand:
    return text, lambda row: float(text)


COLUMNS = st.sampled_from([column(name) for name in "def"])
OPERANDS = (
    COLUMNS
    | st.sampled_from(["0.0", "-0.0", "0", "-1e-400", "1.5", "-1.5", "1e308"]).map(constant)
    | COLUMNS.map(lambda c: calculated("-{}", c, lambda x: 0.0 - x))
    | COLUMNS.map(lambda c: calculated("({} * -1)", c, lambda x: x * -1.0))
    | COLUMNS.map(lambda c: calculated("({} - 1.5)", c, lambda x: x - 1.5))
)
OPERATORS: dict[str, Callable[[object, object], bool]] = {
    "=": lambda x, y: x == y,
    "<>": lambda x, y: x != y,
    "<": lambda x, y: x < y,  # type: ignore[operator]  # ranks, both
    "<=": lambda x, y: x <= y,  # type: ignore[operator]
    ">": lambda x, y: x > y,  # type: ignore[operator]
    ">=": lambda x, y: x >= y,  # type: ignore[operator]
}


def compared(left: Operand, op: str, right: Operand) -> Test:
    def holds(row: Row) -> bool | None:
        x, y = left[1](row), right[1](row)
        return None if x is None or y is None else OPERATORS[op](rank(x), rank(y))

    return f"{left[0]} {op} {right[0]}", holds


def between(operand: Operand, low: str, high: str) -> Test:
    def holds(row: Row) -> bool | None:
        x = operand[1](row)
        return None if x is None else rank(float(low)) <= rank(x) <= rank(float(high))

    return f"{operand[0]} BETWEEN {low} AND {high}", holds


def among(operand: Operand, values: Sequence[str]) -> Test:
    def holds(row: Row) -> bool | None:
        x = operand[1](row)
        return None if x is None else rank(x) in {rank(float(value)) for value in values}

    return f"{operand[0]} IN ({', '.join(values)})", holds


def distinct(left: Operand, right: Operand) -> Test:
    def holds(row: Row) -> bool | None:
        x, y = ((None if v is None else rank(v)) for v in (left[1](row), right[1](row)))
        return x != y

    return f"{left[0]} IS DISTINCT FROM {right[0]}", holds


def unless(operand: Operand, value: str) -> Test:
    def holds(row: Row) -> bool | None:
        x = operand[1](row)
        return x is None or rank(x) == rank(float(value))

    return f"nullif({operand[0]}, {value}) IS NULL", holds


CONSTANTS = st.sampled_from(["0.0", "-0.0", "1.5", "-1.5"])
TESTS = (
    st.builds(compared, COLUMNS, st.sampled_from(list(OPERATORS)), OPERANDS)
    | st.builds(compared, OPERANDS, st.sampled_from(list(OPERATORS)), COLUMNS)
    | st.builds(between, COLUMNS, CONSTANTS, CONSTANTS)
    | st.builds(among, COLUMNS, st.lists(CONSTANTS, min_size=1, max_size=3))
    | st.builds(distinct, COLUMNS, OPERANDS)
    | st.builds(unless, COLUMNS, CONSTANTS)
)


def bits(row: Row) -> list[object]:
    cells = (row[name] for name in "kdef")
    return [struct.pack(">d", cell) if isinstance(cell, float) else cell for cell in cells]


@pytest.mark.parametrize("look_up_bytes", [0, LOOK_UP_BYTES])
@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(rows=ROWS, tests=st.lists(TESTS, min_size=1, max_size=4))
def test_conditions_on_floats_find_what_the_model_finds_with_the_bits_that_were_stored(
    look_up_bytes: int, rows: list[Row], tests: list[Test]
) -> None:
    rows = [{"k": k, **row} for k, row in enumerate(rows)]
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        write_small_blocks(patch, 2)
        table = ShardTable(FolderStorage(Path(folder) / "data"), SCHEMA, Path(folder))
        table.add(rows)
        for sql, holds in tests:
            found = table.rows(where=sql, look_up_bytes=look_up_bytes)
            assert [bits(row) for row in found] == [bits(row) for row in rows if holds(row)], sql


@pytest.mark.parametrize("look_up_bytes", [0, LOOK_UP_BYTES])
@pytest.mark.parametrize("zero", ["0", "-0.0", "-1e-400", "1e-400"])
def test_every_zero_that_can_be_written_equals_every_zero_that_is_stored(
    tmp_path: Path, zero: str, look_up_bytes: int
) -> None:
    table = ShardTable(FolderStorage(tmp_path / "data"), SCHEMA, tmp_path)
    table.add([{"k": k, "d": d, "e": None, "f": d} for k, d in enumerate((-0.0, 0.0, 1.5))])
    for sql in ("d = {}", "f = {}", "d IN ({}, 7.5)", "d BETWEEN {} AND {}", "f <= {}"):
        found = table.rows(where=sql.format(zero, zero), look_up_bytes=look_up_bytes)
        assert [row["k"] for row in found] == [0, 1], sql
