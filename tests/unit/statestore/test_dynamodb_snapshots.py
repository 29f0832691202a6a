"""Versions put as items: whole and of the root they were made for, or not named at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dormouse.model.transactions import AssignJob, ReplaceShards
from dormouse.statestore import dynamodb_records
from dormouse.statestore.dynamodb_snapshots import DynamoSnapshots
from dormouse.statestore.log import CollectedError
from dormouse.statestore.pages import Root, Snapshot
from tests.support.trees import initialise
from tests.unit.statestore.histories import ONE_LEAF, addition
from tests.unit.statestore.memory_items import ItemsRig, small_pages


@pytest.fixture
def rig() -> Iterator[ItemsRig]:
    with small_pages(4):
        made = ItemsRig()
        made.store().commit(initialise(ONE_LEAF), addition(0), generation=0)
        made.quiet()
        yield made


def test_a_version_of_which_items_were_refused_is_not_named(rig: ItemsRig) -> None:
    state = rig.store().current()
    snapshots = DynamoSnapshots(rig.log(), rig.items)
    rig.on("before put_while", lambda: rig.pages.set_root("t", Root(1)))
    with pytest.raises(CollectedError):
        snapshots.save("version", state, None)
    assert list(snapshots.ids()) == []


def test_a_version_made_of_another_than_the_root_names_is_not_put(rig: ItemsRig) -> None:
    state, before = rig.store().current(), rig.items.count()
    snapshots = DynamoSnapshots(rig.log(), rig.items)
    first = snapshots.save("first", state, None)
    later = Root(1, snapshots=(first,))
    assert rig.pages.set_root("t", later)
    put = rig.items.count()
    assert put > before
    for previous in (None, Snapshot("other", 0, 0, 0)):
        with pytest.raises(CollectedError):
            snapshots.save("second", state, previous)
    assert rig.items.count() == put


def test_all_inputs_of_a_job_and_what_it_set_free_are_read_of_any_number_of_items(
    rig: ItemsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamodb_records, "_INPUTS_PER_PART", 2)
    store, inputs = rig.store(), tuple(f"s{n}" for n in range(5))
    store.commit(*(addition(n) for n in range(1, 5)), generation=0)
    store.commit(AssignJob("job", "root", inputs), generation=0)
    assigned = store.current()
    first = DynamoSnapshots(rig.log(), rig.items).save("first", assigned, None)
    assert rig.pages.set_root("t", Root(1, snapshots=(first,)))
    read = DynamoSnapshots(rig.log(), rig.items).load(first)
    assert read.jobs["job"].inputs == inputs
    store.commit(ReplaceShards("job", "root", inputs, ()), generation=0)
    freed = store.current()
    second = DynamoSnapshots(rig.log(), rig.items).save("second", freed, first)
    read = DynamoSnapshots(rig.log(), rig.items).load(second)
    assert set(read.unreferenced) == set(freed.unreferenced) == set(inputs)
