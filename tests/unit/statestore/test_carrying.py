"""Deltas that carry those before them: a page takes few requests, whatever its writers did."""

from __future__ import annotations

import zlib
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.log import blobs as codec
from dormouse.log.blobs import FORMAT, Delta, encode_delta, identity_of, open_delta, packed_entries
from dormouse.log.engine import StateStore
from dormouse.log.log import MOST_BYTES, carried_before, carriers, packed
from dormouse.log.pages import PAGE_CAPACITY
from dormouse.state.state import Entry
from tests.support.deltas import decode_delta
from tests.unit.statestore.faults import Rig
from tests.unit.statestore.histories import ONE_LEAF, addition, initialise
from tests.unit.statestore.samples import DELTA, ENTRIES, GOLDEN, golden_files

MOST = 9
"""So many deltas are fetched of a page at most."""


def rig_of(commits: int) -> Rig:
    """A table in objects after so many commits of one writer."""
    rig = Rig()
    store = rig.store()
    store.commit(initialise(ONE_LEAF), generation=0)
    for number in range(commits - 1):
        rig.clock.advance(seconds=1)
        store.commit(addition(number), generation=0)
    rig.quiet()
    return rig


def fetched(rig: Rig) -> int:
    """Return how many deltas a process that begins fetches."""
    rig.quiet()
    assert rig.store().current() == rig.replay()
    return rig.calls.count("before get")


def bodies(rig: Rig) -> dict[str, bytes]:
    return {delta_id: rig.blob("deltas", delta_id) for delta_id in rig.ids_in_log()}


@given(st.integers(0, 3 * PAGE_CAPACITY), st.integers(1, 2 * PAGE_CAPACITY), st.data())
def test_what_is_fetched_carries_all_the_rest(after: int, count: int, data: st.DataObject) -> None:
    ids = [str(version) for version in range(after + 1, after + count + 1)]
    known = data.draw(st.sets(st.sampled_from(ids)))
    found = carriers(ids, after, known)
    assert known.isdisjoint(found)
    there = {
        str(version)
        for each in found
        for version in range(int(each) - carried_before(int(each)), int(each) + 1)
    }
    assert {*ids} <= there | known


def test_a_delta_carries_none_of_another_page() -> None:
    for version in range(1, 4 * PAGE_CAPACITY):
        assert carried_before(version) <= (version - 1) % PAGE_CAPACITY


@pytest.mark.parametrize("commits", [1, 9, 10, 18, 47, 48])
def test_a_process_that_begins_fetches_few_deltas_of_the_open_page(commits: int) -> None:
    rig = rig_of(commits)
    assert fetched(rig) <= MOST
    assert fetched(rig) == len(carriers(rig.ids_in_log(), 0, ()))


def test_a_writer_carries_what_others_committed_since() -> None:
    rig = rig_of(1)
    stores = [rig.store() for _ in range(5)]
    for number in range(46):
        rig.clock.advance(seconds=1)
        stores[number * 7 % 5].commit(addition(number), generation=0)
    assert fetched(rig) <= MOST


def test_a_writer_that_was_overtaken_carries_nothing_and_fetches_all_in_one_round() -> None:
    rig = rig_of(2)
    store = rig.store()
    store.current()

    def overtake(number: int) -> None:
        rig.on("before append", lambda: rig.store().commit(addition(number), generation=0) and None)

    overtake(100)
    store.commit(addition(101), generation=0)
    for number in range(8):
        overtake(200 + number)
        store.commit(addition(number), generation=0)
    mine = [i for i, entries in enumerate(rig.ids_in_log()) if i >= 4 and i % 2]
    for place in mine:
        body = rig.blob("deltas", rig.ids_in_log()[place])
        assert body[len(b"DMdelta")] == FORMAT
    assert rig.store().current() == rig.replay()


def test_deltas_that_carry_none_or_others_than_expected_are_read_in_a_second_round() -> None:
    rig = Rig()
    store = StateStore(replace(rig.store().reader, carries=False), rig.clock, rig.ids)
    store.commit(initialise(ONE_LEAF), generation=0)
    for number in range(20):
        store.commit(addition(number), generation=0)
    assert {body[len(b"DMdelta")] for body in bodies(rig).values()} == {FORMAT}
    assert fetched(rig) == 21


