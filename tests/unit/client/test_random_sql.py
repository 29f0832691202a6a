"""Random statements over random tables: the rows that DuckDB returns for the same words.

Left out is what the two mean differently: `/` of whole numbers, which DuckDB makes a double, and
the place of nulls in an order where none is said.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.client.instance import Instance
from tests.support.depth import examples

TABLES = {
    "t": ("a:string, b:long, s:string?, f:double?, day:date?, at:timestamp?, ok:boolean?", ("a",)),
    "u": ("a:string, c:int, d:decimal(9, 2)?, w:string?", ("a", "c")),
}
WORDS = ["", "ab", "b", "it's", "100%_", "é", "Z"]


def rows_of_t(count: int) -> list[dict[str, object]]:
    return [
        {
            "a": WORDS[n % 5],
            "b": n * 7919 % 23 - 11,
            "s": None if n % 7 == 0 else WORDS[n * 31 % 7],
            "f": None if n % 5 == 0 else (n * 17 % 40) / 4 - 3,
            "day": None if n % 11 == 0 else dt.date(2024, 1, 1) + dt.timedelta(days=n * 13 % 90),
            "at": None
            if n % 13 == 0
            else dt.datetime(2024, 2, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=n * 997),
            "ok": None if n % 3 == 0 else n % 2 == 0,
        }
        for n in range(count)
    ]


def rows_of_u(count: int) -> list[dict[str, object]]:
    return [
        {
            "a": WORDS[n * 3 % 6],
            "c": n - 7,
            "d": None if n % 4 == 0 else Decimal(n * 37 % 1000) / 100,
            "w": None if n % 3 == 0 else WORDS[n % 7],
        }
        for n in range(count)
    ]


@dataclass(frozen=True)
class Both:
    """The same rows in an instance and in DuckDB."""

    mice: Instance
    duck: duckdb.DuckDBPyConnection

    def agree(self, text: str) -> None:
        """Check that both return the same rows."""
        expected = normal(self.duck.execute(text).fetchall())
        table = self.mice.sql(text).to_arrow()
        rows = [tuple(row) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)]
        assert normal(rows) == expected, text


def normal(rows: list[tuple[object, ...]]) -> list[tuple[str, ...]]:
    return sorted(tuple(map(cell, row)) for row in rows)


def cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float | Decimal):
        return f"{float(value) + 0.0:.9g}"
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat()
    return str(value)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder: Path = tmp_path_factory.mktemp("random") / "mice"
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    with Instance.open(folder, background=False) as mice:
        for name, rows in (("t", rows_of_t(400)), ("u", rows_of_u(60))):
            columns, keys = TABLES[name]
            splits = ["ab", "it's"] if name == "t" else []
            table = mice.create_table(name, columns, row_keys=keys, split_points=splits)
            half = len(rows) // 2
            for part in (rows[:half], rows[half:]):
                table.ingest(pa.Table.from_pylist(part))
            stored = table.query().to_arrow()
            duck.register(name, stored)
        yield Both(mice, duck)


def form(text: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda found: text.format(*found))


numbers = st.deferred(
    lambda: st.one_of(
        st.sampled_from(["t.b", "t.b", "t.f", "length(t.s)", "EXTRACT(MONTH FROM t.day)"]),
        st.integers(-12, 12).map(str),
        form("({} + {})", numbers, numbers),
        form("({} * 2)", numbers),
        form("coalesce({}, {})", numbers, numbers),
        form("CASE WHEN {} THEN {} ELSE {} END", tests, numbers, numbers),
    )
)
texts = st.sampled_from(
    ["t.a", "t.s", "lower(t.s)", "substr(t.s, 1, 1)", "(t.a || t.s)", "coalesce(t.s, t.a)"]
)
quoted = st.sampled_from(WORDS).map(lambda word: "'" + word.replace("'", "''") + "'")
compared = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"])
dates = st.dates(dt.date(2023, 12, 25), dt.date(2024, 4, 5)).map(str)
tests = st.deferred(
    lambda: st.one_of(
        form("({} {} {})", numbers, compared, numbers),
        form("({} {} {})", texts, compared, quoted),
        form("(t.a {} {})", compared, quoted),
        form("(t.a >= {} AND t.a < {})", quoted, quoted),
        form("(t.a IN ({}, {}))", quoted, quoted),
        form("(t.b BETWEEN {} AND {})", numbers, numbers),
        form("({} LIKE '%b%')", texts),
        form("(t.day {} DATE '{}')", compared, dates),
        form("(t.day {} '{}')", compared, dates),
        form("(t.at {} TIMESTAMP '{}' + INTERVAL '3 days')", compared, dates),
        form("(date_trunc('month', t.at) {} TIMESTAMP '2024-02-01')", compared),
        form("(t.at::date {} DATE '{}')", compared, dates),
        st.sampled_from(["t.ok", "t.s IS NULL", "t.f IS NOT NULL", "t.ok IS NOT TRUE"]),
        form("(NOT {})", tests),
        form("({} AND {})", tests, tests),
        form("({} OR {})", tests, tests),
        st.just("t.a IN (SELECT a FROM u WHERE c > 3)"),
        st.just("EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > 2)"),
    )
)
folds = st.sampled_from(
    [
        *("count(*)", "count(t.s)", "count(DISTINCT t.s)", "sum(t.b)", "min(t.a)", "max(t.at)"),
        *("avg(t.f)", "min(t.f)", "max(t.day)", "sum(t.f)", "bool_or(t.ok)"),
        "count(*) FILTER (WHERE t.b > 0)",
    ]
)
groups = st.sampled_from(["t.a", "t.s", "t.ok", "date_trunc('month', t.at)", "t.b % 3"])
windows = st.sampled_from(
    [
        "row_number() OVER (PARTITION BY t.a ORDER BY t.b, t.at NULLS LAST)",
        "sum(t.b) OVER (PARTITION BY t.s)",
        "lag(t.b) OVER (PARTITION BY t.a ORDER BY t.b, t.at NULLS LAST)",
        "rank() OVER (ORDER BY t.b)",
    ]
)
joined = st.sampled_from(
    [
        "t",
        "t JOIN u ON t.a = u.a",
        "t LEFT JOIN u ON t.a = u.a AND t.b = u.c",
        "t JOIN u ON t.b = u.c",
        "t JOIN (SELECT a, max(d) AS d FROM u GROUP BY a) u ON t.a = u.a",
    ]
)
ORDER = "t.a, t.b, t.s NULLS LAST, t.f NULLS LAST, t.at NULLS LAST, t.day NULLS LAST"
selects = st.one_of(
    form("SELECT t.a, t.b, {} AS n, {} AS w FROM t WHERE {}", numbers, texts, tests),
    form("SELECT {} AS x, {} AS y FROM {} WHERE {}", folds, folds, joined, tests),
    form(
        "SELECT {0} AS k, {1} AS x, {2} AS y FROM {3} WHERE {4} GROUP BY {0}",
        groups,
        folds,
        folds,
        joined,
        tests,
    ),
    form(
        "SELECT {0}, count(*) FROM t GROUP BY {0} HAVING sum(t.b) > {1}",
        groups,
        st.integers(-40, 40).map(str),
    ),
    form(
        "SELECT t.a, t.b, t.at FROM t WHERE {} ORDER BY " + ORDER + " LIMIT {}",
        tests,
        st.integers(0, 30).map(str),
    ),
    form("SELECT t.a, t.b FROM t WHERE {} ORDER BY t.a DESC, t.b DESC LIMIT 9", tests),
    form("SELECT t.a, t.b, t.at, {} AS w FROM t WHERE {}", windows, tests),
    form("SELECT t.a FROM t WHERE {} UNION SELECT w FROM u", tests),
    form("SELECT t.a, t.b FROM t WHERE {} EXCEPT SELECT a, c FROM u", tests),
    form("SELECT t.a FROM t WHERE {} INTERSECT SELECT a FROM u", tests),
    form("WITH t AS (SELECT * FROM t WHERE {}) SELECT t.a, {} FROM t GROUP BY t.a", tests, folds),
)


@settings(
    deadline=None,
    max_examples=examples(30),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=selects)
def test_a_statement_returns_the_rows_that_duckdb_returns(both: Both, text: str) -> None:
    both.agree(text)
