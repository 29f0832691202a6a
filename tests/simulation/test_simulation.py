"""Short runs of the simulation, each of a seed of its own; and faults that it must find."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dormouse.model import fold
from dormouse.stages import collect_garbage, sweep
from dormouse.stages.requests import delete_table
from tests.simulation.run import run
from tests.simulation.story import Violation

SEEDS = range(1, 161)
SEEDS_A_TEST = 10
STEPS = 250
FEW_SEEDS = range(1, 101)
"""So many seeds find each of the faults below; the first ten find most."""


@pytest.mark.parametrize("first", SEEDS[::SEEDS_A_TEST])
def test_whatever_goes_wrong_rows_are_those_of_the_files_and_all_comes_to_rest(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run(seed, STEPS)


def test_a_seed_gives_the_same_story_each_time() -> None:
    assert run(4, STEPS).story.digest() == run(4, STEPS).story.digest()
    assert run(4, STEPS).story.digest() != run(5, STEPS).story.digest()


def _collectable_at_once(
    state: object, candidates: Iterable[str], now_ms: int, delay_seconds: int
) -> tuple[list[str], list[str]]:
    return sorted(set(candidates) & set(state.unreferenced)), []  # type: ignore[attr-defined]


PLANTED: dict[str, tuple[object, str, object]] = {
    "a commit against the rules counts": (fold, "violations", lambda state, entry: ()),
    "garbage is collected without its delay": (
        collect_garbage,
        "collectable",
        _collectable_at_once,
    ),
    "an audit takes what is being written for orphans": (
        sweep,
        "orphans",
        lambda state, modified_ms, oldest_ms: [s for s in modified_ms if s not in state.shards],
    ),
    "files whose notification was lost are not looked for": (
        sweep,
        "_missed_files",
        lambda *_: [],
    ),
    "the shards of a deleted table stay": (
        delete_table,
        "table_prefix",
        lambda table_id: f"{table_id}/state/",
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_fault_that_is_planted_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, fault = PLANTED[planted]
    monkeypatch.setattr(module, name, fault)
    with pytest.raises(Violation) as found:
        for seed in FEW_SEEDS:
            run(seed, STEPS)
    assert "seed" in str(found.value)
    assert "make sim SEED=" in str(found.value)
