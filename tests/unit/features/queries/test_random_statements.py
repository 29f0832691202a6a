"""The same statement has the same rows by every way, and those that DuckDB has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.access import VisibleTable
from dormouse.rows.predicates import Predicate
from dormouse.sql.conditions import parse_condition
from dormouse.statements import running
from dormouse.statements.limits import Limits
from dormouse.statements.running import run_statement
from dormouse.statements.tables import Opened, SqlTables
from tests.support.world import World
from tests.unit.features.asking import asks, result
from tests.unit.features.queries.random_statements import (
    OTHER,
    ROWS,
    SCHEMA,
    Maker,
    Statement,
    duck,
    normal,
    others,
    rows,
    to_duck,
)

_IDS = count()


@dataclass(frozen=True)
class Both:
    """The same rows in an instance and in DuckDB."""

    world: World
    duck: duckdb.DuckDBPyConnection

    def expected(self, made: Statement) -> list[tuple[str, ...]]:
        found = self.duck.execute(to_duck(made.text)).fetchall()
        return normal(found, is_ordered=made.is_ordered)


def make_both(folder: Any) -> Both:
    world = World(folder)
    # the version of `o` is that of `t`, which has two files
    world.create("o", OTHER, compaction_files=100)
    half = others().num_rows // 2
    parts = [("o/0", others().slice(0, half)), ("o/1", others().slice(half))]
    splits = [(20,), (41,), (60,)]
    world.create("t", SCHEMA, splits=splits, compaction_files=100)
    parts += [("t/0", rows().slice(0, ROWS // 2)), ("t/1", rows().slice(ROWS // 2))]
    for name, part in parts:
        file = pa.BufferOutputStream()
        pq.write_table(part, file)
        world.drop(f"{name}.parquet", file.getvalue().to_pybytes())
    world.settle()
    return Both(world, duck())


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    found = make_both(tmp_path_factory.mktemp("random"))
    yield found
    found.duck.close()


def whole(world: World, text: str, values: Mapping[str, object]) -> pa.Table:
    """Return the rows of a statement that one process computes."""

    def opened(name: str, as_of: str) -> Opened:
        table = world.tables.named(name)
        assert table is not None
        store = world.services.store(table)
        state = store.at(version=int(as_of)) if as_of else store.current()
        return VisibleTable.whole(table), state

    tables = SqlTables(world.services, opened, world.clock.now_ms())
    return run_statement(tables, text, values, world.folder / "scratch", Limits()).read_all()


def streamed(world: World, made: Statement) -> pa.Table:
    return whole(world, made.text, {})


def from_files(world: World, made: Statement) -> pa.Table:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(running, "LEAST_BYTES", 0)
        return whole(world, made.text, {})


def with_parameters(world: World, made: Statement) -> pa.Table:
    return whole(world, made.asked, made.values)


def at_a_version(world: World, made: Statement) -> pa.Table:
    table = world.tables.named("t")
    assert table is not None
    version = world.services.store(table).current().version
    named = f"FROM t FOR VERSION AS OF {version}"
    asked = re.sub(r"(?<!DISTINCT )FROM t\b(?!\.)", named, made.text)
    return whole(world, asked, {})


def over_messages(world: World, made: Statement) -> pa.Table:
    name = f"random{next(_IDS)}"
    asks(world, name, sql=made.text)
    world.settle()
    return result(world, name)


WAYS: tuple[Callable[[World, Statement], pa.Table], ...] = (
    from_files,
    streamed,
    with_parameters,
    at_a_version,
    over_messages,
)


def cells(table: pa.Table) -> list[tuple[object, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def agree(both: Both, made: Statement, way: Callable[[World, Statement], pa.Table]) -> None:
    found = normal(cells(way(both.world, made)), is_ordered=made.is_ordered)
    assert found == both.expected(made), (way.__name__, made.text)


def selected(text: str) -> list[tuple[object, ...]]:
    """Return the keys of the rows for which a condition is true."""
    matching = Predicate(parse_condition(text, SCHEMA), SCHEMA).apply(iter(rows().to_batches()))
    return [row for batch in matching for row in cells(pa.table(batch).select(["k", "m"]))]


def agrees_with_condition(both: Both, condition: str) -> None:
    made = Statement(f"SELECT t.k, t.m FROM t WHERE {condition}", "", {})
    plain = condition.replace("t.", "")
    assert normal(selected(plain), is_ordered=False) == both.expected(made), condition


@pytest.mark.parametrize("seed", range(24))
def test_a_random_statement_has_the_rows_of_duckdb_by_every_way(both: Both, seed: int) -> None:
    made = Maker(seed).statement()
    for way in {WAYS[seed % len(WAYS)], WAYS[seed // len(WAYS) % len(WAYS)]}:
        agree(both, made, way)


@pytest.mark.parametrize("seed", range(20))
def test_a_random_condition_selects_the_rows_of_the_statement(both: Both, seed: int) -> None:
    agrees_with_condition(both, Maker(1000 + seed).condition())


@pytest.mark.parametrize("seed", range(0, 24, 6))
def test_a_random_statement_can_be_explained(both: Both, seed: int) -> None:
    assert whole(both.world, f"EXPLAIN {Maker(seed).statement().text}", {}).num_rows
