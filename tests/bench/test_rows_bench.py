"""The rows benchmarks measure what they say: a round of each at a toy's size, and their rules."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
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
    for system, files in (("dormouse", 1), ("pyarrow copy", 1), ("datafusion merge", 1)):
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
    source = tmp_path / "source.parquet"
    bench.module("bench.rows.data").write_source(source, "wide", ROWS, seed=1)
    for system in ("dormouse", "pyarrow copy, no dictionary"):
        out = tmp_path / system
        out.mkdir()
        bench.main("bench.rows.ingest", "part", system, 0, "wide", source, out)
        assert bench.figures(capsys)["files"] == 16


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
    keys = tmp_path / "sources" / "keys.json"
    given = (tmp_path / "table" / "data", tmp_path / "table", keys)
    bench.main("bench.rows.look_ups", "part", "dormouse", 0, "one_key", *given)
    figures = bench.figures(capsys)
    assert figures["rows"] == 1
    assert 1 <= figures["requests"] <= 2


def test_output_that_lost_rows_or_order_is_no_measurement(bench: Bench, tmp_path: Path) -> None:
    output = bench.module("bench.rows.output")
    rows = pa.table({"key": ["b", "a"], "timestamp": [1, 2]})

    def work() -> None:
        pq.write_table(rows, tmp_path / "out.parquet", row_group_size=1)

    with pytest.raises(ValueError, match="wrote 2 rows of 3"):
        output.report("part", "system", 0, work, 3, tmp_path, in_order=False)
    with pytest.raises(ValueError, match="not in order"):
        output.report("part", "system", 0, work, 2, tmp_path, in_order=True)


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
