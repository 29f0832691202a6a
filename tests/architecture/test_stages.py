"""Each stage of the table has its function, its events and its place in the documents."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest

from dormouse.client.instance import Instance
from dormouse.http.messages import HttpRequest, HttpResponse
from dormouse.jobs.sweep_check import SweepCheck
from dormouse.messages.stages import (
    CONNECTED,
    QUEUES,
    SCHEDULED,
    SERVED,
    STAGES,
    OutboundMessage,
    Stage,
    load,
)
from dormouse.ports.connections import Served, SocketEvent
from dormouse.ports.services import Services
from dormouse.stored.names import REPLIES, dead_letter_queue
from dormouse.tables.table import Table

ROOT = Path(__file__).parents[2]
NAMES = [*(stage.name for stage in STAGES), *SCHEDULED, *SERVED, *CONNECTED]
SOURCES = [*(ROOT / "shared" / "dormouse").rglob("*.py"), *(ROOT / "spark").rglob("*.py")]
KNOWN_QUEUES = {*QUEUES, *map(dead_letter_queue, QUEUES), REPLIES}


def check_signature(path: str, takes: object) -> None:
    """Check that a function takes `Services` and what its table says, and returns messages."""
    function = load(path)
    hints = get_type_hints(function)
    first, second, *rest = inspect.signature(function).parameters.values()
    assert (hints[first.name], hints[second.name]) == (Services, takes)
    assert all(parameter.default is not parameter.empty for parameter in rest)
    assert issubclass(get_origin(hints["return"]), Iterable)
    assert get_args(hints["return"]) == (OutboundMessage,)


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_what_a_stage_does_takes_the_messages_of_its_queue(stage: Stage) -> None:
    check_signature(stage.path, stage.takes)


@pytest.mark.parametrize("path", [stage.overdue for stage in STAGES if stage.overdue])
def test_what_a_sweep_sends_again_follows_from_a_check(path: str) -> None:
    hints = get_type_hints(load(path))
    assert hints == {"check": SweepCheck, "return": Iterator[OutboundMessage]}


@pytest.mark.parametrize("path", SCHEDULED.values())
def test_what_a_schedule_runs_takes_a_table(path: str) -> None:
    check_signature(path, Table)


@pytest.mark.parametrize("path", SERVED.values())
def test_what_an_http_api_runs_answers_requests(path: str) -> None:
    needs, *others = get_type_hints(load(path)).values()
    assert needs in (Services, Instance)
    assert others == [HttpRequest, HttpResponse]


@pytest.mark.parametrize("path", CONNECTED.values())
def test_what_a_websocket_api_runs_serves_connections(path: str) -> None:
    assert list(get_type_hints(load(path)).values()) == [Instance, SocketEvent, Served]


def test_there_is_a_function_for_each_stage_and_for_nothing_else() -> None:
    functions = {path.parent.name for path in (ROOT / "functions").glob("*/handler.py")}
    assert functions == set(NAMES)
    assert len({stage.queue for stage in STAGES}) == len(STAGES)


@pytest.mark.parametrize("name", NAMES)
def test_each_function_runs_its_own_stage(name: str) -> None:
    tree = ast.parse((ROOT / "functions" / name / "handler.py").read_text())
    named = [
        node.value
        for call in ast.walk(tree)
        if isinstance(call, ast.Call | ast.Subscript)
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and node.value in NAMES
    ]
    assert set(named) == {name}


@pytest.mark.parametrize("name", NAMES)
def test_each_function_has_events_and_an_alarm_that_is_documented(name: str) -> None:
    assert (ROOT / "events" / name / "good.json").is_file()
    assert f"`{name}-errors`" in (ROOT / "docs" / "operations.md").read_text()


def test_messages_are_sent_to_queues_that_exist() -> None:
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "OutboundMessage":
                queue = node.args[0]
                if isinstance(queue, ast.Constant):
                    found.add(queue.value)
    assert found and found <= KNOWN_QUEUES
