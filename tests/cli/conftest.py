"""The command line over an instance in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from dormouse_cli.main import app
from dormouse_cli.session import Session
from tests.support.instances import InMemory
from tests.support.world import World

Dormouse = Callable[..., Result]

FLIGHTS = {
    "rowKeyFields": [
        {"name": "carrier", "type": "StringType"},
        {"name": "flight", "type": "LongType"},
    ],
    "sortKeyFields": [{"name": "at", "type": "TimestampType"}],
    "valueFields": [{"name": "delay", "type": "DoubleType", "nullable": True}],
}
ROWS = """carrier,flight,at,delay
UA,1545,2013-01-01T10:00:00Z,2.5
AA,12,2013-01-01T11:00:00Z,
B6,7,2013-01-02T00:00:00.5Z,-1
"AA,flight=3",1,2013-01-01T00:00:00Z,0
AA,9,2013-01-01T11:00:00Z,NaN
"""


@pytest.fixture
def memory(tmp_path: Path) -> InMemory:
    return InMemory.over(World(tmp_path / "world"))


@pytest.fixture
def dormouse(memory: InMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dormouse:
    """Run `dormouse ARGUMENTS…` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, input: str | None = None) -> Result:
        session = Session(instance=memory.instance)
        return CliRunner().invoke(app, arguments, obj=session, input=input, catch_exceptions=False)

    return run


@pytest.fixture
def flights(dormouse: Dormouse) -> Dormouse:
    """The same, where a table `flights` has the rows above."""
    Path("schema.json").write_text(json.dumps(FLIGHTS))
    Path("rows.csv").write_text(ROWS)
    assert dormouse("table", "add", "flights", "--schema", "schema.json").exit_code == 0
    ingested = dormouse("ingest", "flights", "rows.csv", "--wait")
    assert ingested.exit_code == 0, ingested.output
    return dormouse
