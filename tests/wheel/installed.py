"""The wheel works where nothing of the checkout is: built, installed into empty environments, used.

Not part of `make test`: packages are downloaded, and 300 MB of them are installed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = (
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "cli",
    "functions",
    "pyproject.toml",
    "samconfig.toml",
    "setup.py",
    "shared",
    "spark",
    "template.yaml",
)
"""What a wheel is built from. It is copied: building leaves files beside its sources."""
MOST_BYTES = 330 * 2**20
"""pyarrow and DataFusion take 290 MiB of it."""
ELSEWHERE = ("boto3", "botocore", "aws_lambda_powertools", "moto", "pandas", "pyspark", "plotly")
"""Packages of extras, and pandas, which nothing asks for."""
LIMIT_SECONDS = 300

SCHEMA = {
    "rowKeyFields": [{"name": "carrier", "type": "StringType"}],
    "valueFields": [{"name": "delay", "type": "LongType"}],
}


class Environment:
    """An empty environment, into which the wheel is installed with some extras."""

    def __init__(self, folder: Path, wheel: Path, extras: str = "") -> None:
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.folder = folder / "environment"
        venv.create(self.folder, with_pip=True)
        self.empty_bytes = size_bytes(self.folder)
        self.run("python", "-m", "pip", "install", "--quiet", f"{wheel}{extras}", pip=True)

    def run(self, program: str, *arguments: str, pip: bool = False, **variables: str) -> str:
        """Return what a program of the environment prints; fail with what it says if it fails."""
        done = self.ended(program, *arguments, pip=pip, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ended(
        self, program: str, *arguments: str, pip: bool = False, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in an empty folder. Only pip sees how this machine reaches an index."""
        path = os.pathsep.join((str(self.folder / "bin"), os.defpath))
        own = dict(os.environ) if pip else {"HOME": str(self.home)}
        return subprocess.run(
            [str(self.folder / "bin" / program), *arguments],
            cwd=self.home,
            env={**own, "PATH": path, **variables},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )


def size_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources, built = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
            shutil.copytree(path, sources / name, ignore=ignored)
        else:
            shutil.copyfile(path, sources / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(built)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(sources)], check=True)
    return next(built.glob("dormouse-*.whl"))


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
    assert hint == f"hint: pip install 'dormouse[{extra}]'"


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
