"""Roots: which segments become one, which snapshots and versions are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.statestore.consolidation import (
    SEGMENTS_PER_LEVEL,
    absorbed_by,
    snapshot_due,
    with_segment,
)
from dormouse.statestore.history import with_snapshot, without_versions_before
from dormouse.statestore.pages import (
    PAGE_CAPACITY,
    Root,
    Segment,
    Snapshot,
    id_at,
    not_below,
    version_before,
)


def grown(root: Root, pages: int) -> tuple[Root, int]:
    """Consolidate so many pages more; give the root, and how many pages were written for it."""
    absorbed = absorbed_by(pages, root)
    end = root.covered_pages + pages
    after = absorbed[0].after if absorbed else version_before(root.covered_pages)
    made = Segment(f"{root.revision:032x}", after, version_before(end), 10)
    changed = with_segment(root, root, made)
    assert changed
    return changed, end - after // PAGE_CAPACITY


@given(st.lists(st.integers(1, 5), max_size=300))
def test_segments_are_few_and_each_page_is_written_a_few_times(steps: list[int]) -> None:
    root, written = Root(), 0
    for pages in steps:
        root, more = grown(root, pages)
        written += more
    levels = 1
    while SEGMENTS_PER_LEVEL**levels < max(sum(steps), 1):
        levels += 1
    assert root.covered_pages == sum(steps)
    assert written <= (levels + 1) * sum(steps)
    assert len(root.segments) <= SEGMENTS_PER_LEVEL * (levels + 1)
    assert [s.after for s in root.segments] == [0, *(s.version for s in root.segments)][:-1]


def test_segments_before_the_newest_snapshot_are_not_written_again() -> None:
    root = Root()
    for _ in range(SEGMENTS_PER_LEVEL - 1):
        root, _ = grown(root, 1)
    assert len(absorbed_by(1, root)) == SEGMENTS_PER_LEVEL - 1
    taken = with_snapshot(root, Snapshot("s", version_before(3) + 5, 1, 1), 0)
    assert taken
    assert absorbed_by(1, taken) == ()


def test_a_segment_made_of_what_others_have_changed_since_is_dropped() -> None:
    seen, _ = grown(Root(), 1)
    now, _ = grown(seen, 1)
    late = Segment("late", version_before(1), version_before(2), 1)
    assert with_segment(now, seen, late) is None
    trimmed = Root(9, (Snapshot("s", 90, 1, 1),), (Segment("x", 48, 96, 1),))
    before = Root(8, (), (Segment("w", 0, 48, 1), *trimmed.segments))
    assert with_segment(trimmed, before, Segment("late", 0, 144, 1)) is None
    assert with_segment(trimmed, before, Segment("fine", 48, 144, 1)) == Root(
        10, trimmed.snapshots, (Segment("fine", 48, 144, 1),)
    )


def test_a_snapshot_is_due_when_what_follows_the_last_is_a_tenth_of_it() -> None:
    small = Root(1, (), (Segment("a", 0, 48, 256 * 1024 - 1),))
    assert not snapshot_due(small, 1, has_segments=True)
    assert snapshot_due(Root(1, (), (Segment("a", 0, 48, 256 * 1024),)), 1, has_segments=True)
    big = Snapshot("s", 40, 1, 50_000_000)
    for size_bytes, is_due in ((4_999_999, False), (5_000_000, True)):
        root = Root(1, (big,), (Segment("a", 0, 48, size_bytes),))
        assert snapshot_due(root, 1, has_segments=True) == is_due
    assert snapshot_due(Root(), 1, has_segments=False)
    assert not snapshot_due(Root(1, (Snapshot("s", 48, 1, 1),)), 1, has_segments=False)


@given(st.lists(st.integers(0, 40), max_size=40), st.integers(1, 60), st.integers(0, 60))
def test_the_version_of_every_time_to_be_kept_stays_and_snapshots_stay_few(
    pauses_ms: list[int], keep_ms: int, later_ms: int
) -> None:
    root, time_ms, ever = Root(), 0, []
    for version, pause_ms in enumerate(pauses_ms, start=1):
        time_ms += pause_ms
        ever.append(Snapshot(str(version), version, time_ms, 1))
        changed = with_snapshot(root, ever[-1], keep_ms)
        assert changed
        root = without_versions_before(changed, time_ms - keep_ms)
        assert with_snapshot(root, ever[-1], keep_ms) is None
    oldest_ms = time_ms + later_ms - keep_ms
    kept = without_versions_before(root, oldest_ms).snapshots
    current_then = [s.version for s in ever if s.time_ms <= oldest_ms]
    if ever:
        assert kept[0].version <= max(current_then, default=0)
    assert kept[-1:] == tuple(ever[-1:])
    assert len(kept) <= 12


def test_old_segments_go_with_the_snapshots_that_needed_them() -> None:
    segments = tuple(Segment(str(n), 48 * n, 48 * n + 48, 1) for n in range(4))
    root = Root(3, (Snapshot("a", 60, 10, 1), Snapshot("b", 100, 20, 1)), segments)
    assert without_versions_before(root, 9) == root
    assert without_versions_before(root, 10) == Root(3, root.snapshots, segments[1:])
    assert without_versions_before(root, 20) == Root(3, root.snapshots[1:], segments[2:])


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
def test_an_id_that_is_not_below_the_floor_keeps_its_chance(
    floor_ms: int, made_ms: int, chance: int
) -> None:
    made = f"{made_ms:012x}{chance:020x}"
    chosen = not_below(id_at(floor_ms), made)
    assert chosen >= id_at(floor_ms)
    assert chosen[12:] == made[12:]
    assert chosen == made or floor_ms > made_ms
