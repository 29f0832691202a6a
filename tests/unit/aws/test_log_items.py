"""The head of a table's log as an item: packed, and as releases before this one wrote it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.aws.dynamodb.state import packed_manifest
from dormouse.aws.dynamodb.state.log_items import head_item, head_of
from dormouse.aws.dynamodb.state.packed_manifest import unpacked_manifest
from dormouse.errors import CorruptDataError
from dormouse.statestore.log.pages import Head, Increment, IndexPlace, Manifest, Segment, Snapshot
from tests.contract.state_pages import dynamodb_pages

FORMER_HEAD: dict[str, Any] = {
    "t": {"S": "t#H"},
    "g": {"S": "0"},
    "last_page": {"N": "3"},
    "last_sum": {"B": bytes.fromhex("d61dfa1380fa7efb")},
    "first_page": {"N": "1"},
    "first_sum": {"B": bytes.fromhex("1135dd6746a1b2ed")},
    "mark": {"B": b"\x07" * 16},
    "mark_sum": {"B": bytes.fromhex("58ce00f485f96fc7")},
    "revision": {"N": "7"},
    "snapshots": {
        "L": [
            {
                "M": {
                    "i": {"S": "01" * 16},
                    "v": {"N": "60"},
                    "t": {"N": "1000"},
                    "b": {"N": "5000"},
                }
            },
            {
                "M": {
                    "i": {"S": "02" * 16},
                    "v": {"N": "100"},
                    "t": {"N": "2000"},
                    "b": {"N": "6000"},
                }
            },
        ]
    },
    "segments": {
        "L": [
            {"M": {"i": {"B": b"\x03" * 16}, "v": {"N": "96"}, "b": {"N": "300"}}},
            {
                "M": {
                    "i": {"B": b"\x04" * 16},
                    "v": {"N": "144"},
                    "b": {"N": "400"},
                    "r": {"L": [{"B": b"\x05" * 16}]},
                }
            },
        ]
    },
    "segments_after": {"N": "48"},
    "increments": {
        "L": [
            {
                "M": {
                    "i": {"B": b"\x06" * 16},
                    "v": {"N": "130"},
                    "t": {"N": "3000"},
                    "b": {"N": "70"},
                }
            }
        ]
    },
    "manifest_sum": {"B": bytes.fromhex("2f83c888deaac5f7")},
}
"""As it lies in tables of earlier releases. It is never written again."""
HEAD = Head(
    3,
    Manifest(
        7,
        (Snapshot("01" * 16, 60, 1000, 5000), Snapshot("02" * 16, 100, 2000, 6000)),
        (Segment("03" * 16, 48, 96, 300), Segment("04" * 16, 96, 144, 400, ("05" * 16,))),
        (Increment("06" * 16, 100, 130, 3000, 70),),
    ),
    "07" * 16,
    first_page=1,
)


def test_a_head_that_an_earlier_release_wrote_is_read() -> None:
    assert head_of(FORMER_HEAD) == HEAD


@pytest.mark.parametrize("name", ["revision", "snapshots", "segments", "increments"])
def test_a_former_head_that_lost_a_part_is_damaged(name: str) -> None:
    with pytest.raises(CorruptDataError, match="damaged"):
        head_of({key: value for key, value in FORMER_HEAD.items() if key != name})


def test_a_former_head_is_packed_by_its_next_change(monkeypatch: pytest.MonkeyPatch) -> None:
    with dynamodb_pages(monkeypatch) as pages:
        client: Any = pages._client
        client.put_item(TableName="state", Item=FORMER_HEAD)
        assert pages.head("t") == HEAD
        changed = Manifest(8, HEAD.manifest.snapshots[1:], HEAD.manifest.segments[1:])
        assert pages.set_manifest("t", changed)
        assert pages.head("t") == Head(3, changed, HEAD.low_water_mark, first_page=1)
        (item,) = client.scan(TableName="state")["Items"]
        assert item == head_item("t", Head(3, changed, HEAD.low_water_mark, first_page=1))


def test_a_former_head_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with dynamodb_pages(monkeypatch) as pages:
        client: Any = pages._client
        client.put_item(TableName="state", Item=FORMER_HEAD)
        closed = Head(3, first_page=1, closed=True)
        assert pages.close("t") == closed == pages.head("t")
        (item,) = client.scan(TableName="state")["Items"]
        assert set(item) == {"t", "g", "last_page", "last_sum", "first_page", "first_sum", "closed"}


ids = st.binary(min_size=16, max_size=16).map(bytes.hex)
numbers = st.integers(0, 2**40)
manifests = st.builds(
    lambda snapshots, segments, increments, after, restores: (
        snapshots,
        segments,
        increments,
        after,
        restores,
    ),
    st.lists(st.builds(Snapshot, ids, numbers, numbers, numbers), max_size=4),
    st.lists(st.tuples(ids, st.integers(1, 2**30), numbers), max_size=6),
    st.lists(st.tuples(ids, st.integers(1, 2**30), numbers, numbers), max_size=4),
    numbers,
    st.lists(st.lists(ids, max_size=2), min_size=6, max_size=6),
)


places = st.builds(IndexPlace, numbers, numbers)


def test_a_manifest_that_says_no_place_of_an_index_is_read() -> None:
    """As the release before this one wrote it: four parts, not six."""
    of_run = b"\x94\xc4\x10" + b"\x02" * 16 + b"\x64\x07\x2a"
    manifest = unpacked_manifest(b"\x01\x94\x91" + of_run + b"\x91" + of_run + b"\x00\x90", 9)
    (snapshot,), (increment,) = manifest.snapshots, manifest.increments
    assert snapshot == Snapshot("02" * 16, 100, 7, 42)
    assert increment == Increment("02" * 16, 100, 200, 7, 42)


@given(manifests, st.none() | st.tuples(places, places))
def test_any_manifest_is_read_back(drawn: Any, places: Any) -> None:
    snapshots, of_segments, of_increments, after, restores = drawn
    segments = []
    start = after
    for (name, versions, size_bytes), restored in zip(of_segments, restores, strict=False):
        segments.append(Segment(name, start, start + versions, size_bytes, tuple(restored)))
        start += versions
    increments, start = [], snapshots[-1].version if snapshots else 0
    for name, versions, time_ms, size_bytes in of_increments:
        increments.append(Increment(name, start, start + versions, time_ms, size_bytes))
        start += versions
    if places and snapshots:
        snapshots = [*snapshots[:-1], replace(snapshots[-1], index=places[0])]
    if places and increments:
        increments = [*increments[:-1], replace(increments[-1], index=places[1])]
    manifest = Manifest(9, tuple(snapshots), tuple(segments), tuple(increments))
    head = Head(5, manifest, "0a" * 16, first_page=2)
    assert head_of(head_item("t", head)) == head


def test_a_manifest_of_a_later_format_is_left_to_the_later_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(packed_manifest, "FORMAT", packed_manifest.FORMAT + 1)
        item = head_item("t", HEAD)
    with pytest.raises(CorruptDataError, match="format 3") as raised:
        head_of(item)
    assert "upgrade" in raised.value.hint


def test_a_head_whose_manifest_lost_a_byte_is_damaged() -> None:
    item = dict(head_item("t", HEAD))
    body: Any = item["manifest"]["B"]
    for cut in (body[:-1], b"", body[:-1] + bytes([body[-1] ^ 1])):
        with pytest.raises(CorruptDataError, match="damaged"):
            head_of({**item, "manifest": {"B": cut}})
