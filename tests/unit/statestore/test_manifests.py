"""Manifests: which segments become one, which snapshots and versions are kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.statestore.log.compaction import (
    SEGMENTS_PER_LEVEL,
    CompactionPolicy,
    absorbed_by,
    is_snapshot_due,
    with_segment,
)
from dormouse.statestore.log.history import with_snapshot, without_versions_before
from dormouse.statestore.log.pages import (
    PAGE_CAPACITY,
    Manifest,
    Segment,
    Snapshot,
    id_at,
    not_below,
    version_before,
)


def grown(manifest: Manifest, pages: int) -> tuple[Manifest, int]:
    """Consolidate so many pages more; return the manifest, and how many pages that wrote."""
    absorbed = absorbed_by(pages, manifest)
    end = manifest.covered_pages + pages
    after = absorbed[0].after if absorbed else version_before(manifest.covered_pages)
    made = Segment(f"{manifest.revision:032x}", after, version_before(end), 10)
    changed = with_segment(manifest, manifest, made)
    assert changed
    return changed, end - after // PAGE_CAPACITY


@given(st.lists(st.integers(1, 5), max_size=300))
def test_segments_are_few_and_each_page_is_written_a_few_times(steps: list[int]) -> None:
    manifest, written = Manifest(), 0
    for pages in steps:
        manifest, more = grown(manifest, pages)
        written += more
    levels = 1
    while SEGMENTS_PER_LEVEL**levels < max(sum(steps), 1):
        levels += 1
    assert manifest.covered_pages == sum(steps)
    assert written <= (levels + 1) * sum(steps)
    assert len(manifest.segments) <= SEGMENTS_PER_LEVEL * (levels + 1)
    assert [s.after for s in manifest.segments] == [0, *(s.version for s in manifest.segments)][:-1]


def test_segments_before_the_newest_snapshot_are_not_written_again() -> None:
    manifest = Manifest()
    for _ in range(SEGMENTS_PER_LEVEL - 1):
        manifest, _ = grown(manifest, 1)
    assert len(absorbed_by(1, manifest)) == SEGMENTS_PER_LEVEL - 1
    taken = with_snapshot(manifest, Snapshot("s", version_before(3) + 5, 1, 1), 0)
    assert taken
    assert absorbed_by(1, taken) == ()


def test_a_segment_made_of_what_others_have_changed_since_is_dropped() -> None:
    seen, _ = grown(Manifest(), 1)
    now, _ = grown(seen, 1)
    late = Segment("late", version_before(1), version_before(2), 1)
    assert with_segment(now, seen, late) is None
    trimmed = Manifest(9, (Snapshot("s", 90, 1, 1),), (Segment("x", 48, 96, 1),))
    before = Manifest(8, (), (Segment("w", 0, 48, 1), *trimmed.segments))
    assert with_segment(trimmed, before, Segment("late", 0, 144, 1)) is None
    assert with_segment(trimmed, before, Segment("fine", 48, 144, 1)) == Manifest(
        10, trimmed.snapshots, (Segment("fine", 48, 144, 1),)
    )


def test_a_snapshot_is_due_when_what_follows_the_last_is_a_quarter_of_it() -> None:
    small = Manifest(1, (), (Segment("a", 0, 48, 256 * 1024 - 1),))
    assert not is_snapshot_due(small, CompactionPolicy())
    enough = Manifest(1, (), (Segment("a", 0, 48, 256 * 1024),))
    assert is_snapshot_due(enough, CompactionPolicy())
    big = Snapshot("s", 40, 1, 50_000_000)
    for size_bytes, is_due in ((12_499_999, False), (12_500_000, True)):
        manifest = Manifest(1, (big,), (Segment("a", 0, 48, size_bytes),))
        assert is_snapshot_due(manifest, CompactionPolicy()) == is_due
        assert is_snapshot_due(manifest, CompactionPolicy(snapshot_share=3)) is False


@given(st.lists(st.integers(0, 40), max_size=40), st.integers(1, 60), st.integers(0, 60))
def test_the_version_of_every_time_to_be_kept_stays_and_snapshots_stay_few(
    pauses_ms: list[int], keep_ms: int, later_ms: int
) -> None:
    manifest, time_ms, ever = Manifest(), 0, []
    for version, pause_ms in enumerate(pauses_ms, start=1):
        time_ms += pause_ms
        ever.append(Snapshot(str(version), version, time_ms, 1))
        changed = with_snapshot(manifest, ever[-1], keep_ms)
        assert changed
        manifest = without_versions_before(changed, time_ms - keep_ms)
        assert with_snapshot(manifest, ever[-1], keep_ms) is None
    oldest_ms = time_ms + later_ms - keep_ms
    kept = without_versions_before(manifest, oldest_ms).snapshots
    current_then = [s.version for s in ever if s.time_ms <= oldest_ms]
    if current_then:  # else segments still reach back to the beginning
        assert kept[0].version <= max(current_then)
    assert kept[-1:] == tuple(ever[-1:])
    assert len(kept) <= 12


def test_old_segments_go_with_the_snapshots_that_needed_them() -> None:
    segments = tuple(Segment(str(n), 48 * n, 48 * n + 48, 1) for n in range(4))
    manifest = Manifest(3, (Snapshot("a", 60, 10, 1), Snapshot("b", 100, 20, 1)), segments)
    assert without_versions_before(manifest, 9) == manifest
    assert without_versions_before(manifest, 10) == Manifest(3, manifest.snapshots, segments[1:])
    assert without_versions_before(manifest, 20) == Manifest(
        3, manifest.snapshots[1:], segments[2:]
    )


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
def test_an_id_that_is_not_below_the_floor_keeps_its_chance(
    floor_ms: int, made_ms: int, chance: int
) -> None:
    made = f"{made_ms:012x}{chance:020x}"
    chosen = not_below(id_at(floor_ms), made)
    assert chosen >= id_at(floor_ms)
    assert chosen[12:] == made[12:]
    assert chosen == made or floor_ms > made_ms
