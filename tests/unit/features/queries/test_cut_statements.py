"""A statement that is cut has the rows and types of one that is computed whole."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dormouse.access.visible import VisibleTable
from dormouse.features.queries.stored import load_query
from dormouse.model.state import TableState
from dormouse.results.reading import read_schema
from dormouse.schema.schema import Schema
from dormouse.sql.cut.statement_cut import StatementCut
from dormouse.statements.answering import run_statement
from dormouse.statements.limits import Limits
from dormouse.statements.scans import Tables
from tests.support.world import World
from tests.unit.features.asking import asks, ended, pins, result

ROWS = 300
_IDS = count()


def measured() -> pa.Table:
    """Return rows with all that sums and groups have to mind: nulls, NaN, -0.0, overflow."""
    chosen = random.Random(7)

    def some(*values: object) -> list[object]:
        return [chosen.choice(values) for _ in range(ROWS)]

    return pa.table(
        {
            "k": pa.array([n // 3 for n in range(ROWS)], pa.int64()),
            "m": pa.array([n % 3 for n in range(ROWS)], pa.int32()),
            "s": pa.array(some("a", "b", "B", "ü", "", None), pa.string()),
            "i": pa.array(some(None, 0, -7, 12, 2**31 - 1), pa.int32()),
            "v": pa.array(some(None, 5, -3, 2**62, 2**62 + 1), pa.int64()),
            "f": pa.array(some(None, 0.5, -0.0, 0.0, 3.25, math.nan, -8.0), pa.float64()),
            "g": pa.array(some(None, 0.5, 1.25), pa.float32()),
            "d": pa.array(
                some(None, Decimal("1.25"), Decimal("-7.01"), Decimal("0.33")),
                pa.decimal128(9, 2),
            ),
            "e": pa.array(
                some(None, Decimal("1.000001"), Decimal("-99999999999999999999.5")),
                pa.decimal128(38, 6),
            ),
            "b": pa.array(some(None, True, False), pa.bool_()),
            "at": pa.array([n * 3_600_000_000 for n in range(ROWS)], pa.timestamp("us", "UTC")),
            "y": pa.array(some(None, 3, 4), pa.date32()),
        }
    )


SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "LongType"}],
        "sortKeyFields": [{"name": "m", "type": "IntType"}],
        "valueFields": [
            {"name": name, "type": kind, "nullable": True}
            for name, kind in (
                ("s", "StringType"),
                ("i", "IntType"),
                ("v", "LongType"),
                ("f", "DoubleType"),
                ("g", "FloatType"),
                ("d", {"DecimalType": {"precision": 9, "scale": 2}}),
                ("e", {"DecimalType": {"precision": 38, "scale": 6}}),
                ("b", "BooleanType"),
                ("at", "TimestampType"),
                ("y", "DateType"),
            )
        ],
    }
)


@pytest.fixture(scope="module")
def measures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """An instance with a table of five leaves, with several shards each."""
    world = World(tmp_path_factory.mktemp("cut"))
    world.create(
        "t",
        SCHEMA,
        splits=[(20,), (41,), (60,), (88,)],
        query_cut_bytes=1,
        query_task_bytes=1,
        compaction_files=100,
    )
    rows = measured()
    for number, at in enumerate((0, ROWS // 2)):
        file = pa.BufferOutputStream()
        pq.write_table(rows.slice(at, ROWS // 2), file)
        world.drop(f"t/{number}.parquet", file.getvalue().to_pybytes())
    world.settle()
    world.create("nothing", SCHEMA, query_cut_bytes=1)
    yield world


def whole(world: World, text: str, values: dict[str, Any]) -> pa.Table:
    """Return the rows that one process computes."""

    def opened(name: str, as_of: str) -> tuple[VisibleTable, TableState]:
        table = world.tables.named(name)
        assert table is not None
        store = world.services.store(table)
        state = store.at(version=int(as_of)) if as_of else store.current()
        return VisibleTable.whole(table), state

    tables = Tables(world.services, opened, world.clock.now_ms())
    folder = world.folder / "scratch"
    return run_statement(tables, text, values, folder, Limits()).read_all()


def cut_of(world: World, query_id: str) -> StatementCut:
    """Return what a query was cut into."""
    query = load_query(world.results, query_id)
    assert query is not None and query.statement is not None
    return query.statement


def check(world: World, text: str, *, cut: bool = True, table: str = "t", **values: Any) -> None:
    """Ask a statement over messages, and compare its result with that of one process."""
    name = f"q{next(_IDS)}"
    asks(world, name, sql=text, parameters=values)
    world.settle()
    found, wanted = result(world, name), whole(world, text, values)
    kind = read_schema(ended(world, name).schema, name)
    assert kind.equals(wanted.schema), (text, kind, wanted.schema)
    both = [rows.to_pylist() for rows in (found, wanted)]
    if "ORDER BY" not in text:
        both = [sorted(rows, key=repr) for rows in both]
    assert [shown(row) for row in both[0]] == [shown(row) for row in both[1]], text
    known = cut_of(world, name)
    assert bool(known.partial) is cut, (text, known)
    assert (ended(world, name).tasks > 1) is cut


def shown(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row that can be compared: sums of floats differ in their last bits, and NaN."""

    def one(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return "nan" if math.isnan(value) else float(f"{value:.12g}") + 0.0

    return {name: one(value) for name, value in row.items()}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*), count(s), sum(i), sum(v), sum(f), sum(g), sum(d), sum(e) FROM t "
        "WHERE m < 2",
        "SELECT avg(i), avg(f), avg(g), avg(d), min(f), max(f), min(s), max(at), max(e) FROM t",
        "SELECT bool_and(b), bool_or(b), bit_and(i), bit_or(v), bit_xor(i), min(y) FROM t",
        "SELECT count(*), sum(i), avg(d), count(DISTINCT s), max(s) FROM t WHERE i = 99",
        "SELECT s, count(*) FROM t WHERE i = 99 GROUP BY s",
        "SELECT s, b, count(*) AS n, sum(v) FROM t GROUP BY s, b ORDER BY n DESC, s, b",
        "SELECT f, count(*) FROM t GROUP BY f",
        "SELECT s, count(DISTINCT f), count(DISTINCT g), min(f), max(f) FROM t GROUP BY s",
        "SELECT s, avg(d) FROM t WHERE d <> 1.255 GROUP BY s HAVING sum(d) * 1.5 > 0.125",
        "SELECT k, m FROM t WHERE i IS DISTINCT FROM 12 AND d > -7.015 ORDER BY d - 0.5, k, m",
        "SELECT s, count(DISTINCT i), sum(DISTINCT d), avg(DISTINCT i), count(*), sum(v), "
        "min(DISTINCT v) FROM t GROUP BY s",
        "SELECT s, sum(i) FILTER (WHERE v > 0), avg(d) FILTER (WHERE b) FROM t GROUP BY 1",
        "SELECT upper(s) || '!' AS u, max(v) - min(v) AS span FROM t GROUP BY upper(s) "
        "HAVING count(*) > 20 AND span > 0 ORDER BY u DESC NULLS LAST LIMIT 2 OFFSET 1",
        "SELECT date_trunc('day', at) AS day, extract(hour FROM at), avg(g) FROM t GROUP BY 1, 2",
        "SELECT CASE WHEN i > 3 THEN 'many' ELSE 'few' END AS c, sum(d) / count(*) FROM t "
        "GROUP BY c",
        "SELECT DISTINCT s, b FROM t ORDER BY s, b",
        "SELECT DISTINCT count(*) > 40 FROM t GROUP BY s",
        "SELECT s FROM t GROUP BY s",
        "SELECT k, m, d FROM t WHERE abs(d) > 1 ORDER BY k, m",
        "SELECT * FROM t WHERE length(s) = 1 AND i % 5 = 2",
        "SELECT k + 1 AS n, s FROM t ORDER BY k, m LIMIT 130",
        "SELECT k, m, at FROM t ORDER BY at DESC LIMIT 7 OFFSET 3",
        "SELECT k, m FROM t ORDER BY d DESC NULLS LAST, k, m LIMIT 90",
        "SELECT k, m FROM t ORDER BY v, k, m",
        "SELECT count(*) FROM t WHERE at < now() AND y < current_date GROUP BY s",
        "SELECT f.b, sum(f.d) FROM t FOR VERSION AS OF 2 AS f GROUP BY f.b",
    ],
)
def test_a_statement_that_is_cut_has_the_rows_and_types_of_the_whole(
    measures: World, text: str
) -> None:
    check(measures, text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT a.k FROM t a JOIN t b ON a.k = b.k AND a.m = b.m", "exactly one table"),
        ("SELECT count(*) FROM (SELECT k FROM t)", "not a plain SELECT|sub-query"),
        ("SELECT k, m, sum(i) OVER (PARTITION BY s) FROM t", "window"),
        ("SELECT median(d), stddev(f) FROM t", "MEDIAN"),
        ("SELECT s, count(*) FROM t GROUP BY ROLLUP (s)", "sets of groups"),
        ("SELECT regr_count(i, f) FROM t", "REGR"),
        ("SELECT k AS m, m AS k FROM t ORDER BY k, m", "name of another"),
        ("SELECT sum(log10(g)) FROM t", "not understood"),
        ("SELECT approx_distinct(s) AS n FROM t WHERE k < 50", "APPROX"),
        ("SELECT unnest([k, m]) FROM t", "Unnest|rows of lists"),
        ("SELECT count(DISTINCT i) FILTER (WHERE b) FROM t", "DISTINCT and FILTER"),
        ("SELECT count(*) FROM t", "reads little"),
    ],
)
def test_a_statement_that_may_differ_in_parts_is_computed_whole(
    measures: World, text: str, why: str
) -> None:
    check(measures, text, cut=False)
    found = cut_of(measures, f"q{next(_IDS) - 1}").whole_because
    assert any(part in found for part in why.split("|")), found


