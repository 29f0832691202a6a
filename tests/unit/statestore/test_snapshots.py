"""Snapshots: due when they pay, and never anything but the state itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.statestore.codec_snapshot import decode_snapshot, encode_snapshot
from dormouse.statestore.follower import fold_delta
from dormouse.statestore.pages import Root
from dormouse.statestore.snapshots import snapshot_due, without_forgotten
from tests.unit.statestore.histories import Delta, fold_all, histories


@given(histories(), st.data())
def test_a_snapshot_and_what_follows_it_fold_to_what_all_folds_to(
    history: list[Delta], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(history)))
    direct = before = fold_all(history[:at])
    body = encode_snapshot("t", without_forgotten(before))
    resumed = decode_snapshot("t", body, "x")
    for delta in history[at:]:
        direct, expected = fold_delta(direct, delta.entries)
        resumed, verdicts = fold_delta(resumed, delta.entries)
        assert verdicts == expected
    assert without_forgotten(resumed) == without_forgotten(direct)


def test_a_small_state_is_written_once_a_page() -> None:
    assert not snapshot_due(47, None)
    assert snapshot_due(48, None)
    root = Root("x", 48, 10_000)
    assert not snapshot_due(95, root)
    assert snapshot_due(96, root)


def test_a_big_state_is_written_after_as_many_commits_as_carry_its_cost() -> None:
    root = Root("x", 1_000, 40_000_000)
    assert not snapshot_due(3_440, root)
    assert snapshot_due(3_441, root)
