"""Statements that an engine has answered with wrong rows, each by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.features.queries.random_statements import Statement
from tests.unit.features.queries.test_random_statements import (
    Both,
    agree,
    agrees_with_condition,
    from_files,
    make_both,
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    found = make_both(tmp_path_factory.mktemp("exact"))
    yield found
    found.duck.close()


@pytest.mark.parametrize(
    "text",
    [
        "SELECT k, m FROM t WHERE d = 9999999.99",
        "SELECT k, m FROM t WHERE t.d IN (9999999.99, 1e-6) AND t.f > -1e300",
        "SELECT s, sum(d) AS a FROM t GROUP BY s HAVING sum(d) > 0.1 AND count(DISTINCT i) > 1",
        "SELECT k, m FROM t WHERE e > 0.5 AND d < h",
        "SELECT k, m FROM t WHERE i IS DISTINCT FROM 3 AND b",
        "SELECT s, min(f) AS a, max(f) AS c, min(g) AS e, max(g) AS h FROM t GROUP BY s, b",
        "SELECT k, m, count(*) OVER (PARTITION BY f, s) AS a FROM t",
        "SELECT k, m FROM t ORDER BY f NULLS LAST, t.k, t.m",
        "SELECT count(DISTINCT f) AS a, sum(DISTINCT i) AS c FROM t",
        "SELECT k, m FROM t WHERE f * 2 IN (0.0, 1.0, 7.0, 8.0)",
        "SELECT CASE f WHEN 0.0 THEN 1 END AS a, nullif(f, -0.0) AS c FROM t",
        "SELECT (- f) AS a, count(*) AS c FROM t GROUP BY (- f)",
        "SELECT k, m FROM t WHERE f - h > 0.5",
        "SELECT k, m FROM t WHERE s NOT IN ('ab') OR s NOT IN ('B', 'é')",
        "SELECT k, m, NOT (i IN (1, 0) AND i IN (3, 5)) AS a FROM t",
        "SELECT i AS a FROM t UNION SELECT f FROM o WHERE f < 5",
        "SELECT d AS a FROM t UNION ALL SELECT d FROM o",
        "SELECT CASE WHEN b THEN d ELSE 1.255 END AS a FROM t",
    ],
)
def test_a_statement_has_the_rows_that_its_words_mean(both: Both, text: str) -> None:
    agree(both, Statement(text, text, {}), from_files)


@pytest.mark.parametrize(
    "condition",
    [
        "t.s NOT IN ('ab') OR t.s NOT IN ('B', 'é')",
        "NOT (t.i IN (1, 0) AND t.i IN (3, 5))",
        "NOT ((t.s = 'ab' OR t.s = 'B') AND t.s IN ('é', 'ab'))",
    ],
)
def test_null_is_neither_in_lists_of_a_condition_nor_not(both: Both, condition: str) -> None:
    agrees_with_condition(both, condition)
