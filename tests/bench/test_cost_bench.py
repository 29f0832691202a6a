"""The benchmark of costs says what it measures: prices, the limit of CPU time, what to choose."""

from __future__ import annotations

import os
import re
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest

from bench import measure
from bench.cost import prices, stages
from bench.cost.__main__ import (
    FUNCTIONS,
    SIZES_MB,
    WORK,
    Cost,
    choice,
    choice_for_all,
    report,
    steps,
)
from bench.cost.stages import limited, watch
from bench.figures import Figures, parsed
from bench.rows.function import Function, default_mb, function

ROOT = Path(__file__).parents[2]
ROWS = 3000


def cost(memory_mb: int, dollars: float, rate: float, peak_mb: float = 300) -> Cost:
    return Cost(memory_mb, rate, 0.3, peak_mb, dollars / 2, dollars / 2, 0.0)


class Machine:
    """A process that uses all of its cores while it runs, and a clock."""

    def __init__(self, cores: int, ends_s: float) -> None:
        self.cores, self.ends_s = cores, ends_s
        self.now_s = self.used_s = 0.0
        self.signals: list[signal.Signals] = []

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.signals[-1:] != [signal.SIGSTOP]:
            self.used_s += self.cores * seconds

    def used(self) -> float:
        if self.now_s >= self.ends_s:
            raise ProcessLookupError
        return self.used_s


@pytest.mark.parametrize("memory_mb", SIZES_MB)
def test_a_process_gets_the_share_of_time_that_a_function_of_its_memory_gets(
    memory_mb: int,
) -> None:
    given = Function({}, memory_mb)
    machine = Machine(given.cores, ends_s=60)
    watch(
        given.cpu_share, machine.used, machine.signals.append, lambda: machine.now_s, machine.sleep
    )
    assert machine.used_s / machine.now_s == pytest.approx(memory_mb / 1769, rel=0.01)
    assert machine.signals[-1] == signal.SIGCONT


def test_a_watcher_lets_a_process_go_on_when_it_is_interrupted() -> None:
    machine = Machine(2, ends_s=60)

    def interrupted(seconds: float) -> None:
        machine.sleep(seconds)
        if machine.signals:
            raise SystemExit

    with pytest.raises(SystemExit):
        watch(0.5, machine.used, machine.signals.append, lambda: machine.now_s, interrupted)
    assert machine.signals == [signal.SIGSTOP, signal.SIGCONT]


def test_a_limited_process_goes_on_after_the_block() -> None:
    with limited(0.5):
        total = sum(range(10_000))
    assert total == 49_995_000


def test_a_function_costs_its_memory_and_scratch_for_as_long_as_it_runs() -> None:
    second = prices.function_dollars(1, 1024, 512) - prices.INVOCATION
    assert second == pytest.approx(0.0000133334)
    assert prices.function_dollars(2, 2048, 512) - prices.INVOCATION == pytest.approx(4 * second)
    more = prices.function_dollars(1, 1024, 10_240) - prices.function_dollars(1, 1024, 512)
    assert more == pytest.approx(9.5 * 0.0000000309)


def test_parts_cost_as_puts_and_a_request_without_a_price_is_an_error() -> None:
    asked = {"GetObject": 1000, "UploadPart": 100, "PutObject": 100, "DeleteObjects": 7}
    assert prices.request_dollars(asked) == pytest.approx(0.0004 + 0.0005 + 0.0005)
    with pytest.raises(KeyError, match="CopyObject"):
        prices.request_dollars({"GetObject": 1, "CopyObject": 1})


def test_the_quickest_of_those_that_cost_little_more_is_chosen() -> None:
    small, middle, large = cost(1024, 4.0, 1.0), cost(1769, 4.9, 1.5), cost(3008, 5.1, 2.0)
    assert choice([small, middle, large]) is middle
    assert choice([cost(1024, 4.0, 9.0, peak_mb=1100), middle]) is middle
    assert choice([cost(1024, 4.0, 9.0, peak_mb=1100)]) is None


