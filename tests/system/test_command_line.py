"""The command line against the local stack: the real functions, wired as the template says."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from dormouse_cli.local.commands import LOCAL_PARAMETERS, find_template
from dormouse_cli.local.stack import LocalStack
from dormouse_cli.main import app

Dormouse = Callable[..., Result]

SCHEMA = {
    "rowKeyFields": [{"name": "name", "type": "StringType"}],
    "sortKeyFields": [{"name": "at", "type": "LongType"}],
    "valueFields": [{"name": "note", "type": "StringType", "nullable": True}],
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    state = tmp_path_factory.mktemp("stack")
    with LocalStack(find_template(), LOCAL_PARAMETERS, state) as started:
        yield started


@pytest.fixture
def dormouse(stack: LocalStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dormouse:
    monkeypatch.chdir(tmp_path)
    for name, value in stack.environment.items():
        monkeypatch.setenv(name, value)
    Path("schema.json").write_text(json.dumps(SCHEMA))
    return lambda *arguments: CliRunner().invoke(app, arguments, catch_exceptions=False)


def rows_of(result: Result) -> list[tuple[str, int]]:
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return [(row["name"], row["at"]) for row in rows]


def write_parquet(path: str, names: str, at: int) -> None:
    rows = {"name": list(names), "at": [at] * len(names), "note": [None] * len(names)}
    kinds = pa.schema([("name", pa.string()), ("at", pa.int64()), ("note", pa.string())])
    pq.write_table(pa.table(rows, kinds), path)


def test_files_of_every_format_become_rows_and_a_damaged_one_is_reported(
    dormouse: Dormouse,
) -> None:
    dormouse("table", "add", "formats", "--schema", "schema.json")
    write_parquet("one.parquet", "dca", 1)
    Path("two.csv").write_text("name,at,note\nb,2,hello\n")
    Path("three.jsonl.gz").write_bytes(gzip.compress(b'{"name":"e","at":3}\n'))
    Path("broken.parquet").write_bytes(Path("one.parquet").read_bytes()[:100])
    files = ("one.parquet", "two.csv", "three.jsonl.gz", "broken.parquet")
    result = dormouse("ingest", "formats", *files, "--wait")
    assert result.exit_code == 4, result.output
    assert "formats/broken.parquet was refused" in result.stderr
    found = rows_of(dormouse("query", "formats", "--format", "json"))
    assert found == [("a", 1), ("b", 2), ("c", 1), ("d", 1), ("e", 3)]


def test_a_deleted_table_is_gone_and_its_name_is_free_again(dormouse: Dormouse) -> None:
    for _ in range(2):
        assert dormouse("table", "add", "again", "--schema", "schema.json").exit_code == 0
        assert dormouse("query", "again", "--count").stdout == "0\n"
        assert dormouse("table", "delete", "again", "--force").exit_code == 0
    assert dormouse("status", "again").exit_code == 3


def test_an_instance_that_is_not_there_is_reported_in_one_line(dormouse: Dormouse) -> None:
    result = dormouse("--instance", "nowhere", "table", "list")
    assert result.exit_code != 0
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.output