def test_parts_have_the_parameters_that_they_name(measures: World) -> None:
    check(
        measures,
        "SELECT s, sum(i) + $more AS n FROM t WHERE v > :least GROUP BY s HAVING count(*) > $rows",
        more=3,
        least=0,
        rows=1,
    )


def test_only_leaves_that_a_condition_needs_are_read(measures: World) -> None:
    check(measures, "SELECT s, count(*) FROM t WHERE k BETWEEN 25 AND 70 GROUP BY s")
    query = load_query(measures.results, f"q{next(_IDS) - 1}")
    assert query is not None
    assert (query.tasks, query.final_task) == (4, 3)


AGGREGATES = [
    *("count(*)", "count({c})", "sum({n})", "avg({n})", "min({c})", "max({c})"),
    *("count(DISTINCT {w})", "sum({n}) FILTER (WHERE {p})", "bool_or(b)", "max({n}) - min({n})"),
    *("sum({n}) / count(*)", "bit_xor(i)"),
]
GROUPS = ["s", "b", "m", "upper(s)", "k / 10", "date_trunc('day', at)", "i % 3", "y", "d", "v"]
TESTS = ["v > 0", "i IS NOT NULL", "k % 7 < 4", "s = 'a' OR b", "k BETWEEN 15 AND 75", "d < 1"]


