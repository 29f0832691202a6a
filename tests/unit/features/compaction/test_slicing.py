"""Work cut by key: every key in one task, none with twice its share unless a key alone has it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from hypothesis import given
from hypothesis import strategies as st

from dormouse.features.compaction_steps import (
    KeyTask,
    equal_row_ranges,
    leaf_tasks,
    max_task_rows,
    merge_ranges,
)
from dormouse.keys import Key, KeyHistogram, KeyRange, encode_key, merge_histograms
from dormouse.state.partitions import PartitionTree

MIB = 1024 * 1024
keys = st.lists(st.integers(0, 300), min_size=1, max_size=400)


def sampled(rows: list[int], step: int) -> KeyHistogram:
    """Sample sorted rows as shards do: the key of every `step`-th, with its rank."""
    ordered = sorted(rows)
    taken = {ordered[i]: bisect_left(ordered, ordered[i]) for i in range(0, len(ordered), step)}
    return KeyHistogram(tuple(((k,), n) for k, n in taken.items()), len(rows), (ordered[-1],))


def count(rows: list[int], span: KeyRange) -> int:
    return sum(span.contains(encode_key((key,))) for key in rows)


def tile(spans: list[KeyRange], whole: KeyRange) -> bool:
    meet = all(a.max == b.min for a, b in zip(spans, spans[1:], strict=False))
    return meet and (spans[0].min, spans[-1].max) == (whole.min, whole.max)


def heaviest(rows: list[int]) -> int:
    return max(rows.count(key) for key in set(rows))


@given(rows=keys, step=st.integers(1, 5), parts=st.integers(1, 12))
def test_ranges_tile_and_differ_by_little_but_samples_and_single_keys(
    rows: list[int], step: int, parts: int
) -> None:
    spans = equal_row_ranges(KeyRange(), sampled(rows, step), parts)
    assert len(spans) <= parts
    assert tile(spans, KeyRange())
    assert max(count(rows, span) for span in spans) <= (
        -(-len(rows) // parts) + 2 * (step + heaviest(rows))
    )
    assert all(count(rows, span) for span in spans), "a range begins with a key that is there"


@given(parts=st.integers(1, 16), spread=st.integers(1, 10**6))
def test_tasks_over_many_keys_have_at_most_twice_their_mean(parts: int, spread: int) -> None:
    rows = [n * n * spread for n in range(1000)]
    spans = equal_row_ranges(KeyRange(), sampled(rows, 4), parts)
    sizes = [count(rows, span) for span in spans]
    assert len(sizes) == parts
    assert max(sizes) * parts <= 2 * len(rows)


def test_ranges_stay_within_what_is_cut() -> None:
    known = sampled(list(range(100)), 1)
    span = KeyRange((20,), (60,))
    spans = equal_row_ranges(span, known, 4)
    assert [(s.min, s.max) for s in spans] == [
        ((20,), (30,)),
        ((30,), (40,)),
        ((40,), (50,)),
        ((50,), (60,)),
    ]


def test_one_key_is_not_parted_and_nothing_known_is_one_range() -> None:
    assert equal_row_ranges(KeyRange(), sampled([5] * 100, 3), 8) == [KeyRange()]
    assert equal_row_ranges(KeyRange(), KeyHistogram(), 8) == [KeyRange()]


def test_a_small_compaction_has_few_tasks_and_a_large_one_as_many_as_shards() -> None:
    known = sampled(list(range(10_000)), 1)
    for size_bytes, tasks in ((1, 1), (64 * MIB, 2), (2048 * MIB, 16), (2**20 * MIB, 2730)):
        assert len(merge_ranges(KeyRange(), known, size_bytes, 512 * MIB)) == tasks


def test_tasks_of_a_small_compaction_leave_no_core_of_an_executor_idle_at_the_end() -> None:
    known = sampled(list(range(10_000)), 1)
    for size_bytes, tasks in ((96 * MIB, 3), (128 * MIB, 4), (200 * MIB, 4), (310 * MIB, 8)):
        assert len(merge_ranges(KeyRange(), known, size_bytes, 512 * MIB)) == tasks


@given(
    rows=keys,
    points=st.lists(st.integers(1, 300), unique=True, max_size=12).map(sorted),
    limit=st.integers(1, 200),
)
def test_each_key_is_written_by_one_task_whose_leaves_hold_it(
    rows: list[int], points: list[int], limit: int
) -> None:
    leaves = list(PartitionTree.from_split_points([(p,) for p in points]).leaves())
    tasks = leaf_tasks(leaves, sampled(rows, 1), limit)
    assert tile([task.span for task in tasks], KeyRange())
    starts = [task.span.min for task in tasks]
    for key in set(rows):
        task = tasks[bisect_right(starts, (key,)) - 1]
        assert task.span.contains(encode_key((key,)))
        assert sum(leaf.range.contains(encode_key((key,))) for leaf in task.leaves) == 1
    assert max(rows_of(task, rows) for task in tasks) <= 1.5 * limit + 2 * heaviest(rows)
    for task in tasks:  # an uncut leaf is some task's as a whole, so it becomes one shard
        inner = task.leaves[1:-1]
        assert all(task.span.overlaps(leaf.range) for leaf in inner)


def rows_of(task: KeyTask, rows: list[int]) -> int:
    return count(rows, task.span)


def test_small_neighbours_share_a_task_and_a_large_leaf_has_several() -> None:
    leaves = list(PartitionTree.from_split_points([(10,), (20,), (30,), (90,)]).leaves())
    tasks = leaf_tasks(leaves, sampled(list(range(100)), 1), 20)
    assert [(t.span.min, t.span.max) for t in tasks] == [
        ((), (20,)),
        ((20,), (30,)),
        ((30,), (50,)),
        ((50,), (70,)),
        ((70,), (90,)),
        ((90,), None),
    ]


def test_a_task_is_worth_its_start_and_fits_a_disk() -> None:
    leaves = list(PartitionTree.from_split_points([(50,)]).leaves())
    known = sampled(list(range(100)), 1)
    assert max_task_rows(leaves, known, 100 * 16 * MIB, 4) == 25
    assert max_task_rows(leaves, known, 16 * MIB, 4) == 100
    assert max_task_rows(leaves, known, 100 * 1024 * MIB, 1) == 2


@given(parts=st.lists(keys, min_size=1, max_size=4), point=st.integers(-1, 301))
def test_pooled_samples_of_every_row_know_where_all_rows_lie(
    parts: list[list[int]], point: int
) -> None:
    rows = [key for part in parts for key in part]
    known = merge_histograms(sampled(part, 1) for part in parts)
    assert known == sampled(rows, 1)
    span: tuple[Key, Key | None] = ((point,), None)
    assert known.within(KeyRange(*span)).rows == known.rows_in(KeyRange(*span)) or point not in rows
