"""The rows benchmarks measure what they say: a round of each at a toy's size, and their rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bench.rows.__main__ as main
from bench import figures, measure, runner
from bench.rows import data, look_ups, make, stages
from bench.rows.function import function

ROWS = 3000


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The benchmarks, to be run as programs within this process."""
    yield Bench(monkeypatch)


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def call(self, name: str, *arguments: object) -> None:
        """Call a function as its process does."""
        self._monkeypatch.setattr("sys.argv", measure.command(name, *arguments)[2:])
        measure.main()

    def table(self, folder: Path, *, leaves: int, jobs: int) -> None:
        self.call("rows.make:sources", folder / "sources", "narrow", jobs, ROWS // jobs)
        given = (folder / "table", "narrow", folder / "sources", leaves, jobs)
        self.call("rows.make:table", *given)

    def figures(self, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
        return {f.figure: f.value for f in figures.parsed(capsys.readouterr().out)}


def test_a_compaction_is_measured_and_its_output_checked(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.table(tmp_path, leaves=1, jobs=3)
    for system, files in (
        ("dormouse", 1),
        ("pyarrow copy", 1),
        ("datafusion merge", 1),
        ("duckdb sort", 1),
    ):
        out = tmp_path / system
        out.mkdir()
        given = (
            "part",
            system,
            0,
            system,
            "compaction",
            "narrow",
            tmp_path / "table" / "data",
            out,
        )
        bench.call("rows.stages:measure", *given)
        found = bench.figures(capsys)
        assert found["files"] == files
        assert found["rows_per_second"] > 0


def test_an_ingest_is_measured_and_cut_into_sixteen(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.call("rows.make:sources", tmp_path / "sources", "wide", 1, ROWS)
    source = tmp_path / "sources" / "000.parquet"
    for system in ("dormouse", "pyarrow copy, no dictionary", "duckdb sort"):
        out = tmp_path / system
        out.mkdir()
        bench.call("rows.stages:measure", "part", system, 0, system, "ingest", "wide", source, out)
        assert bench.figures(capsys)["files"] == 16


def test_worst_cases_of_memory_are_measured_and_a_lost_row_is_none(
    bench: Bench,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number, (name, case) in enumerate(make.CASES.items()):
        monkeypatch.setitem(make.CASES, name, replace(case, inputs=2, rows=40))
        folder = tmp_path / str(number)
        bench.call("rows.make:worst_case", folder, name)
        given = ("worst", name, 0, "dormouse", "compaction", case.kind, folder / "data")
        bench.call("rows.stages:measure", *given, folder / "out")
        assert bench.figures(capsys)["peak_rss_mb"] > 10
    digest = data.expected_of(folder / "data")
    data.save(folder / data.DIGESTS, {data.ALL: digest._replace(rows=82)})
    with pytest.raises(ValueError, match="wrote 80 rows of 82"):
        bench.call("rows.stages:measure", *given, tmp_path / "again")


def test_a_cold_look_up_of_one_key_opens_one_shard(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.table(tmp_path, leaves=16, jobs=1)
    answers = tmp_path / "answers"
    bench.call("rows.look_ups:save_answers", answers, tmp_path / "sources")
    given = (tmp_path / "table" / "data", tmp_path / "table", answers)
    bench.call("rows.look_ups:measure", "part", "dormouse", 0, "one_key", *given)
    assert bench.figures(capsys)["rows"] == 1
    out = tmp_path / "s3-of-look-ups" / "out"
    bench.call("rows.look_ups:on_s3", "part", 0, "one_key", *given, out, 0)
    found = bench.figures(capsys)
    assert found["requests"] == 0, "warm, the block of rows is still decoded"


def test_a_look_up_that_finds_other_rows_is_no_measurement() -> None:
    rows = pa.table({"key": ["a"], "timestamp": [1]})
    answer = data.digest_of(rows)
    asked = look_ups.Question(("a",))
    assert look_ups.take(lambda _: rows, asked, answer)["rows"] == 1
    for other in (rows.slice(1), pa.table({"key": ["a"], "timestamp": [2]})):
        with pytest.raises(ValueError, match="other rows were found"):
            look_ups.take(lambda _, other=other: other, asked, answer)


def test_stages_are_measured_on_an_s3_that_counts(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.table(tmp_path, leaves=1, jobs=2)
    inputs = {
        "compaction": tmp_path / "table" / "data",
        "ingest": tmp_path / "sources" / "000.parquet",
    }
    for stage, given in inputs.items():
        out = tmp_path / stage / "out"
        out.mkdir(parents=True)
        bench.call("rows.stages:on_s3", "part", stage, 0, "narrow", given, out, 0, 0)
        found = bench.figures(capsys)
        assert found["files"] == (1 if stage == "compaction" else 16)
        assert found["gets"] >= 1
        assert found["puts"] >= found["files"]


def test_output_that_lost_rows_or_order_is_no_measurement(tmp_path: Path) -> None:
    rows = pa.table({"key": ["b", "a"], "timestamp": [1, 2]})
    found = data.digest_of(rows)

    def work() -> None:
        pq.write_table(rows, tmp_path / "out.parquet", row_group_size=1)

    with pytest.raises(ValueError, match="wrote 2 rows of 3"):
        stages.report("part", "a", 0, work, data.Digest(3), tmp_path, in_order=False)
    with pytest.raises(ValueError, match="but others"):
        stages.report("part", "a", 0, work, data.Digest(2, 7), tmp_path, in_order=False)
    with pytest.raises(ValueError, match="not in order"):
        stages.report("part", "a", 0, work, found, tmp_path, in_order=True)
    stages.report("part", "a", 0, work, found, tmp_path, in_order=False)


def test_a_digest_is_of_all_values_of_all_rows_in_any_order_and_any_type_of_text() -> None:
    digest = data.digest_of
    rows = pa.table({"key": ["abcdefghij", "abcdefghik", "bbcdefghij"], "n": [1, -2, 3]})
    same = digest(rows)
    assert digest(rows.take([2, 0, 1])) == same
    for kind in (pa.large_string(), pa.string_view()):
        assert digest(rows.set_column(0, "key", rows["key"].cast(kind))) == same
    changed = rows.set_column(1, "n", pa.chunked_array([[1, 2, 3]]))
    swapped = rows.set_column(1, "n", pa.chunked_array([[-2, 1, 3]]))
    doubled = rows.take([0, 0, 2])
    assert len({same, digest(changed), digest(swapped), digest(doubled)}) == 4


def test_order_is_held_within_files_across_batches_and_between_files(tmp_path: Path) -> None:
    def file(name: str, *rows: tuple[str, int]) -> Path:
        keys, numbers = zip(*rows, strict=True)
        pq.write_table(pa.table({"key": keys, "timestamp": numbers}), tmp_path / name)
        return tmp_path / name

    early, late = file("b", ("a", -1), ("a", 1), ("b", 0)), file("a", ("b", 0), ("c", -5))
    assert data.are_in_order([late, early])
    assert data.are_in_order([late, early], batch_rows=1)
    for wrong in ([file("c", ("a", 1), ("a", -1))], [early, file("d", ("a", 5), ("c", 0))]):
        assert not data.are_in_order(wrong)
        assert not data.are_in_order(wrong, batch_rows=1)


def test_a_machine_that_others_keep_busy_makes_figures_unfit() -> None:
    seen = runner.Load()
    seen.add(10, busy_seconds=16, own_seconds=15)
    assert "0.10 cores busy" in seen.sentence()
    assert "UNFIT" not in seen.sentence()
    seen.add(10, busy_seconds=20, own_seconds=5)
    assert seen.sentence().startswith("**UNFIT")
    stat = "cpu  100 10 50 9000 700 5 5 30 0 0"
    assert runner.busy_seconds(stat) == 200 / measure.TICKS


def test_the_machine_is_asked_what_others_do() -> None:
    seen = runner.Load()
    with seen.watched():
        pass
    (cores,) = seen.cores
    assert cores >= 0


def test_round_trips_are_what_a_delay_costs_beyond_a_twentieth() -> None:
    seconds = {"0 ms": [9.5, 0.95], "100 ms": [10.2, 1.4]}
    found = figures.Figures(
        figures.Figure("part", of, at, "seconds", value)
        for of, measured in seconds.items()
        for at, value in enumerate(measured)
    )
    assert main.round_trips(found, "part", "0 ms", "100 ms", 0.1) == pytest.approx(3)
    assert main.round_trips(found, "part", "0 ms", "30 ms", 0.03) is None


def test_each_goal_is_judged_once_all_is_measured(tmp_path: Path) -> None:
    """The parts that goals are of are those that the steps measure, under the same names."""
    names = ("rows_per_second", "seconds", "cpu_seconds_per_million", "peak_rss_mb", "ms")
    names += ("requests", "read_kb", "memory_mb", "rows_to_memory")
    found = []
    for step in main.measured(tmp_path, main.QUICK, stages.ORIGINALS):
        part, of, *rest = step.arguments
        subjects = {
            "rows.stages:on_s3": lambda of, rest: [stages.name_of(*rest[-2:])],
            "rows.look_ups:on_s3": lambda of, rest: [
                f"{rest[-1]} ms, {heat}" for heat in ("cold", "warm")
            ],
            "rows.look_ups:measure": lambda of, rest: [f"{of}, cold", f"{of}, warm"],
        }.get(step.function, lambda of, rest: [of])(of, rest)
        found += [figures.Figure(part, s, 0, name, 1) for s in subjects for name in names]
    goals = main.goals(figures.Figures(found))
    assert {goal.number for goal in goals} == {1, 2, 3, 4}
    assert not [goal.what for goal in goals if goal.measured is None]
    assert len({goal.what for goal in goals}) == len(goals) > 50
    missing = "The original's plan is left out"
    assert missing in main.report(figures.Figures(found), [missing])


def test_functions_run_in_the_environment_that_the_template_gives_them(tmp_path: Path) -> None:
    compact = function("compact")
    assert compact.cores == 2
    assert int(compact.environment["DORMOUSE_MEMORY_BYTES"]) <= compact.memory_mb * 1024**2
    measured = main.measured(tmp_path, main.QUICK)
    steps = [s for s in measured if s.arguments[4:5] == ("compaction",)]
    of = {s.arguments[1]: s.environment for s in steps}
    assert of["dormouse"] == compact.environment
    assert of["duckdb sort"] == {}


def test_a_ratio_is_to_the_floor_of_the_same_round() -> None:
    rates = {"dormouse": [2.0, 40.0, 600.0], "pyarrow copy": [1.0, 10.0, 100.0]}
    found = figures.Figures(
        figures.Figure("part", of, at, "rate", rate)
        for of, measured in rates.items()
        for at, rate in enumerate(measured)
    )
    assert found.ratio("part", "dormouse", "pyarrow copy", "rate") == 4.0
    assert found.ratio("part", "dormouse", "absent", "rate") is None


def test_only_what_is_between_the_marks_of_a_page_is_replaced() -> None:
    one, other = (f"{figures.begin(by)} {by} {figures.END}" for by in ("bench-a", "bench-b"))
    page = f"before {one} between {other} after"
    once = figures.page_with(page, "bench-b", "new")
    assert once == f"before {one} between {figures.begin('bench-b')}\n\nnew\n\n{figures.END} after"
    twice = figures.page_with(figures.page_with(once, "bench-a", "newer"), "bench-b", "b")
    assert [text in twice for text in ("newer", "\n\nb\n\n", " between ")] == [True] * 3
    assert "new\n" not in twice
    with pytest.raises(ValueError, match="has no"):
        figures.page_with(page, "bench-c", "new")


def test_random_keys_fall_into_all_leaves_alike(tmp_path: Path) -> None:
    make.write_source(tmp_path / "source.parquet", "narrow", 16_000, seed=1)
    keys = pq.read_table(tmp_path / "source.parquet")["key"].to_pylist()
    counts = [sum(low <= key < high for key in keys) for low, high in data.leaf_ranges(16)]
    assert sum(counts) == 16_000
    assert all(850 < count < 1150 for count in counts)
