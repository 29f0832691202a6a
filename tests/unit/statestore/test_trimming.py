"""Snapshots: never anything but the state itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.log.log import fold_delta
from dormouse.log.snapshot import decode_snapshot, encode_snapshot
from dormouse.state.state import without_expired
from tests.unit.statestore.histories import Delta, fold_all, histories


@settings(deadline=None)
@given(histories(), st.data())
def test_a_snapshot_and_what_follows_it_fold_to_what_all_folds_to(
    history: list[Delta], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(history)))
    direct = before = fold_all(history[:at])
    body = encode_snapshot("t", without_expired(before))
    resumed = decode_snapshot("t", body, "x")
    for delta in history[at:]:
        direct, expected = fold_delta(direct, delta.entries)
        resumed, verdicts = fold_delta(resumed, delta.entries)
        assert verdicts == expected
    assert without_expired(resumed) == without_expired(direct)
