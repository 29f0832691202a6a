"""Run the simulation of a seed to its end, and print the events that led to a violation."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.simulation.event_log import Violation
from tests.simulation.final_checks import check_deletion, check_lost_entry, check_rest, come_to_rest
from tests.simulation.simulation import SHORT_STEPS, Simulation

LINES_TOLD = 60


def run(seed: int, steps: int = SHORT_STEPS, *, in_folder: bool = False) -> Simulation:
    """Run a seed, with the state of a folder if so; return what it was like.

    Raises:
        Violation: something was not as it must be; the message tells what led there.
    """
    with TemporaryDirectory(prefix="dormouse-sim-") as folder:
        simulation = Simulation(seed, Path(folder), steps, in_folder=in_folder)
        try:
            _run(simulation)
        except Exception as error:
            raise Violation(described(simulation, error), getattr(error, "subject", "")) from error
        return simulation


def described(simulation: Simulation, error: Exception) -> str:
    """Describe a fault: seed, step, what it is, and the last lines about the table concerned."""
    lines = simulation.events.about(getattr(error, "subject", ""), LINES_TOLD)
    return "\n".join(
        [
            f"{type(error).__name__}: {error}",
            f"seed {simulation.seed}, step {simulation.step}",
            *lines,
            f"again: make sim SEED={simulation.seed} SEEDS=1 STEPS={simulation.steps}"
            + " ARGS=--folder" * simulation.in_folder,
        ]
    )


def _run(simulation: Simulation) -> None:
    with simulation.instance.running():
        try:
            simulation.begin()
            last = simulation.step + simulation.steps
            while simulation.step < last:
                simulation.act()
            come_to_rest(simulation)
            check_rest(simulation)
            check_lost_entry(simulation)
            check_deletion(simulation)
        finally:
            simulation.end()