@given(st.lists(st.sets(st.integers(0, 20)), min_size=21, max_size=21), st.integers(0, 20))
def test_whatever_deltas_carry_all_are_found(carried: list[set[int]], known: int) -> None:
    rig = Rig()
    entries = [Entry(initialise(ONE_LEAF), 0, 0), *(Entry(addition(n), n, 0) for n in range(20))]
    ids = [rig.ids.new() for _ in entries]
    for delta_id, entry, others in zip(ids, entries, carried, strict=True):
        rows = packed(Delta(ids[other], (entries[other],)) for other in others)
        rig.put_blob("deltas", delta_id, encode_delta([entry], identity_of("t", delta_id), rows))
    found = list(rig.store().reader.by_id(ids, 0, {ids[known]: (entries[known],)}))
    assert [delta.id for delta in found] == ids
    assert [delta.entries for delta in found] == [(entry,) for entry in entries]


def test_large_deltas_are_not_carried() -> None:
    small, large = (Delta(str(n), (ENTRIES["add_shards"],) * n) for n in (1, 200))
    assert len(packed_entries(large.entries)) > MOST_BYTES
    assert [name for name, _ in packed([small, large])] == ["1"]


def test_a_page_of_large_deltas_is_read() -> None:
    rig = Rig()
    store = rig.store()
    store.commit(initialise(ONE_LEAF), generation=0)
    for number in range(9):
        store.commit(*(addition(1000 * number + n) for n in range(300)), generation=0)
    assert fetched(rig) == 9, "all but the first, which is small"


def test_items_of_dynamodb_carry_nothing() -> None:
    rig = Rig(home="items")
    store = rig.store()
    store.commit(initialise(ONE_LEAF), generation=0)
    for number in range(17):
        store.commit(addition(number), generation=0)
    assert {body[len(b"DMdelta")] for body in bodies(rig).values()} == {FORMAT}


def test_no_flipped_bit_of_a_carrying_delta_is_believed() -> None:
    body = golden_files()[f"carrying-{FORMAT}"]
    assert decode_delta(body, DELTA, "x") == (ENTRIES["release_job"],)
    for place in range(len(body)):
        damaged = bytearray(body)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(CorruptDataError, match="the/path"):
            open_delta(bytes(damaged), DELTA, "the/path")


def test_a_carrying_delta_in_this_format_stored_before_is_still_read() -> None:
    stored = open_delta((GOLDEN / f"carrying-{FORMAT}.delta").read_bytes(), DELTA, "x")
    names = sorted(ENTRIES)[:3]
    assert stored.entries == (ENTRIES["release_job"],)
    assert [stored.entries_of(f"{n:032x}") for n in range(3)] == [(ENTRIES[n],) for n in names]


@pytest.mark.parametrize("packed_body", [[], 7, [[], [[b"1" * 16]]], [[], [], []]])
def test_what_is_no_pair_of_rows_and_carried_deltas_is_refused(packed_body: object) -> None:
    head, body = b"DMdelta" + bytes([FORMAT]), zlib.compress(msgspec.msgpack.encode(packed_body))
    with pytest.raises(CorruptDataError, match="the/path"):
        open_delta(head + codec._digest(head, body, DELTA) + body, DELTA, "the/path")


def damage(rig: Rig, what: str, delta_id: str) -> None:
    body = rig.blob("deltas", delta_id)
    rig.lose_blob("deltas", delta_id)
    if what == "lost":
        return
    head = body[:7] + bytes([FORMAT + 1])
    later = head + codec._digest(head, body[16:], identity_of("t", delta_id)) + body[16:]
    flipped = bytearray(body)
    flipped[-5] ^= 4
    changed = {"cut": body[:-3], "flipped": bytes(flipped), "of a later format": later}[what]
    rig.put_blob("deltas", delta_id, changed)


@pytest.mark.parametrize("what", ["lost", "cut", "flipped", "of a later format"])
@pytest.mark.parametrize("place", [12, 16, 20])
def test_damage_of_a_delta_that_is_needed_is_one_typed_error(what: str, place: int) -> None:
    rig = rig_of(20)
    delta_id = rig.ids_in_log()[place - 1]
    is_needed = delta_id in carriers(rig.ids_in_log(), 0, ())
    damage(rig, what, delta_id)
    if not is_needed:
        assert rig.store().current().version == 20, "another delta carries a copy of it"
        return
    with pytest.raises(CorruptDataError, match=delta_id) as refused:
        rig.store().current()
    if what == "of a later format":
        assert "upgrade" in refused.value.hint
