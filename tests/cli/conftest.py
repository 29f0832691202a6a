"""The command line over an instance in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typer.testing import Result

from tests.support.command import run_command
from tests.support.instances import InMemory
from tests.support.made_once import made_once
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
    return lambda *arguments, **options: run_command(memory.instance, *arguments, **options)


@pytest.fixture
def flights(dormouse: Dormouse, memory: InMemory) -> Dormouse:
    """The same, where a table `flights` has the rows above."""
    fly(memory.world)
    write_files()
    return dormouse


def write_files() -> None:
    Path("schema.json").write_text(json.dumps(FLIGHTS))
    Path("rows.csv").write_text(ROWS)


@made_once
def fly(world: World) -> None:
    write_files()
    run = partial(run_command, InMemory.over(world).instance)
    assert run("table", "add", "flights", "--schema", "schema.json").exit_code == 0
    ingested = run("ingest", "flights", "rows.csv", "--wait")
    assert ingested.exit_code == 0, ingested.output
