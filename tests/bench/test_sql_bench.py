"""The benchmark of SQL: results are compared, and each query is judged cold and warm."""

from __future__ import annotations

import datetime as dt

import pytest

from bench.figures import Figure, Figures
from bench.sql import __main__ as report
from bench.sql.run import QUERIES, SYSTEMS, WARM, Query, digest


def measured(**changed: float) -> Figures:
    """Return figures of all queries; those of Dormouse for some of them are `changed`."""
    figures = []
    for begins in ("", f"{WARM} "):
        for query in QUERIES:
            for system in SYSTEMS:
                name = f"{begins}{query.name}"
                figures.append(Figure(name, system, 1000, "cpu_seconds", 0.01))
                held = changed.get(name, 7.0) if system == "dormouse" else 7.0
                figures.append(Figure(name, system, 1000, "digest", held))
    return Figures(figures)


def test_each_query_is_judged_cold_and_warm() -> None:
    goals = list(report.goals(measured()))
    assert [goal.what.partition(",")[0] for goal in goals] == ["cold"] * 12 + [WARM] * 12
    assert {goal.verdict for goal in goals} == {"met"}


@pytest.mark.parametrize("name", ["filter", "warm filter"])
def test_a_result_that_differs_from_that_of_other_systems_is_named(name: str) -> None:
    assert "same results" in "".join(report.report(measured()))
    assert f"Results differ, or are missing: {name}." in "".join(
        report.report(measured(**{name: 8.0}))
    )


def test_a_digest_is_of_all_values_in_any_order_and_without_the_last_digits_of_floats() -> None:
    query, instant = QUERIES[0], dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    rows = [("a", 1, 0.1 + 0.2, instant), ("b", 2, None, instant)]
    same = [("b", 2, None, instant.replace(tzinfo=None)), ("a", 1, 0.3, instant)]
    assert digest(list(rows), query) == digest(list(same), query)
    others = [("a", 1, 0.3, instant), ("b", 3, None, instant)]
    assert digest(list(rows), query) != digest(list(others), query)


def test_only_the_column_that_all_right_results_share_is_compared() -> None:
    query = Query("top", "SELECT a, b FROM t ORDER BY b LIMIT 1", compared=1)
    assert digest([("a", 1)], query) == digest([("b", 1)], query) != digest([("a", 2)], query)
