from __future__ import annotations

from dormouse.features.measure import state_metrics
from dormouse.state.state import TableState


def test_a_state_that_was_lost_is_all_zeros_and_no_division_by_them() -> None:
    levels = state_metrics(TableState(), now_ms=5, log_length=0)
    assert set(levels.values()) == {0}
