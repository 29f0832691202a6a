"""Queries over messages in the simulation: they come to all kinds of ends, and faults are found."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from dormouse.features import answer_query, queries, query_plans, query_runs
from dormouse.features.queries import QueryEnd, Spent
from tests.simulation.event_log import Violation
from tests.simulation.message_queries import EVERY_SEED
from tests.simulation.run import run
from tests.support.depth import in_turn

STEPS = 250
SEEDS = range(EVERY_SEED, 60 * EVERY_SEED, EVERY_SEED)
MIXED = (10, 45)
"""In these runs queries are cut, have limits, are cancelled and fail."""

begin_as_ever, finish_as_ever = query_plans.open_pinned, query_runs.finish
slices_as_ever, load_end_as_ever = answer_query.slices_from, queries.load_end


def test_queries_are_cut_limited_cancelled_and_finished() -> None:
    ends: list[QueryEnd] = []
    limits: list[object] = []
    for seed in MIXED:
        simulation = run(seed, STEPS)
        assert simulation.answers.ended.keys() == simulation.askers.asked.keys()
        ends += simulation.answers.ended.values()
        limits += [each.message.selection.limit for each in simulation.askers.asked.values()]
    assert {end.state for end in ends} == {"finished", "failed", "cancelled"}
    assert any(end.tasks > 1 and end.rows for end in ends)
    assert any(limits)


def _nothing(*_: object) -> list[Any]:
    return []


def _in_another_order(services: Any, query: Any, ends: Iterable[Any]) -> None:
    finish_as_ever(services, query, list(ends)[::-1])


def _without_the_last(pieces: Any) -> Any:
    return list(slices_as_ever(pieces))[:-1]


PLANTED: dict[str, tuple[object, str, Callable[..., object], int]] = {
    "each sub-query counts its limit alone": (answer_query, "_spent", lambda *_: Spent(), 15),
    "files of a result are named in another order": (query_runs, "finish", _in_another_order, 15),
    "a sub-query leaves out a range": (answer_query, "slices_from", _without_the_last, 15),
    "what a query without a result wrote stays": (queries, "delete_parts", _nothing, 15),
    "the end of a query is not recorded": (query_runs, "record", _nothing, 15),
    "a result is not sent to its queue": (query_runs, "_deliver", lambda *_: "", 15),
}
"""What is replaced, by what, and the seed that is tried first."""


@pytest.mark.parametrize("planted", in_turn(list(PLANTED), parts=3))
def test_a_fault_of_queries_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, fault, first = PLANTED[planted]
    monkeypatch.setattr(where, name, fault)
    with pytest.raises(Violation, match="query q"):
        for seed in dict.fromkeys([first, *SEEDS]):
            run(seed, STEPS)
