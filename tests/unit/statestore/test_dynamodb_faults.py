"""The DynamoDB state store: faults and crashes at every place there is."""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import pytest

from dormouse.errors import NotFoundError, OutcomeUnknownError, UnavailableError
from dormouse.model.transactions import AssignJob, ForgetShards, SplitPartition, Transaction
from dormouse.state_store import AlreadyCommitted, Committed
from dormouse.statestore import dynamodb_bodies
from dormouse.statestore.dynamodb_bodies import DynamoBodies
from dormouse.statestore.engine import Options
from tests.support.trees import initialise
from tests.unit.statestore.faults import Crash, fail
from tests.unit.statestore.histories import ONE_LEAF, addition, merge_of, shard_of
from tests.unit.statestore.memory_items import ItemsRig, small_pages, versions

INITIALISE = initialise(ONE_LEAF)
EAGER = Options(keep_seconds=0, upload_seconds=0)
BUSY = UnavailableError("refused")
LOST = OutcomeUnknownError("not answered")

SCRIPT: list[tuple[Transaction, ...]] = [
    (INITIALISE, *(addition(n) for n in range(1, 5))),
    (AssignJob("j", "root", ("s1", "s2")), addition(5)),
    (merge_of("j", ("s1", "s2"), shard_of("m", ("a",), ("z",))),),
    (SplitPartition("root", ("m",)), ForgetShards(("s1", "s2"))),
    (addition(6),),
]


def run_script(rig: ItemsRig) -> None:
    """Commit the script, maintaining after each; a failed step is done again by a new process."""
    store = rig.store()
    for transactions in SCRIPT:
        rig.clock.advance(seconds=1)
        for _ in range(3):
            before = rig.ids_in_log()
            try:
                outcomes = store.commit(*transactions, generation=0)
                assert all(isinstance(o, Committed | AlreadyCommitted) for o in outcomes)
                before = rig.ids_in_log()
                store.maintain()
                break
            except UnavailableError:
                assert rig.ids_in_log() == before, "nothing was committed, it said"
                store = rig.store()
            except (Crash, OutcomeUnknownError):
                store = rig.store()
        else:
            pytest.fail("one fault cannot fail a step three times")


def places_of_the_script() -> list[str]:
    rig = ItemsRig(options=EAGER)
    run_script(rig)
    return rig.calls


def check_after(rig: ItemsRig) -> None:
    rig.quiet()
    cold, replayed = rig.store().current(), rig.replay()
    assert cold == replayed
    assert set(cold.shards) == {"s3", "s4", "s5", "s6", "m"}
    rig.store().maintain()
    assert versions(rig).load(rig.root()) == rig.store()._versions.load(rig.root())


def test_a_crash_at_any_place_loses_and_doubles_nothing() -> None:
    with small_pages(2):
        places = places_of_the_script()
        assert {"after put_while", "after set_root", "after delete_items"} <= set(places)
        for number in range(len(places)):
            rig = ItemsRig(at={number: fail(Crash())}, options=EAGER)
            run_script(rig)
            check_after(rig)


def test_others_may_write_and_maintain_at_any_place() -> None:
    def act(rig: ItemsRig) -> None:
        for n in (90, 91):
            rig.store().commit(addition(n), generation=0)
            rig.store().maintain()

    with small_pages(2):
        for number in range(len(places_of_the_script())):
            rig = ItemsRig(options=EAGER)
            rig.at = {number: partial(act, rig)}
            run_script(rig)
            rig.quiet()
            assert rig.store().current() == rig.replay()
            rig.store().maintain()
            assert versions(rig).load(rig.root()) == rig.store()._versions.load(rig.root())


@pytest.mark.parametrize("error", [BUSY, LOST])
def test_a_fault_at_any_place_is_survived_or_told_apart(error: Exception) -> None:
    with small_pages(2):
        for number, place in enumerate(places_of_the_script()):
            is_write = place.endswith(("append", "open_page", "set_root"))
            if (error is LOST) != (is_write and place.startswith("after")):
                continue  # items are never put or deleted but in ways that can be repeated
            rig = ItemsRig(at={number: fail(error)}, options=EAGER)
            run_script(rig)
            check_after(rig)


def test_a_body_larger_than_an_item_is_kept_in_parts() -> None:
    rig = ItemsRig()
    bodies = DynamoBodies("t", rig.items)
    with patch.object(dynamodb_bodies, "PART_BYTES", 10):
        bodies.put("aa", bytes(range(95)))
        bodies.put("bb", b"")
    assert bodies.get("aa") == bytes(range(95))
    assert bodies.get("bb") == b""
    assert {"aa", "bb"} <= set(bodies.ids())
    bodies.delete(["aa", "cc"])
    with pytest.raises(NotFoundError):
        bodies.get("aa")
    assert "aa" not in set(bodies.ids())


def test_a_body_of_which_a_part_is_missing_is_not_there() -> None:
    rig = ItemsRig()
    bodies = DynamoBodies("t", rig.items)
    rig.on("after put_item", fail(Crash()), skip=1)
    with patch.object(dynamodb_bodies, "PART_BYTES", 10), pytest.raises(Crash):
        bodies.put("aa", bytes(range(35)))
    with pytest.raises(NotFoundError):
        bodies.get("aa")
