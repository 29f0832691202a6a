"""A table is deleted at each moment of whatever goes on: after audits nothing of it is left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pytest

from dormouse.errors import DormouseError, NotFoundError
from dormouse.features import deletion
from dormouse.features.deletion import delete_whole_table
from dormouse.stored.paths import SPARK_CODE
from functions.sweep import handler as sweep_function
from tests.simulation.crash_heavy import OPERATIONS
from tests.simulation.crash_points import Ground, Operation, copied, ground
from tests.simulation.crash_recovery import recover
from tests.simulation.instance import Instance
from tests.simulation.leftovers import left_of_gone
from tests.simulation.processes import Call, Fate
from tests.support.depth import in_long_turn, in_turn

MOST_MOMENTS = 12
"""Of operations with more calls, so many are looked at, evenly spread."""


def deleting_at(instance: Instance, number: int) -> Callable[[Call], Fate]:
    """Return a gate before whose so many-th call, from 0, all tables are deleted by another
    process.

    That is the audit, too: what it finds then, and later, may not be all.
    """
    numbers = iter(range(10**9))

    def gate(_: Call) -> Fate:
        if next(numbers) == number:
            services = instance.worker("deletes").wiring.services
            for table in instance.tables.all():
                with suppress(NotFoundError):  # the victim is a deletion itself
                    delete_whole_table(services, table)
        return Fate.LANDS

    return gate


def left_after(cut: Ground, number: int) -> list[str]:
    """Delete all tables before a call of an operation, let all work end; return what is left."""
    instance = copied(cut.base, cut.base.folder / f"moment-{number}")
    with instance.running():
        victim = instance.worker("victim", deleting_at(instance, number))
        with suppress(DormouseError, ExceptionGroup):
            cut.operation.run(instance, victim)
        recover(instance, lambda: instance.worker("recovers"))
    begun = {*instance.storage.folders(), *instance.pages.logs, *instance.tables.buried}
    there = {table.id for table in instance.tables.all()}  # made, or made again by a redelivery
    gone = sorted({each.partition("/")[0] for each in begun} - there - {SPARK_CODE})
    return [f"{table_id}: {left}" for table_id in gone for left in left_of_gone(instance, table_id)]


@pytest.mark.parametrize("store", in_long_turn(["s3", "dynamodb"]))
@pytest.mark.parametrize("operation", in_turn(OPERATIONS), ids=lambda operation: operation.name)
def test_nothing_is_left_of_a_table_that_is_deleted_meanwhile(
    operation: Operation, store: str, tmp_path: Path
) -> None:
    cut = ground(operation, tmp_path, store)
    step = -(-len(cut.calls) // MOST_MOMENTS)
    for number in range(0, len(cut.calls), step):
        assert left_after(cut, number) == [], f"deleted before call {number}, {cut.calls[number]}"


@pytest.mark.parametrize(
    ("store", "module", "fault"),
    [
        ("s3", deletion, "delete_table_objects"),
        ("dynamodb", deletion, "_delete_items"),
        ("s3", sweep_function, "collect_leftovers"),
    ],
)
def test_what_an_audit_leaves_is_found(
    store: str, module: ModuleType, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ingest,) = (operation for operation in OPERATIONS if operation.name == "ingest")
    cut = ground(ingest, tmp_path, store)
    monkeypatch.setattr(module, fault, lambda *_: [])
    assert any(left_after(cut, number) for number in range(len(cut.calls)))
