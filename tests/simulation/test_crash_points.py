"""Wherever an operation is cut off, its instance recovers: nothing lost, doubled, stuck or left.

``make test`` tries one in eight points with one of the stores, by turns; ``make test-all`` and
``make crash-points`` try all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dormouse.features import compaction as compact_stage
from dormouse.features.compaction import Compaction, Merged
from dormouse.items.blobs import ItemBlobs, ObjectBlobs
from dormouse.ports import Services
from dormouse.stored.paths import shard_path
from tests.simulation.crash_heavy import OPERATIONS
from tests.simulation.crash_operations import NAME, create, drop, handles, rows
from tests.simulation.crash_points import Operation, Point, ground, sampled
from tests.simulation.crash_recovery import Rows, settle
from tests.simulation.instance import Instance, Worker
from tests.support.depth import in_turn, is_whole, turn

STORES = ("s3", "dynamodb", "folder")
TWICE = 1 if is_whole() else 0
"""So many points of an operation are tried with a second death in the recovery."""
BY_NAME = {operation.name: operation for operation in OPERATIONS}


@pytest.mark.parametrize("store", in_turn(STORES, parts=3))
@pytest.mark.parametrize("operation", in_turn(OPERATIONS, parts=2), ids=lambda each: each.name)
def test_an_operation_that_is_cut_off_is_made_up_for(
    tmp_path: Path, operation: Operation, store: str
) -> None:
    cut_off = ground(operation, tmp_path, store)
    random = Random(f"{operation.name} {store}")
    points = list(cut_off.distinct(some_in_turn(list(cut_off.points()))))
    for point in sampled(points, len(points), random, TWICE):
        assert cut_off.attempt(point) == [], str(point)


def some_in_turn(points: list[Point]) -> list[Point]:
    """Return the points whose turn it is, one in four of half of the operations.

    Preparing an operation takes as long as some attempts, so each commit does it with one store,
    and 24 commits in a row try all points with all stores.
    """
    return points if is_whole() else points[turn() // (2 * len(STORES)) % 4 :: 4]


def nothing_stale(*_: object) -> Iterator[Any]:
    return iter(())


def merge_and_delete(services: Services, compaction: Compaction) -> Merged:
    merged = merge_in_process(services, compaction)
    table_id = compaction.table.id
    services.storage.delete([shard_path(table_id, shard.id) for shard in compaction.inputs])
    return merged


merge_in_process = compact_stage.merge_in_process


@pytest.mark.parametrize(
    ("name", "broken", "by", "seen"),
    [
        (
            "plan: assign compactions",
            "features.planning.overdue_compactions",
            nothing_stale,
            "for good",
        ),
        ("compact", "jobs.finalise", lambda *_, **__: None, "recorded as running"),
        ("export: task", "features.export.list_jobs", lambda *_: ({}, []), "left over"),
        ("ingest", "features.sweep._delete_orphans", lambda *_: None, "no commit"),
    ],
)
def test_a_stage_that_does_not_make_up_for_a_crash_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, broken: str, by: object, seen: str
) -> None:
    monkeypatch.setattr(f"dormouse.{broken}", by)
    cut_off = ground(BY_NAME[name], tmp_path, "s3")
    last_first = list(cut_off.distinct())[::-1]  # at the end an operation has most to leave undone
    problems = (problem for point in last_first for problem in cut_off.attempt(point))
    assert any(seen in problem for problem in problems)


def test_inputs_that_are_deleted_before_the_commit_are_missed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact_stage.compact, "__defaults__", (merge_and_delete,))
    with pytest.raises(AssertionError, match="is referenced and has no object"):
        ground(BY_NAME["compact"], tmp_path, "s3")


def test_the_state_of_a_deleted_table_that_stays_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ItemBlobs, "delete_stale", lambda *_: None)
    with pytest.raises(AssertionError, match="is of no table"):
        ground(BY_NAME["admin: delete"], tmp_path, "dynamodb")


def test_deltas_that_nobody_needs_any_more_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ObjectBlobs, "delete_stale", lambda *_: None)
    with pytest.raises(AssertionError, match="is in the state of letters for nothing"):
        ground(BY_NAME["plan: snapshot maintenance"], tmp_path, "s3")


def two_ingests(instance: Instance, worker: Worker) -> dict[str, Rows]:
    create(instance, worker, ingest_job_max_files=1)
    drop(instance, "hazel", "oak")
    settle(instance, worker, until="ingest-jobs")
    return {NAME: rows("hazel", "oak")}


def one_after_the_other(instance: Instance, worker: Worker) -> None:
    for _ in range(2):
        handles("ingest-jobs")(instance, worker)


def test_rows_that_are_neither_those_before_nor_those_after_are_seen_at_once(
    tmp_path: Path,
) -> None:
    cut_off = ground(Operation("two ingests", two_ingests, one_after_the_other), tmp_path, "s3")
    problems = (problem for point in cut_off.distinct() for problem in cut_off.attempt(point))
    assert any(problem.startswith("at once: table") for problem in problems)