def random_statement(chosen: random.Random) -> str:
    parts = {
        "c": chosen.choice("sivfgdeb"),
        "n": chosen.choice("ivfgd"),
        "w": chosen.choice("sivdb"),
        "p": chosen.choice(TESTS),
    }
    groups = chosen.sample(GROUPS, chosen.randrange(3))
    aggregates = [a.format(**parts) for a in chosen.sample(AGGREGATES, chosen.randrange(1, 4))]
    items = [f"{text} AS c{n}" for n, text in enumerate([*groups, *aggregates])]
    chosen.shuffle(items)
    where = f" WHERE {chosen.choice(TESTS)}" if chosen.random() < 0.5 else ""
    by = f" GROUP BY {', '.join(groups)}" if groups else ""
    having = f" HAVING {aggregates[0]} IS NOT NULL" if chosen.random() < 0.3 else ""
    return f"SELECT {', '.join(items)} FROM t{where}{by}{having}"


@pytest.mark.parametrize("seed", range(12))
def test_random_aggregates_of_leaves_are_those_of_the_whole(measures: World, seed: int) -> None:
    chosen = random.Random(seed)
    for _ in range(2):
        text = random_statement(chosen)
        if text.endswith("SELECT count(*) AS c0 FROM t"):
            continue
        check(measures, text)


def test_rules_of_a_table_apply_in_each_part(measures: World) -> None:
    cut = {"query_cut_bytes": 1, "query_task_bytes": 1}
    measures.create("ruled", SCHEMA, splits=[(50,)], filters="where(i < 20)", **cut)
    file = pa.BufferOutputStream()
    pq.write_table(measured(), file)
    measures.drop("ruled/1.parquet", file.getvalue().to_pybytes())
    measures.settle()
    check(measures, "SELECT s, count(*), max(i) FROM ruled GROUP BY s", table="ruled")


def test_a_query_that_is_cut_leaves_no_pin(measures: World) -> None:
    table = measures.tables.named("t")
    assert table is not None
    check(measures, "SELECT b, count(*) FROM t GROUP BY b")
    assert not pins(measures, table)
