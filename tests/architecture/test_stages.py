"""Each stage of the table has its function, its events and its place in the documents."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator
from typing import get_args, get_origin, get_type_hints

from dormouse.client.instance import Instance
from dormouse.http.messages import HttpRequest, HttpResponse
from dormouse.jobs import SweepCheck
from dormouse.messages.stages import QUEUES, SCHEDULED, SERVED, STAGES, OutboundMessage, load
from dormouse.ports import Services
from dormouse.stored.paths import REPLIES, dead_letter_queue
from dormouse.tables.table import Table
from tests.architecture.sources import LIBRARY, ROOT, Source, fail_for, sources

NAMES = [*(stage.name for stage in STAGES), *SCHEDULED, *SERVED]
KNOWN_QUEUES = {*QUEUES, *map(dead_letter_queue, QUEUES), REPLIES}


def signature(path: str) -> tuple[object, ...]:
    """Return what a function takes and returns, and what else it needs that has no default."""
    function = load(path)
    hints = get_type_hints(function)
    first, second, *rest = inspect.signature(function).parameters.values()
    needs = [parameter.name for parameter in rest if parameter.default is parameter.empty]
    is_iterable = issubclass(get_origin(hints["return"]), Iterable)
    return hints[first.name], hints[second.name], needs, is_iterable, get_args(hints["return"])


def test_what_a_stage_or_a_schedule_runs_takes_its_message_and_returns_messages() -> None:
    takes = {stage.path: stage.takes for stage in STAGES} | dict.fromkeys(SCHEDULED.values(), Table)
    fail_for(
        f"{path} has {signature(path)}"
        for path, message in takes.items()
        if signature(path) != (Services, message, [], True, (OutboundMessage,))
    )


def test_what_a_sweep_sends_again_follows_from_a_check() -> None:
    paths = [stage.overdue for stage in STAGES if stage.overdue]
    hints = {"check": SweepCheck, "return": Iterator[OutboundMessage]}
    fail_for(path for path in paths if get_type_hints(load(path)) != hints)


def test_what_an_api_runs_answers_requests() -> None:
    hints = {path: [*get_type_hints(load(path)).values()] for path in SERVED.values()}
    assert {path: others for path, (_, *others) in hints.items()} == dict.fromkeys(
        SERVED.values(), [HttpRequest, HttpResponse]
    )
    assert {needs for needs, *_ in hints.values()} <= {Services, Instance}


def test_there_is_a_function_for_each_stage_and_for_nothing_else() -> None:
    functions = {path.parent.name for path in (ROOT / "functions").glob("*/handler.py")}
    assert functions == set(NAMES)
    assert len({stage.queue for stage in STAGES}) == len(STAGES)


def test_each_function_runs_its_own_stage() -> None:
    handlers = {source.place: names_in(source) for source in sources("functions")}
    fail_for(
        f"{place} runs {names}"
        for place, names in handlers.items()
        if names != {place.split("/")[1]}
    )


def names_in(source: Source) -> set[object]:
    """Return the names of functions that are arguments or subscripts in a handler."""
    return {
        node.value
        for call in ast.walk(source.tree)
        if isinstance(call, ast.Call | ast.Subscript)
        for node in ast.walk(call)
        if isinstance(node, ast.Constant) and node.value in NAMES
    }


def test_each_function_has_events() -> None:
    fail_for(name for name in NAMES if not (ROOT / f"events/{name}/good.json").is_file())


def test_messages_are_sent_to_queues_that_exist() -> None:
    queues = {
        (node.args[0].value, source.place)
        for source in sources(LIBRARY, "spark")
        if "OutboundMessage(" in source.text
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "OutboundMessage"
        if isinstance(node.args[0], ast.Constant)
    }
    assert queues
    fail_for(each for each in queues if each[0] not in KNOWN_QUEUES)
