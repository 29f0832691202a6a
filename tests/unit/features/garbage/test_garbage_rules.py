"""What may be deleted: only what nothing has referenced for the whole delay."""

from dataclasses import replace

import pytest

from dormouse.features.garbage import collectable, waiting_seconds
from dormouse.state.partitions import OverlayMap
from dormouse.state.state import Dispute, DisputeReason, TableState

STATE = TableState(unreferenced=OverlayMap().insert("old", 1_000).insert("young", 9_500))


def test_candidates_are_due_waiting_or_neither() -> None:
    due, waiting = collectable(STATE, ["young", "referenced", "old", "old"], 10_000, 9)
    assert (due, waiting) == (["old"], ["young"])


def test_a_disputed_shard_is_neither_due_nor_waiting_however_old() -> None:
    dispute = Dispute(DisputeReason.ROWS_LOST, 1_000)
    state = replace(STATE, disputed=STATE.disputed.insert("old", dispute))
    assert collectable(state, ["young", "old"], 10_000_000, 9) == (["young"], [])


@pytest.mark.parametrize(("now_ms", "left"), [(1_000, 9), (1_001, 9), (9_999, 1), (10_000, 0)])
def test_a_shard_waits_out_its_delay_to_the_millisecond(now_ms: int, left: int) -> None:
    assert waiting_seconds(STATE, "old", now_ms, 9) == left
