"""`dormouse template` writes what is deployed, whole, and replaces nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dormouse_cli import project_files
from dormouse_cli.local.commands import LOCAL_PARAMETERS
from dormouse_cli.local.template import read
from tests.cli.conftest import Dormouse

ROOT = Path(__file__).parents[2]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_folder_has_all_that_the_template_and_its_recipes_name(dormouse: Dormouse) -> None:
    result = dormouse("template", "new/deploy")
    assert result.exit_code == 0 and "sam build && sam deploy" in result.stderr
    written = Path("new/deploy")
    deployment = read(written / "template.yaml", LOCAL_PARAMETERS, "http://127.0.0.1:1")
    for function in deployment.functions:
        code = Path(function.code)
        assert code.is_relative_to(written.resolve()) and (code / "handler.py").is_file()
    for path in files(written):
        assert (written / path).read_bytes() == (ROOT / path).read_bytes()
    for folder in ("shared/dormouse", "spark/dormouse_spark", "functions"):
        sources = {path for path in files(ROOT / folder) if "__pycache__" not in path}
        assert files(written / folder) == sources
    assert {"shared/Makefile", "shared/layer-core.txt", "samconfig.toml"} <= files(written)
    assert {"spark/compact.py", "spark/bulk_import.py", "spark/export_rows.py"} <= files(written)


def test_an_empty_folder_is_filled_and_any_other_is_left_as_it_is(dormouse: Dormouse) -> None:
    Path("empty").mkdir()
    assert dormouse("template", "empty").exit_code == 0
    assert Path("empty/template.yaml").is_file()
    Path("empty/template.yaml").write_text("mine")
    again = dormouse("template", "empty")
    assert again.exit_code != 0 and "empty is not empty" in again.stderr
    assert Path("empty/template.yaml").read_text() == "mine"
    Path("file").write_text("mine")
    assert dormouse("template", "file").exit_code != 0
    assert dormouse("template", "file/below").exit_code != 0
    assert Path("file").read_text() == "mine"


def test_a_folder_that_cannot_be_filled_is_not_made(
    dormouse: Dormouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(project_files.shutil, "copytree", full)
    result = dormouse("template", "deploy")
    assert result.exit_code != 0 and "deploy cannot be written: No space left" in result.stderr
    assert [path.name for path in Path().iterdir()] == ["world"]
