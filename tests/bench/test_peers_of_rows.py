"""Peers do the work that they are compared for, and functions have the packages of their layers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

import bench.rows.__main__ as main
import bench.spark.__main__ as spark
from bench import runner
from bench.rows import stages as work
from bench.rows.function import function
from dormouse.errors import InvariantError


def test_the_original_is_left_out_without_rust(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert "there is no cargo" in work.built()
    broken = tmp_path / "cargo"
    broken.write_text("#!/bin/sh\necho 'error: no registry' >&2\nexit 101\n")
    broken.chmod(0o755)
    monkeypatch.setattr("shutil.which", lambda name: str(broken))
    assert work.built() == "cargo could not build it: error: no registry"
    broken.write_text("#!/bin/sh\n")
    assert "cargo built no" in work.built(tmp_path / "program")
    systems = {s.arguments[1] for s in main.measured(tmp_path, main.QUICK)}
    assert not systems & {*work.ORIGINALS}
    systems = {s.arguments[1] for s in main.measured(tmp_path, main.QUICK, work.ORIGINALS)}
    assert {*work.ORIGINALS} <= systems


def test_the_original_is_measured_with_a_sketch_of_every_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    answer = '{"rows": 9, "sketched": 8, "peak_rss_kb": 1}'
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(work, "PROGRAM", program)
    with pytest.raises(InvariantError, match="the sketch has 8 of 9 rows"):
        work.original([], "narrow", tmp_path)()
    with pytest.raises(InvariantError, match="the sketch has 8 of 9 rows"):
        work.original([], "narrow", tmp_path, sketch=False)()


@pytest.mark.parametrize("package", ["numpy", "pandas"])
@pytest.mark.parametrize("is_function", [True, False])
def test_a_function_is_measured_without_packages_that_its_layers_lack(
    is_function: bool, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_run = subprocess.run
    ends = []

    def run(command: list[str], **given: Any) -> Any:
        done = really_run([*command[:1], "-c", f"import {package}"], **given)
        ends.append(done.returncode)
        return done

    monkeypatch.setattr("subprocess.run", run)
    environment = {runner.FUNCTIONS_SETTING: "1"} if is_function else {}
    runner.Runner(tmp_path).run(runner.Step("rows.stages:measure", (), environment=environment))
    assert ends == [1 if is_function else 0]
    assert runner.FUNCTIONS_SETTING in function("compact").environment


def test_only_what_runs_in_functions_is_measured_without_their_packages(tmp_path: Path) -> None:
    """PySpark needs numpy: with it hidden, the function's engine was not measured beside Spark."""
    steps = list(spark.steps(tmp_path, True))
    hidden = {s.function for s in steps if runner.FUNCTIONS_SETTING in s.environment}
    assert hidden == {"rows.stages:measure"}
    assert {s.arguments[1] for s in steps if s.function in hidden} == {spark.ENGINE}
