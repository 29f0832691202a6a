"""Wherever an operation is cut off, its instance recovers: nothing lost, doubled, stuck or left.

A seeded choice of the points is tried here, all of them by ``make crash-points``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from dormouse.model.names import shard_path
from dormouse.ports import Services
from dormouse.shards.compacting import Compaction, Merged
from dormouse.stages import compact as compact_stage
from tests.simulation.crash_operations import OPERATIONS
from tests.simulation.crash_points import Operation, ground, sampled

POINTS, TWICE = 8, 2
BY_NAME = {operation.name: operation for operation in OPERATIONS}


@pytest.mark.parametrize("store", ["s3", "dynamodb"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=BY_NAME)
def test_an_operation_that_is_cut_off_is_made_up_for(
    tmp_path: Path, operation: Operation, store: str
) -> None:
    cut_off = ground(operation, tmp_path, store)
    random = Random(f"{operation.name} {store}")
    for point in sampled(list(cut_off.points()), POINTS, random, TWICE):
        assert cut_off.attempt(point) == [], str(point)


def nothing_stale(*_: object) -> Iterator[Any]:
    return iter(())


def merge_and_delete(services: Services, compaction: Compaction) -> Merged:
    merged = merge_here(services, compaction)
    table_id = compaction.table.id
    services.storage.delete([shard_path(table_id, shard.id) for shard in compaction.inputs])
    return merged


merge_here = compact_stage.merge_here


@pytest.mark.parametrize(
    ("name", "broken", "by", "seen"),
    [
        ("plan: assign compactions", "stages.sweep._stale_jobs", nothing_stale, "for good"),
        ("compact", "stages.compact.settle", lambda *_: None, "told to be running"),
        ("export: task", "stages.sweep.kept_exports", lambda *_: ({}, []), "left over"),
        ("ingest", "stages.sweep._delete_orphans", lambda *_: None, "no commit"),
    ],
)
def test_a_stage_that_does_not_make_up_for_a_crash_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    broken: str,
    by: object,
    seen: str,
) -> None:
    monkeypatch.setattr(f"dormouse.{broken}", by)
    cut_off = ground(BY_NAME[name], tmp_path, "s3")
    found = [problem for point in cut_off.points() for problem in cut_off.attempt(point)]
    assert any(seen in problem for problem in found), found


def test_inputs_that_are_deleted_before_the_commit_are_missed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compact_stage.compact, "__defaults__", (merge_and_delete,))
    with pytest.raises(AssertionError, match="is referenced and has no object"):
        ground(BY_NAME["compact"], tmp_path, "s3")
