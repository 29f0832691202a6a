"""A closed state takes nothing more from any process."""

from __future__ import annotations

import pytest

from dormouse.errors import NotFoundError
from dormouse.log.engine import StateStore
from dormouse.stored.paths import table_prefix
from tests.support.adapters import CountingIds, FakeClock
from tests.support.hooked_pages import HookedPages
from tests.support.memory_storage import MemoryStorage
from tests.support.stores import objects_store
from tests.support.trees import initialise
from tests.unit.statestore.faults import small_pages
from tests.unit.statestore.histories import ONE_LEAF, addition


class Process:
    """Stores over one storage and log."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.storage, self.pages = MemoryStorage(clock), HookedPages()
        self.clock, self.ids = clock, CountingIds(clock)

    def store(self, state_id: str = "t") -> StateStore:
        return objects_store(state_id, self.storage, self.pages, self.clock, self.ids)


def test_a_closed_state_is_closed_to_all_and_keeps_its_deltas() -> None:
    process = Process()
    store, warm = process.store(), process.store()
    store.commit(initialise(ONE_LEAF), generation=0)
    store.commit(addition(1), generation=0)
    warm.current()
    process.store().terminate()
    kept = list(process.storage.list(""))
    assert kept
    for each in (store, warm, process.store()):
        with pytest.raises(NotFoundError):
            each.commit(addition(2), generation=0)
        with pytest.raises(NotFoundError):
            each.current()
    process.store().terminate()
    process.store().destroy()


def test_a_state_that_never_was_can_be_closed() -> None:
    process = Process()
    process.store().terminate()
    with pytest.raises(NotFoundError):
        process.store().commit(initialise(ONE_LEAF), generation=0)


def test_the_logs_of_one_table_do_not_touch_and_lie_below_it() -> None:
    process = Process()
    old, new = process.store("t"), process.store("t/2")
    old.commit(initialise(ONE_LEAF), generation=0)
    new.commit(initialise(ONE_LEAF), generation=0)
    new.commit(addition(1), generation=0)
    old.destroy()
    assert set(process.store("t/2").current().shards)
    assert all(o.path.startswith(table_prefix("t")) for o in process.storage.list(""))


def test_a_destroyed_state_leaves_neither_deltas_nor_segments_nor_snapshots() -> None:
    process = Process()
    with small_pages(2):
        store = process.store()
        store.commit(initialise(ONE_LEAF), generation=0)
        for number in range(30):
            store.commit(addition(number), generation=0)
            store.maintain()
        kinds = {stored.path.split("/")[2] for stored in process.storage.list("")}
        assert kinds == {"deltas", "segments", "snapshots"}
        store.destroy()
    assert list(process.storage.list("")) == []
