"""The rows benchmarks measure what they say: a round of each at a toy's size, and their rules."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS = 3000


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The benchmarks, to be run as programs within this process."""
    yield Bench(monkeypatch)


class Bench:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(name)

    def main(self, name: str, *arguments: object) -> None:
        """Run a script as a program."""
        module = self.module(name)
        self._monkeypatch.setattr("sys.argv", [name, *map(str, arguments)])
        module.main()

    def table(self, folder: Path, *, leaves: int, jobs: int) -> None:
        self.main("bench.rows.make", "sources", folder / "sources", "narrow", jobs, ROWS // jobs)
        given = (folder / "table", "narrow", folder / "sources", leaves, jobs)
        self.main("bench.rows.make", "table", *given)

    def figures(self, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
        parsed = self.module("bench.common.figures").parsed
        return {f.figure: f.value for f in map(parsed, capsys.readouterr().out.splitlines())}


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
        given = ("part", system, 0, "narrow", tmp_path / "table" / "data", out)
        bench.main("bench.rows.compaction", *given)
        figures = bench.figures(capsys)
        assert figures["files"] == files
        assert figures["rows_per_second"] > 0


def test_an_ingest_is_measured_and_cut_into_sixteen(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.main("bench.rows.make", "sources", tmp_path / "sources", "wide", 1, ROWS)
    source = tmp_path / "sources" / "000.parquet"
    for system in ("dormouse", "pyarrow copy, no dictionary", "duckdb sort"):
        out = tmp_path / system
        out.mkdir()
        bench.main("bench.rows.ingest", "part", system, 0, "wide", source, out)
        assert bench.figures(capsys)["files"] == 16


def test_worst_cases_of_memory_are_measured_and_a_lost_row_is_none(
    bench: Bench,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cases = bench.module("bench.rows.worst_cases")
    for number, (name, case) in enumerate(cases.CASES.items()):
        small = replace(case, inputs=2, rows=40)
        monkeypatch.setitem(cases.CASES, name, small)
        folder = tmp_path / str(number)
        bench.main("bench.rows.worst_cases", "make", folder, name)
        bench.main("bench.rows.worst_cases", cases.PART, name, 0, folder, folder / "out")
        assert bench.figures(capsys)["peak_rss_mb"] > 10
    monkeypatch.setitem(cases.CASES, name, replace(small, rows=41))
    with pytest.raises(ValueError, match="80 rows were written of 82"):
        bench.main("bench.rows.worst_cases", cases.PART, name, 0, folder, tmp_path / "again")


def test_the_steps_of_both_stages_are_measured(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.table(tmp_path, leaves=1, jobs=2)
    inputs = {
        "compaction": tmp_path / "table" / "data",
        "ingest": tmp_path / "sources" / "000.parquet",
    }
    for stage, given in inputs.items():
        out = tmp_path / stage
        out.mkdir()
        bench.main("bench.rows.parts", "part", stage, 0, "narrow", given, out)
        assert bench.figures(capsys)["rows_per_second"] > 0


def test_a_cold_look_up_of_one_key_opens_one_shard(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.table(tmp_path, leaves=16, jobs=1)
    answers = tmp_path / "answers"
    bench.main("bench.rows.make", "answers", answers, tmp_path / "sources")
    given = (tmp_path / "table" / "data", tmp_path / "table", answers)
    bench.main("bench.rows.look_ups", "part", "dormouse", 0, "one_key", *given)
    figures = bench.figures(capsys)
    assert figures["rows"] == 1
    assert 1 <= figures["requests"] <= 2
    out = tmp_path / "s3-of-look-ups" / "out"
    bench.main("bench.rows.look_ups_on_s3", "part", 0, "one_key", *given, out, 0)
    figures = bench.figures(capsys)
    assert figures["requests"] == 1, "warm, it reads the rows alone"
    assert figures["read_kb"] > 1


def test_a_look_up_that_finds_other_rows_is_no_measurement(bench: Bench, tmp_path: Path) -> None:
    look_ups, hashing = bench.module("bench.rows.look_ups"), bench.module("bench.rows.hashing")
    rows = pa.table({"key": ["a"], "timestamp": [1]})
    answer = hashing.digest_of(rows.to_batches())
    asked = look_ups.Asked(("a",))
    assert look_ups.measure(lambda _: rows, asked, answer)["rows"] == 1
    for other in (rows.slice(1), pa.table({"key": ["a"], "timestamp": [2]})):
        with pytest.raises(ValueError, match="other rows were found"):
            look_ups.measure(lambda _, other=other: other, asked, answer)


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
        bench.main("bench.rows.on_s3", "part", stage, 0, "narrow", given, out, 0, 0)
        figures = bench.figures(capsys)
        assert figures["files"] == (1 if stage == "compaction" else 16)
        assert figures["gets"] >= 1
        assert figures["puts"] >= figures["files"]


def test_output_that_lost_rows_or_order_is_no_measurement(bench: Bench, tmp_path: Path) -> None:
    output = bench.module("bench.rows.output")
    digest = bench.module("bench.rows.digest")
    rows = pa.table({"key": ["b", "a"], "timestamp": [1, 2]})
    found = bench.module("bench.rows.hashing").digest_of(rows.to_batches())

    def work() -> None:
        pq.write_table(rows, tmp_path / "out.parquet", row_group_size=1)

    with pytest.raises(ValueError, match="wrote 2 rows of 3"):
        output.report("part", "a", 0, work, digest.Digest(3), tmp_path, in_order=False)
    with pytest.raises(ValueError, match="but others"):
        output.report("part", "a", 0, work, digest.Digest(2, 7), tmp_path, in_order=False)
    with pytest.raises(ValueError, match="not in order"):
        output.report("part", "a", 0, work, found, tmp_path, in_order=True)
    output.report("part", "a", 0, work, found, tmp_path, in_order=False)


def test_a_digest_is_of_all_values_of_all_rows_in_any_order_and_any_type_of_text(
    bench: Bench,
) -> None:
    digest_of = bench.module("bench.rows.hashing").digest_of

    def digest(rows: pa.Table) -> tuple[int, int]:
        return digest_of(rows.to_batches(max_chunksize=2))

    rows = pa.table({"key": ["abcdefghij", "abcdefghik", "bbcdefghij"], "n": [1, -2, 3]})
    same = digest(rows)
    assert digest(rows.take([2, 0, 1])) == same
    for kind in (pa.large_string(), pa.string_view()):
        assert digest(rows.set_column(0, "key", rows["key"].cast(kind))) == same
    changed = rows.set_column(1, "n", pa.chunked_array([[1, 2, 3]]))
    swapped = rows.set_column(1, "n", pa.chunked_array([[-2, 1, 3]]))
    doubled = rows.take([0, 0, 2])
    assert len({same, digest(changed), digest(swapped), digest(doubled)}) == 4


def test_order_is_held_within_files_across_batches_and_between_files(
    bench: Bench, tmp_path: Path
) -> None:
    sorted_digest = bench.module("bench.rows.hashing").sorted_digest_of_files

    def file(name: str, *rows: tuple[str, int]) -> Path:
        keys, numbers = zip(*rows, strict=True)
        pq.write_table(pa.table({"key": keys, "timestamp": numbers}), tmp_path / name)
        return tmp_path / name

    early, late = file("b", ("a", -1), ("a", 1), ("b", 0)), file("a", ("b", 0), ("c", -5))
    assert sorted_digest([late, early]).rows == 5
    for wrong in (
        [file("c", ("a", 1), ("a", -1))],
        [early, file("d", ("a", 5), ("c", 0))],
    ):
        with pytest.raises(ValueError, match="not in order"):
            sorted_digest(wrong)


def test_a_machine_that_others_keep_busy_makes_figures_unfit(bench: Bench) -> None:
    load = bench.module("bench.common.load")
    seen = load.Load()
    seen.add(10, busy_seconds=16, own_seconds=15)
    assert "0.10 cores busy" in seen.sentence()
    assert "UNFIT" not in seen.sentence()
    seen.add(10, busy_seconds=20, own_seconds=5)
    assert seen.sentence().startswith("**UNFIT")
    stat = "cpu  100 10 50 9000 700 5 5 30 0 0"
    assert load.busy_seconds(stat) == 200 / load._TICKS


def test_the_machine_is_asked_what_others_do(bench: Bench) -> None:
    seen = bench.module("bench.common.load").Load()
    seen.begin()
    seen.end()
    (cores,) = seen.seen
    assert cores >= 0


def test_round_trips_are_what_a_delay_costs_beyond_a_twentieth(bench: Bench) -> None:
    figures, rounds = bench.module("bench.common.figures"), bench.module("bench.rows.rounds")
    seconds = {"0 ms": [9.5, 0.95], "100 ms": [10.2, 1.4]}
    found = figures.Figures(
        figures.Figure("part", of, at, "seconds", value)
        for of, measured in seconds.items()
        for at, value in enumerate(measured)
    )
    assert rounds.round_trips(found, "part", "0 ms", "100 ms", 0.1) == pytest.approx(3)
    assert rounds.round_trips(found, "part", "0 ms", "30 ms", 0.03) is None


def test_each_goal_is_judged_once_all_is_measured(bench: Bench, tmp_path: Path) -> None:
    """The parts that goals are of are those that the steps measure, under the same names."""
    figures, main = bench.module("bench.common.figures"), bench.module("bench.rows.__main__")
    originals = bench.module("bench.rows.original_plan").NAMES
    names = ("rows_per_second", "seconds", "cpu_seconds_per_million", "peak_rss_mb", "ms")
    names += ("requests", "read_kb", "memory_mb", "rows_to_memory")
    found = []
    for step in main.measured(tmp_path, main.QUICK, originals):
        part, of, *rest = step.arguments
        subjects = [of]
        if step.module == "rows.on_s3":
            subjects = [bench.module("bench.rows.on_s3").name_of(*map(int, rest[-2:]))]
        if step.module == "rows.look_ups_on_s3":
            subjects = [f"{rest[-1]} ms, cold"]
        if step.module == "rows.look_ups":
            subjects = [f"{of}, cold", f"{of}, warm"]
        found += [figures.Figure(part, s, 0, name, 1) for s in subjects for name in names]
    goals = bench.module("bench.rows.goals").goals(figures.Figures(found))
    assert {goal.number for goal in goals} == {1, 2, 3, 4}
    assert not [goal.what for goal in goals if goal.measured is None]
    assert len({goal.what for goal in goals}) == len(goals) > 50
    report = bench.module("bench.rows.report").report
    missing = "The original's plan is left out"
    assert missing in report(figures.Figures(found), quick=True, notes=[missing])


@pytest.mark.parametrize(
    ("seconds", "what", "met"),
    [
        ((29.0, 29.0, 31.0), "round trips", [True, True]),
        ((31.0, 32.0, 33.0), "rate to that at 0 ms", [True, False]),
    ],
)
def test_a_long_job_has_to_be_as_fast_with_a_delay_whatever_its_fixed_costs(
    bench: Bench, seconds: tuple[float, ...], what: str, met: list[bool]
) -> None:
    figures = bench.module("bench.common.figures")
    part, delays = "ingest of many rows, on S3", ("0 ms", "30 ms", "100 ms")
    found = [
        figures.Figure(part, delay, 0, name, value)
        for delay, took in zip(delays, seconds, strict=True)
        for name, value in (("seconds", took), ("rows_per_second", 1 / took))
    ]
    goals = bench.module("bench.rows.goals").goals(figures.Figures(found))
    assert [what in goal.what for goal in goals] == [True, True]
    assert ["NOT" not in " ".join(goal.row()) for goal in goals] == met


def test_long_jobs_are_measured_alone_with_each_delay_and_of_what_is_made_for_them(
    bench: Bench, tmp_path: Path
) -> None:
    main, jobs = bench.module("bench.rows.__main__"), bench.module("bench.rows.long_jobs")
    steps = main.long_steps(tmp_path, main.QUICK, "")
    made = [step.arguments[1] for step in steps if step.module == "rows.make"]
    measured = [step.arguments for step in steps if step.module != "rows.make"]
    assert len(measured) == len(jobs.JOBS) * len(jobs.SLOWNESS)
    for part, _, _, _, inputs, *_ in measured:
        assert part.endswith(", on S3")
        assert [folder for folder in made if inputs.startswith(f"{folder}/")]
    only = main.long_steps(tmp_path, main.QUICK, "ingest")
    assert len(only) == 2 * (1 + len(jobs.SLOWNESS))


def test_functions_run_in_the_environment_that_the_template_gives_them(
    bench: Bench, tmp_path: Path
) -> None:
    compact = bench.module("bench.rows.function").function("compact")
    assert compact.cores == 2
    assert int(compact.environment["DORMOUSE_MEMORY_BYTES"]) <= compact.memory_mb * 1024**2
    main = bench.module("bench.rows.__main__")
    steps = [s for s in main.measured(tmp_path, main.QUICK) if s.module == "rows.compaction"]
    of = {s.arguments[1]: s.environment for s in steps}
    assert of["dormouse"] == compact.environment
    assert of["duckdb sort"] == {}


def test_a_ratio_is_to_the_floor_of_the_same_round(bench: Bench) -> None:
    figures, rounds = bench.module("bench.common.figures"), bench.module("bench.rows.rounds")
    rates = {"dormouse": [2.0, 40.0, 600.0], "pyarrow copy": [1.0, 10.0, 100.0]}
    found = figures.Figures(
        figures.Figure("part", of, at, "rate", rate)
        for of, measured in rates.items()
        for at, rate in enumerate(measured)
    )
    assert rounds.median_ratio(found, "part", "dormouse", "pyarrow copy", "rate") == 4.0
    assert rounds.median_ratio(found, "part", "dormouse", "absent", "rate") is None


def test_only_what_is_between_the_marks_of_a_page_is_replaced(bench: Bench) -> None:
    pages = bench.module("bench.common.pages")
    one, other = (f"{pages.begin(by)} {by} {pages.END}" for by in ("bench-a", "bench-b"))
    page = f"before {one} between {other} after"
    once = pages.page_with(page, "bench-b", "new")
    assert once == f"before {one} between {pages.begin('bench-b')}\n\nnew\n\n{pages.END} after"
    twice = pages.page_with(pages.page_with(once, "bench-a", "newer"), "bench-b", "b")
    assert [text in twice for text in ("newer", "\n\nb\n\n", " between ")] == [True] * 3
    assert "new\n" not in twice
    with pytest.raises(ValueError, match="has no"):
        pages.page_with(page, "bench-c", "new")


def test_random_keys_fall_into_all_leaves_alike(bench: Bench, tmp_path: Path) -> None:
    data = bench.module("bench.rows.data")
    data.write_source(tmp_path / "source.parquet", "narrow", 16_000, seed=1)
    keys = pq.read_table(tmp_path / "source.parquet")["key"].to_pylist()
    points = ["", *data.split_points(16), "~"]
    counts = [
        sum(low <= key < high for key in keys)
        for low, high in zip(points, points[1:], strict=False)
    ]
    assert sum(counts) == 16_000
    assert all(850 < count < 1150 for count in counts)
