"""Notes that end runs: what they say comes back, and they go before what they speak of."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dormouse.errors import AlreadyExistsError, CorruptDataError
from dormouse.keys import KeyRange
from dormouse.shards.run_markers import (
    RunMarker,
    discard_shards,
    obsolete_run_markers,
    put_run_marker,
    read_run_markers,
)
from dormouse.state.partitions import Shard
from dormouse.state.state import TableState
from dormouse.state.versions import Lineage, Provenance
from dormouse.stored.paths import RUN_MARKERS, shard_path
from tests.support.memory_storage import MemoryStorage


class NotingStorage(MemoryStorage):
    """Keeps what was deleted, request by request."""

    def __init__(self) -> None:
        super().__init__()
        self.deleted: list[list[str]] = []

    def delete(self, paths: Sequence[str]) -> None:
        self.deleted += [list(paths)] if paths else []  # none are no request
        super().delete(paths)


def test_a_run_marker_is_read_as_it_was_put_and_is_put_once() -> None:
    storage = MemoryStorage()
    span, within = KeyRange((), ("k", 7)), KeyRange(("c",), ("d",))
    lineage = Lineage(("s",), ("a-0",), (("b-0", span), ("b-1", within)), ("c-1",))
    provenance = Provenance(span, "job", 5, 3, True, lineage, 2)
    marker = RunMarker("run", provenance, (1, 5, 1_000_000))
    put_run_marker(storage, "t", marker)
    put_run_marker(storage, "t", RunMarker("run", Provenance(KeyRange(("b",))), (1, 5, 1_000_000)))
    assert read_run_markers(storage, "t") == [marker]


def test_a_run_is_not_completed_with_other_shards_than_its_marker_lists() -> None:
    storage = MemoryStorage()
    put_run_marker(storage, "t", RunMarker("run", Provenance(number=2), (1, 5)))
    with pytest.raises(AlreadyExistsError, match=RUN_MARKERS.path("t", "run")):
        put_run_marker(storage, "t", RunMarker("run", Provenance(number=2), (1, 6)))
    storage.delete([RUN_MARKERS.path("t", "run")])
    storage.put(RUN_MARKERS.path("t", "run"), b"damaged")
    with pytest.raises(CorruptDataError, match=RUN_MARKERS.path("t", "run")):
        put_run_marker(storage, "t", RunMarker("run", Provenance(number=2), (1, 5)))


def test_the_marker_and_the_last_shard_of_a_cancelled_run_are_deleted_first() -> None:
    storage = NotingStorage()
    discard_shards(storage, "t", ["r-0", "r-1000000", "r-9", "q-0"], TableState())
    first, rest = storage.deleted
    ends = [shard_path("t", "r-1000000"), shard_path("t", "q-0")]
    assert sorted(first) == sorted([RUN_MARKERS.path("t", "r"), RUN_MARKERS.path("t", "q"), *ends])
    assert sorted(rest) == [shard_path("t", "r-0"), shard_path("t", "r-9")]


def test_the_marker_of_a_committed_run_stays_though_its_orphans_are_deleted() -> None:
    storage = NotingStorage()
    state = TableState()
    known = Shard.of("r-0", 1, 1, (1,), (1,))
    state = TableState(shards=state.shards.insert("r-0", known))
    discard_shards(storage, "t", ["r-7"], state)
    assert storage.deleted == [[shard_path("t", "r-7")]]
    discard_shards(storage, "t", [], state)
    assert len(storage.deleted) == 1


def test_a_damaged_run_marker_is_reported_and_not_left_out() -> None:
    """A rebuild without it would bring back rows that its run had removed."""
    storage = MemoryStorage()
    put_run_marker(storage, "t", RunMarker("run", Provenance(KeyRange())))
    storage.put(RUN_MARKERS.path("t", "other"), b"damaged")
    with pytest.raises(CorruptDataError, match=RUN_MARKERS.path("t", "other")):
        read_run_markers(storage, "t")


def test_a_run_marker_put_while_the_state_is_read_is_not_obsolete() -> None:
    storage = MemoryStorage()
    put_run_marker(storage, "t", RunMarker("spent", Provenance(KeyRange())))

    def read() -> TableState:
        put_run_marker(storage, "t", RunMarker("later", Provenance(KeyRange())))
        return TableState()

    assert obsolete_run_markers(storage, "t", read, before_ms=10**15) == (
        [RUN_MARKERS.path("t", "spent")],
        [],
    )
