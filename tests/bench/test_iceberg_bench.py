"""The benchmark of publishing measures what is put, and says which goals are not met."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.figures import Figure, Figures, parsed
from bench.iceberg.__main__ import BOUNDS, KINDS, SHARDS, dollars_a_day, goals, report
from bench.iceberg.publications import FIRST, PART, Publisher


def of_largest(**values: float) -> Figures:
    return Figures(
        Figure(PART, KINDS[1], SHARDS[-1], name, value) for name, value in values.items()
    )


def test_what_is_measured_is_what_was_put(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publisher = Publisher(1000, tmp_path / "published")
    publisher.publish(FIRST, ())
    before = {path for path in tmp_path.rglob("*.*") if path.is_file()}
    added = publisher.change(10)
    publisher.publish("10+10", added)
    figures = Figures(parsed(capsys.readouterr().out))
    new = {path for path in tmp_path.rglob("*.*") if path.is_file()} - before
    assert len(added) == 10
    assert figures.get(PART, FIRST, 1000, "puts") == len(before)
    assert figures.get(PART, "10+10", 1000, "puts") == len(new)
    size = sum(path.stat().st_size for path in new)
    assert figures.get(PART, "10+10", 1000, "size_bytes") == pytest.approx(size, rel=1e-3)
    assert figures.get(PART, "10+10", 1000, "gets") == 2  # the metadata and the list before


def test_a_bound_that_is_passed_is_said() -> None:
    within = dict(BOUNDS)
    assert {goal.verdict for goal in goals(of_largest(**within))} == {"met"}
    for name, bound in BOUNDS.items():
        verdicts = [goal.verdict for goal in goals(of_largest(**{**within, name: bound * 1.1}))]
        assert verdicts.count("NOT MET") == 1
    assert "NOT MET" in "".join(report(of_largest(**{**within, "puts": 6})))
    assert {goal.verdict for goal in goals(Figures([]))} == {"not in this run"}


def test_a_day_costs_the_requests_and_the_function_of_each_minute() -> None:
    figures = of_largest(puts=10, gets=0, cpu_seconds=0)
    free = dollars_a_day(figures, KINDS[1], SHARDS[-1])
    assert free == pytest.approx(1440 * (10 * 5e-6 + 0.2e-6))
    assert dollars_a_day(figures, KINDS[2], SHARDS[-1]) is None
