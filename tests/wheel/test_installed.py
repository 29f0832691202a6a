"""The wheel works where nothing of the checkout is: built, installed into empty environments, used.

Not part of `make test`: packages are downloaded, and 300 MB of them are installed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tools.wheel import ROOT, Environment, build_wheel, size_bytes

MOST_BYTES = 330 * 2**20
"""pyarrow and DataFusion take 290 MiB of it."""
ELSEWHERE = ("boto3", "botocore", "aws_lambda_powertools", "moto", "pandas", "pyspark", "plotly")
"""Packages of extras, and pandas, which nothing asks for."""

SCHEMA = {
    "rowKeyFields": [{"name": "carrier", "type": "StringType"}],
    "valueFields": [{"name": "delay", "type": "LongType"}],
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("base"), wheel)


@pytest.fixture(scope="module")
def local(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("local"), wheel, "[local]")


def test_the_base_is_small(base: Environment) -> None:
    assert size_bytes(base.folder) - base.empty_bytes <= MOST_BYTES


@pytest.mark.parametrize("package", ELSEWHERE)
def test_the_base_has_no_package_of_an_extra(base: Environment, package: str) -> None:
    program = f"import importlib.util as u; print(u.find_spec({package!r}))"
    assert base.run("python", "-c", program) == "None\n"


def test_the_command_is_there(base: Environment) -> None:
    assert base.run("dormouse", "--version").startswith("dormouse ")
    assert "query" in base.run("dormouse", "--help")


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("--instance", "prod", "table", "list"), "aws"),
        (("local", "up"), "local"),
        (("table", "apply", "tables.yaml"), "yaml"),
    ],
)
def test_what_an_extra_has_is_a_sentence_and_a_hint_without_it(
    base: Environment, arguments: tuple[str, ...], extra: str
) -> None:
    (base.home / "tables.yaml").write_text("tables: []")
    done = base.ended("dormouse", *arguments)
    assert done.returncode == 1
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: ") and "is not installed" in error
    assert hint.endswith(f"pip install 'dormouse-tables[{extra}]'")


def test_a_folder_ingests_and_answers_without_any_extra(base: Environment) -> None:
    (base.home / "january.csv").write_text("carrier,delay\nAA,3\nB6,4\nAA,5\n")
    here = {"DORMOUSE_INSTANCE": "./mice"}
    like = ("--like", "january.csv", "--row-keys", "carrier", "--sort-keys", "delay")
    base.run("dormouse", "table", "add", "flights", *like, **here)
    base.run("dormouse", "ingest", "flights", "january.csv", **here)
    asked = ("query", "flights", "--key", "carrier=AA", "--format", "csv")
    assert base.run("dormouse", *asked, **here).splitlines()[1:] == ['"AA",3', '"AA",5']
    filtered = ("query", "flights", "--where", "delay > 3", "--format", "csv")
    assert base.run("dormouse", *filtered, **here).splitlines()[1:] == ['"AA",5', '"B6",4']
    assert "flights" in base.run("dormouse", "table", "list", **here)


def test_the_readme_runs_in_python_with_nothing_else_installed(base: Environment) -> None:
    text = (ROOT / "README.md").read_text()
    (printed,) = re.findall(r"printf '(id,at,name.*?)' > users\.csv", text)
    (base.home / "users.csv").write_text(printed.replace("\\n", "\n"))
    here = {"DORMOUSE_INSTANCE": "./mice"}
    create = ("--create", "--row-keys", "id", "--sort-keys", "at")
    base.run("dormouse", "ingest", "users", "users.csv", *create, **here)
    (program,) = re.findall(r"```python\n(from dormouse import .*?)```", text, re.DOTALL)
    assert "'name': 'Hazel'" in base.run("python", "-c", program)


def test_what_is_deployed_is_written_as_in_the_checkout(base: Environment) -> None:
    said = base.ended("dormouse", "template", "deploy")
    assert said.returncode == 0 and "sam build && sam deploy" in said.stderr
    written = base.home / "deploy"
    names = {str(path.relative_to(written)) for path in written.rglob("*") if path.is_file()}
    assert {"template.yaml", "shared/Makefile", "functions/ingest/handler.py"} <= names
    for name in names:
        assert (written / name).read_bytes() == (ROOT / name).read_bytes(), name
    for folder in ("functions", "shared/dormouse", "spark/dormouse_spark"):
        wanted = {
            str(path.relative_to(ROOT))
            for path in (ROOT / folder).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert wanted == {name for name in names if name.startswith(f"{folder}/")}


def test_the_local_stack_runs_what_is_written(local: Environment) -> None:
    local.run("dormouse", "template", "deploy")
    steps = "dormouse table add t --schema id:long --row-keys id && dormouse table list"
    given = ("--template", "deploy/template.yaml", "--", "sh", "-c", steps)
    assert "t" in local.run("dormouse", "local", "run", *given).split()


def test_the_local_stack_ingests_and_answers(local: Environment) -> None:
    (local.home / "schema.json").write_text(json.dumps(SCHEMA))
    (local.home / "january.csv").write_text("carrier,delay\nAA,3\nB6,4\nAA,5\n")
    steps = (
        "dormouse table add flights --schema schema.json && "
        "dormouse ingest flights january.csv --wait && "
        "dormouse query flights --key carrier=AA --format csv"
    )
    shown = local.run("dormouse", "local", "run", "--", "sh", "-c", steps)
    assert shown.splitlines()[-2:] == ['"AA",3', '"AA",5']
