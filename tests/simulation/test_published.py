"""Publishers and readers of Iceberg in the simulation, and seeds that notice a fault each."""

from __future__ import annotations

import pytest

from dormouse.iceberg.avro import bitmap64
from tests.simulation.outsiders import publishes
from tests.simulation.published import places_in
from tests.simulation.run import run
from tests.support.depth import in_turn

STEPS = 250
SEEDS = (2, 5, 11, 26, 44, 53, 77)


@pytest.mark.parametrize("seed", in_turn(SEEDS, parts=3))
def test_readers_have_what_they_found_for_the_delay_and_then_nothing_of_it_is_left(
    seed: int,
) -> None:
    assert publishes(seed)
    simulation = run(seed, STEPS)
    assert any(watch.found for watch in simulation.watch.published.values())


def test_readers_are_at_work() -> None:
    lines = [line for seed in (5, 44) for line in run(seed, STEPS).events.lines]
    assert sum("reads what is published" in line.what for line in lines) > 3


@pytest.mark.parametrize("runs", [[(0, 1)], [(3, 70_000), (2**33, 2**33 + 5)], [(0, 400_000)]])
def test_dead_rows_of_format_3_are_read(runs: list[tuple[int, int]]) -> None:
    wanted = [place for start, end in runs for place in range(start, end)]
    assert list(places_in(bitmap64(runs))) == wanted
