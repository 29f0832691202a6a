"""What docs/iceberg.md says of the catalog works as it is written there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from dormouse.client import Instance
from tests.engines.environment import PYTHON
from tests.support.waiting import LIMIT_SECONDS

PAGE = (Path(__file__).parents[2] / "docs" / "iceberg.md").read_text()
SECTION = PAGE.partition("\n## The catalog\n")[2].partition("\n## ")[0]
DUCKDB = """
import importlib, os, pathlib, sys
import duckdb
connection = duckdb.connect(config={"autoinstall_known_extensions": False})
for name in ("avro", "httpfs", "iceberg"):
    package = importlib.import_module(f"duckdb_extension_{name}")
    (file,) = pathlib.Path(next(iter(package.__path__))).rglob("*.duckdb_extension")
    connection.execute(f"LOAD '{file}'")
text = sys.argv[1].replace(sys.argv[2], os.environ["DORMOUSE_CATALOG_URI"])
attach, select = text.rstrip(";\\n").split(";\\n")
connection.execute(attach)
print(connection.execute(select).fetchall())
"""


def block(language: str) -> str:
    """Return the one block of a language in the section."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.MULTILINE | re.DOTALL)
    return str(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An instance with the table that the page names."""
    folder = tmp_path_factory.mktemp("page")
    with Instance.open(folder / "mice", background=False) as instance:
        instance.create_table("users", "id:long", {"iceberg": "on"}, row_keys=["id"])
        rows = pa.Table.from_pylist([{"id": number} for number in range(200)])
        instance.table("users").ingest(rows)
        assert instance.folder is not None
        instance.folder.finish(LIMIT_SECONDS)
    yield folder / "mice"


def served(folder: Path, *command: str) -> str:
    """Return what a command prints that finds the catalog, as the page has it."""
    (line,) = re.findall(r"^\$ (dormouse iceberg serve --) python read.py$", SECTION, re.MULTILINE)
    verb = line.split()[1:]
    done = subprocess.run(
        [sys.executable, "-m", "dormouse_cli", *verb, *command],
        env={**os.environ, "DORMOUSE_INSTANCE": str(folder)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_pyiceberg_reads_as_the_page_says(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "read.py"
    script.write_text(block("python"))
    printed = served(folder, str(PYTHON), str(script))
    assert "id: [[0,1,2," in printed and "98,99]]" in printed


def test_duckdb_reads_as_the_page_says(folder: Path) -> None:
    (uri,) = re.findall(r"ENDPOINT '([^']+)'", block("sql"))
    printed = served(folder, str(PYTHON), "-c", DUCKDB, block("sql"), uri)
    assert printed.strip() == "[(200,)]"
