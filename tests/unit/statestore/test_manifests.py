"""Manifests: which segments become one, which snapshots and versions are kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.state.tables import item_bytes
from dormouse.aws.items import attributes_of
from dormouse.items.pages import put_head
from dormouse.log.compaction import (
    COMMITS_TO_INCREMENT,
    increment_period,
    is_increment_due,
    is_snapshot_due,
)
from dormouse.log.pages import (
    HISTORY_PER_LEVEL,
    MOST_HISTORY_BYTES,
    MOST_INCREMENTS,
    PAGE_CAPACITY,
    PAGES_PER_SEGMENT,
    SEGMENTS_PER_LEVEL,
    Head,
    Increment,
    Manifest,
    Segment,
    Snapshot,
    absorbed_by,
    ends_at,
    history_to_merge,
    id_at,
    left_before,
    not_below,
    version_before,
    with_history_merged,
    with_segment,
)
from dormouse.log.tail import with_increment, with_snapshot, without_versions_before


def grown(
    manifest: Manifest, pages: int, *, size_bytes: int = 10, name: str = ""
) -> tuple[Manifest, int]:
    """Consolidate so many pages more; return the manifest, and how many pages that wrote."""
    absorbed = absorbed_by(pages, manifest)
    end = manifest.covered_pages + pages
    after = absorbed[0].after if absorbed else version_before(manifest.covered_pages)
    size_bytes += sum(segment.size_bytes for segment in absorbed)
    made = Segment(name or f"{manifest.revision:032x}", after, version_before(end), size_bytes)
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
    assert written <= (levels + 1 + PAGES_PER_SEGMENT // 2) * sum(steps)
    assert len(manifest.segments) <= SEGMENTS_PER_LEVEL * (levels + 1)
    assert [s.after for s in manifest.segments] == [0, *(s.version for s in manifest.segments)][:-1]


@given(st.integers(0, 47), st.integers(1, COMMITS_TO_INCREMENT // PAGE_CAPACITY + 1))
def test_a_reader_fetches_two_segments_of_what_was_committed_since_the_newest_cut(
    place: int, pages: int
) -> None:
    manifest, _ = grown(Manifest(), 20)
    taken = with_snapshot(manifest, Snapshot("s", version_before(20) + place, 1, 1), 0)
    assert taken
    manifest = taken
    for _ in range(pages):
        manifest, _ = grown(manifest, 1)
    newest = manifest.newest
    assert newest
    since = [s for s in manifest.segments if s.version > newest.version]
    assert len(since) == -(-pages // PAGES_PER_SEGMENT) <= 2


def test_segments_before_the_newest_snapshot_are_not_written_again() -> None:
    manifest, _ = grown(Manifest(), PAGES_PER_SEGMENT - 1)
    assert absorbed_by(1, manifest) == manifest.segments
    taken = with_snapshot(manifest, Snapshot("s", manifest.segments[-1].version + 5, 1, 1), 0)
    assert taken
    assert absorbed_by(1, taken) == ()


def test_a_segment_made_of_what_others_have_changed_since_is_dropped() -> None:
    seen, _ = grown(Manifest(), 1)
    quicker = Segment("quicker", version_before(1), version_before(2), 1)
    now = replace(seen, segments=(*seen.segments, quicker))
    late = Segment("late", version_before(1), version_before(2), 1)
    assert with_segment(now, seen, late) is None
    trimmed = Manifest(9, (Snapshot("s", 90, 1, 1),), (Segment("x", 48, 96, 1),))
    before = Manifest(8, (), (Segment("w", 0, 48, 1), *trimmed.segments))
    assert with_segment(trimmed, before, Segment("late", 0, 144, 1)) is None
    assert with_segment(trimmed, before, Segment("fine", 48, 144, 1)) == Manifest(
        10, trimmed.snapshots, (Segment("fine", 48, 144, 1),)
    )


def test_a_snapshot_is_due_when_what_follows_the_last_is_a_third_of_it() -> None:
    small = Manifest(1, (), (Segment("a", 0, 48, 256 * 1024 - 1),))
    assert not is_snapshot_due(small, 3)
    enough = Manifest(1, (), (Segment("a", 0, 48, 256 * 1024),))
    assert is_snapshot_due(enough, 3)
    big = Snapshot("s", 40, 1, 50_000_000)
    for size_bytes, is_due in ((16_666_665, False), (16_666_666, True)):
        manifest = Manifest(1, (big,), (Segment("a", 0, 48, size_bytes),))
        assert is_snapshot_due(manifest, 3) == is_due
        assert is_snapshot_due(manifest, 2) is False


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


@pytest.mark.parametrize("seed", range(5))
def test_increments_are_few_and_each_commit_is_written_a_few_times(seed: int) -> None:
    random = Random(seed)
    steps = [random.randrange(256, 330) for _ in range(250)]
    manifest, written, end = Manifest(1, (Snapshot("s", 7, 0, 1),)), 0, 7
    for number, commits in enumerate(steps):
        after, before, end = manifest.cuts[-1], list(manifest.increments), end + commits
        left = left_before(end, before, increment_period())
        while len(before) > left:
            after = before.pop().after
        written += end - after
        made = Increment(f"{number:032x}", after, end, 0, 1)
        manifest = with_increment(manifest, made) or manifest
        assert manifest.cuts[-1] == end
        assert len(manifest.increments) <= MOST_INCREMENTS
    assert written <= 6 * sum(steps)


def test_an_increment_takes_in_only_the_last_before_it() -> None:
    written, before = 0, ends_at(0, MOST_INCREMENTS)
    assert before == []
    for periods in range(1, 226):
        ends = ends_at(periods, MOST_INCREMENTS)
        assert ends[-1] == periods
        assert ends[:-1] == before[: len(ends) - 1]
        written += periods - (ends[-2] if len(ends) > 1 else 0)
        assert len(ends) <= MOST_INCREMENTS
        before = ends
    assert written <= 4.2 * 225


# History


def test_the_head_of_a_busy_table_stays_below_a_kilobyte() -> None:
    """Fifty commits a second, each of which takes what it takes in the benchmark."""
    for snapshot_bytes in (60_000, 7_000_000, 70_000_000):
        largest = 0
        for head in heads_of(snapshot_bytes, pages=2600):
            largest = max(largest, item_bytes(attributes_of(put_head("0" * 32, head))))
            ends = [segment.version for segment in head.manifest.segments]
            assert [segment.after for segment in head.manifest.segments[1:]] == ends[:-1]
        assert 700 < largest < 1024


def heads_of(snapshot_bytes: int, pages: int) -> Iterator[Head]:
    """Yield the head after each page of a table, a page a second, with all maintenance."""
    keep_ms, ids = 15 * 60 * 1000, count(10**36)
    manifest = Manifest(1, (Snapshot(f"{next(ids):032x}", 0, 0, snapshot_bytes),))
    for page in range(1, pages + 1):
        version, time_ms = version_before(page) + 7, 1_700_000_000_000 + 1000 * page
        manifest, _ = grown(manifest, 1, size_bytes=48 * 300, name=f"{next(ids):032x}")
        if run := history_to_merge(manifest):
            size_bytes = sum(segment.size_bytes for segment in run)
            made = Segment(f"{next(ids):032x}", run[0].after, run[-1].version, size_bytes)
            merged = with_history_merged(manifest, run, made)
            assert merged
            manifest = merged
        if is_snapshot_due(manifest, 3):
            kept = Snapshot(f"{next(ids):032x}", version, time_ms, snapshot_bytes)
            manifest = with_snapshot(manifest, kept, keep_ms) or manifest
        elif is_increment_due(manifest):
            after, before = manifest.cuts[-1], list(manifest.increments)
            left = left_before(version, before, increment_period())
            while len(before) > left:
                after = before.pop().after
            row = Increment(f"{next(ids):032x}", after, version, time_ms, 200 * (version - after))
            manifest = with_increment(manifest, row) or manifest
        if page % 300 == 0:
            kept_from = without_versions_before(manifest, time_ms - keep_ms)
            manifest = replace(kept_from, revision=manifest.revision + 1)
        yield Head(page, manifest, f"{next(ids):032x}")


@given(
    st.lists(st.sampled_from([1, 1, 1, 5, 40]), min_size=13, max_size=60),
    st.integers(0, 60),
    st.integers(0, 47),
    st.integers(1, 48 * 200),
)
def test_what_is_merged_follows_one_another_on_one_side_of_the_newest_snapshot(
    counts: list[int], at: int, place: int, more: int
) -> None:
    segments, after = [], 0
    for number, pages in enumerate(counts):
        segments.append(Segment(f"{number:032x}", after, after + 48 * pages, 1000))
        after += 48 * pages
    newest = (segments[at].after if at < len(segments) else after) + place
    increments = (Increment("i", newest, newest + more, 2, 1),)
    manifest = Manifest(1, (Snapshot("s", newest, 1, 1),), tuple(segments), increments)
    run = history_to_merge(manifest)
    if not run:
        return
    assert len(run) >= HISTORY_PER_LEVEL
    assert run[-1].version <= newest or run[0].version > newest
    assert not any(segment in absorbed_by(1, manifest) for segment in run)
    made = Segment("made", run[0].after, run[-1].version, 1)
    merged = with_history_merged(manifest, run, made)
    assert merged
    assert len(merged.segments) == len(segments) - len(run) + 1
    assert is_snapshot_due(merged, 3) <= is_snapshot_due(manifest, 3)
    assert with_history_merged(merged, run, made) is None, "it has no such run any more"


def test_no_segment_of_history_is_too_large_to_be_merged_in_memory() -> None:
    large = MOST_HISTORY_BYTES // 2
    segments = tuple(Segment(str(n), 48 * n, 48 * n + 48, large) for n in range(20))
    manifest = Manifest(1, (Snapshot("s", 48 * 20, 1, 1),), segments)
    assert history_to_merge(manifest) == ()
    small = tuple(replace(segment, size_bytes=large // 2) for segment in segments)
    assert history_to_merge(replace(manifest, segments=small)) == small[-4:]


def test_a_run_that_changed_is_not_replaced() -> None:
    segments = tuple(Segment(str(n), 48 * n, 48 * n + 48, 1) for n in range(20))
    manifest = Manifest(1, (Snapshot("s", 48 * 20, 1, 1),), segments)
    run = history_to_merge(manifest)
    made = Segment("made", run[0].after, run[-1].version, 3)
    at = segments.index(run[1])
    other = (*segments[:at], replace(run[1], id="other"), *segments[at + 1 :])
    assert with_history_merged(manifest, run, made)
    assert with_history_merged(replace(manifest, segments=other), run, made) is None
