"""The benchmark of a folder: its program runs as it is shown, and the report shows all systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.embedded.__main__ import first_ten_minutes
from bench.embedded.systems import PROGRAMS
from bench.figures import Figure, Figures
from tools.wheel import size_bytes


@pytest.mark.parametrize("system", ["dormouse", "sqlite"])
def test_the_program_of_a_newcomer_runs_as_it_is_shown(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(PROGRAMS[system], {})
    assert "b" in capsys.readouterr().out


def test_the_first_ten_minutes_are_one_table_of_all_systems() -> None:
    names = ("steps", "installed_mb", "install_seconds", "program_seconds")
    figures = Figures(
        [Figure("first row", system, 2, name, 7.0) for system in PROGRAMS for name in names]
    )
    head, _, install, program, *measured = first_ten_minutes(figures).splitlines()
    assert [cell.strip() for cell in head.split("|")[1:-1]] == ["", *PROGRAMS]
    assert "`pip install dormouse`" in install
    assert "`import duckdb`<br>" in program
    assert [line.count("| 7 ") for line in measured] == [len(PROGRAMS)] * len(names)


def test_the_size_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(bytes(1000))
    (tmp_path / "d").write_bytes(bytes(24))
    assert size_bytes(tmp_path) == 1024
