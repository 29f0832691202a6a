"""The benchmark of a folder: its program runs as it is shown, and the report shows all systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.embedded.__main__ import first_ten_minutes
from bench.embedded.first_rows import PROGRAMS, STAGES, lines_of
from bench.figures import Figure, Figures
from tools.wheel import size_bytes


@pytest.mark.parametrize("system", ["dormouse", "sqlite"])
def test_the_program_of_a_newcomer_runs_as_it_is_shown(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line for stage in PROGRAMS[system].values() for line in stage]
    exec("\n".join(lines), {})
    assert "b" in capsys.readouterr().out


def test_the_first_ten_minutes_are_one_table_of_all_systems() -> None:
    figures = Figures(
        [
            Figure("first row", system, 2, figure, 7.0)
            for system in PROGRAMS
            for figure in ("installed_mb", "install_seconds", "program_seconds")
        ]
    )
    lines = first_ten_minutes(figures).splitlines()
    assert [cell.strip() for cell in lines[0].split("|")[1:-1]] == ["", *PROGRAMS]
    assert len(lines) == 2 + len(STAGES) + 3
    for system in PROGRAMS:
        assert set(lines_of(system)) <= set(STAGES)
    assert lines[-1].count("7 s") == len(PROGRAMS)


def test_the_size_of_a_folder_is_that_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_bytes(bytes(1000))
    (tmp_path / "d").write_bytes(bytes(24))
    assert size_bytes(tmp_path) == 1024