def test_one_memory_is_chosen_for_all_by_what_it_costs_on_the_average() -> None:
    dear = [cost(1024, 100.0, 1.0), cost(1769, 110.0, 1.1), cost(3008, 140.0, 1.2)]
    cheap = [cost(1024, 1.0, 10.0), cost(1769, 1.3, 15.0), cost(3008, 1.8, 20.0)]
    assert choice_for_all([dear, cheap]) == 1769  # 1.2 and 1.6 times the least
    assert choice_for_all([dear]) == 1769
    assert choice_for_all([dear, cheap, [cost(1769, 1.0, 1.0)]]) == 1769
    too_small = cost(1769, 1.0, 1.0, peak_mb=2000)
    assert choice_for_all([dear, [cost(1024, 9.0, 1.0), too_small]]) == 1024
    assert choice_for_all([dear, [too_small]]) is None


def test_sorting_has_the_same_part_of_each_memory() -> None:
    for stage in FUNCTIONS.values():
        for memory_mb in SIZES_MB:
            sized = function(stage, memory_mb)
            given_bytes = int(sized.environment["DORMOUSE_MEMORY_BYTES"])
            assert sized.memory_mb == memory_mb
            assert given_bytes == pytest.approx(2**30 * memory_mb / 3008, abs=1)


def test_the_template_gives_the_memory_that_the_page_chooses() -> None:
    page = (ROOT / "bench" / "results" / "cost.md").read_text()
    (chosen,) = re.findall(r"\*\*To choose for all: ([\d,]+) MB\.\*\*", page)
    assert default_mb() == int(chosen.replace(",", ""))


def test_every_stage_is_measured_with_every_memory_after_its_input_is_made() -> None:
    folder = Path("/bench")
    made: set[str] = set()
    measured = set()
    for step in steps(folder, True):
        given = [a for a in map(str, step.arguments) if a.startswith("/bench/")]
        if step.function.startswith("rows.make"):
            made.add(given[0])
            given = given[1:]
        assert {"/".join(path.split("/")[:3]) for path in given} <= made
        if step.function == "cost.stages:measure":
            measured.add((step.arguments[1], step.arguments[3], step.arguments[-1]))
    wanted = {(stage, kind, memory_mb) for stage, kind, _ in WORK for memory_mb in SIZES_MB}
    assert measured == wanted


def test_a_stage_is_measured_and_its_price_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole way at a toy's size, without the limit, which would stop the tests themselves."""
    cores: list[int] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, given: cores.append(len(given)))
    monkeypatch.setattr(stages, "limited", nullcontext)
    monkeypatch.setattr(measure, "peak_bytes", lambda: 500e6)  # not that of the tests themselves

    def run(name: str, *arguments: object) -> None:
        monkeypatch.setattr("sys.argv", measure.command(name, *arguments)[2:])
        measure.main()

    run("rows.make:sources", tmp_path / "sources", "narrow", 2, ROWS // 2)
    run("rows.make:table", tmp_path / "table", "narrow", tmp_path / "sources", 1, 2)
    inputs = {
        "compaction": tmp_path / "table" / "data",
        "ingest": tmp_path / "sources" / "000.parquet",
        "export": tmp_path / "table" / "data",
    }
    capsys.readouterr()
    for stage, given in inputs.items():
        (out := tmp_path / stage).mkdir()
        run("cost.stages:measure", f"{stage} of rows", stage, 0, "narrow", given, out, 1024)
    assert cores == [1, 1, 1]
    figures = Figures(parsed(capsys.readouterr().out))
    text = "\n\n".join(report(figures))
    for stage in inputs:
        assert figures.get(f"{stage} of rows", "1,024 MB", 0, "PutObject")
        assert f"### {stage.capitalize()} of rows" in text
    assert "**To choose for all: 1,024 MB.**" in text


def test_the_page_has_the_marks_and_is_linked() -> None:
    page = (ROOT / "bench" / "results" / "cost.md").read_text()
    assert "<!-- figures: made by make bench-cost -->" in page
    assert "results/cost.md)" in (ROOT / "docs" / "cost.md").read_text()
    assert stages.PERIOD_SECONDS == 0.1  # as the page says
