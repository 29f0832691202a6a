"""What tests of the state store share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dormouse.items import blobs
from tests.support.depth import in_long_turn
from tests.unit.statestore.faults import Home, small_items


@pytest.fixture(params=in_long_turn(("objects", "items")))
def home(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """Where a state store keeps its blobs, by turns: a promise of the engine is kept in either.

    Pages are compacted as soon as they are full, in either.
    """
    monkeypatch.setattr(blobs, "SNAPSHOT_SHARE", 3)
    with small_items():
        yield request.param
