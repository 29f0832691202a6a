"""The head of a table's log as an item, with its packed manifest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.errors import CorruptDataError
from dormouse.items import pages
from dormouse.items.pages import ItemPages, put_head
from dormouse.items.store import Put
from dormouse.log.pages import Head, Increment, IndexPlace, Manifest, Segment, Snapshot
from tests.support.memory_items import MemoryItems

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


def read(change: Put) -> Head | None:
    items = MemoryItems()
    assert items.write(change)
    return ItemPages(items).head("t")


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
    assert read(put_head("t", head)) == head


def test_a_manifest_of_a_later_format_is_left_to_the_later_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(pages, "MANIFEST_FORMAT", pages.MANIFEST_FORMAT + 1)
        later = put_head("t", HEAD)
    with pytest.raises(CorruptDataError, match="format 2") as raised:
        read(later)
    assert "upgrade" in raised.value.hint


def test_a_head_whose_manifest_lost_a_byte_is_damaged() -> None:
    change = put_head("t", HEAD)
    body = change.parts["manifest"]
    assert isinstance(body, bytes)
    for cut in (body[:-1], b"", body[:-1] + bytes([body[-1] ^ 1])):
        with pytest.raises(CorruptDataError, match="damaged"):
            read(replace(change, parts={**change.parts, "manifest": cut}))
