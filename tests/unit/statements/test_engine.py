"""The engine by itself: what a text could reach that passed every check."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from dormouse.errors import InvalidRequestError
from dormouse.statements import engine
from dormouse.statements.statement import parse_statement

MEMORY_BYTES = 64 * 1024 * 1024


@pytest.fixture(scope="module")
def cursor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    database = engine.database(tmp_path_factory.mktemp("scratch"), MEMORY_BYTES)
    with database.connection.cursor() as opened:
        yield opened


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM read_blob('{file}')",
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM glob('{folder}/*')",
        "COPY (SELECT 1) TO '{folder}/out.csv'",
        "EXPORT DATABASE '{folder}'",
        "ATTACH '{folder}/other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "SET memory_limit = '1TB'",
        "RESET memory_limit",
        "PRAGMA threads = 64",
        "SELECT * FROM secret",  # a variable of whatever Python calls
    ],
)
def test_nothing_outside_is_reached(
    cursor: duckdb.DuckDBPyConnection, tmp_path: Path, text: str
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    with pytest.raises(duckdb.Error):
        cursor.execute(text.format(file=secret, folder=tmp_path)).fetchall()
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


@pytest.mark.parametrize(
    "text", ["COPY (SELECT 1 AS a) TO 'x.csv'", "DELETE FROM t", "UPDATE t SET a = 1"]
)
def test_a_part_of_a_query_that_writes_is_refused(
    cursor: duckdb.DuckDBPyConnection, text: str
) -> None:
    for whole in (f"WITH w AS ({text}) SELECT 1", f"SELECT * FROM (WITH w AS ({text}) SELECT 1)"):
        with pytest.raises(InvalidRequestError, match="cannot be run, only queries can"):
            parse_statement(whole, cursor)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("TABLE r", "not named after FROM"),
        ("SELECT * FROM (TABLE r)", "not named after FROM"),
        ("PIVOT r ON k USING sum(v)", "PIVOT without the values"),
        ("SELECT * FROM (DESCRIBE r)", "DESCRIBE, SUMMARIZE and SHOW"),
    ],
)
def test_what_cannot_be_checked_is_refused(
    cursor: duckdb.DuckDBPyConnection, text: str, problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        parse_statement(text, cursor)


def test_a_process_that_ends_with_an_open_result_says_nothing(tmp_path: Path) -> None:
    code = (
        "import sys; from dormouse.client import Instance\n"
        "found = Instance.open(sys.argv[1]).sql('SELECT * FROM range(1000000)')\n"
        "next(iter(found.batches))\n"
        "try:\n    Instance.open(sys.argv[1]).sql('SELECT 1 % 0').to_arrow()\n"
        "except Exception as error:\n    kept = error\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "mice")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout + ended.stderr == ""
