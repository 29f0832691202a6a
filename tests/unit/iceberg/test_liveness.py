"""Live and dead ranges of shards, and how shards are cut into manifests."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dormouse.iceberg.liveness import (
    ENTRIES,
    LiveShard,
    cut_into_manifests,
    dead_ranges,
    live_shards,
)
from dormouse.keys import Key, KeyRange, encode_key
from dormouse.state.partitions import (
    OverlayMap,
    PartitionReferences,
    PartitionTree,
    Reference,
    Shard,
)
from dormouse.state.state import TableState
from tests.support.strategies import short_keys, short_ranges


def shard(name: str, low: Key, high: Key) -> Shard:
    return Shard.of(name, 10, 1000, low, high)


@given(st.lists(short_ranges(), min_size=1), st.lists(short_keys, min_size=1))
def test_each_row_is_live_or_dead_and_never_both(
    live: list[KeyRange], keys: list[tuple[str]]
) -> None:
    of = shard("s", min(keys), max(keys))
    dead = dead_ranges(of, live)
    assert list(dead) == sorted(dead, key=lambda gap: gap.min)
    for key in keys:
        is_live = any(span.contains(encode_key(key)) for span in live)
        assert sum(gap.contains(encode_key(key)) for gap in dead) == (0 if is_live else 1)


def test_a_shard_that_is_wholly_live_has_no_dead_ranges() -> None:
    whole = shard("s", ("b",), ("c",))
    assert dead_ranges(whole, [KeyRange(("a",), ("d",))]) == ()
    assert dead_ranges(whole, [KeyRange((), ("bb",)), KeyRange(("bb",))]) == ()


@st.composite
def states(draw: st.DrawFn) -> TableState:
    """States with any references, also in partitions that were split."""
    points = sorted(draw(st.sets(short_keys, max_size=6)))
    tree = PartitionTree.from_split_points(points)
    partitions = sorted(tree.by_id)
    shards, references = {}, OverlayMap[str, PartitionReferences]()
    for number in range(draw(st.integers(0, 8))):
        low, high = sorted((draw(short_keys), draw(short_keys)))
        made = shard(f"s{number}", low, high)
        shards[made.id] = made
        for partition in draw(st.sets(st.sampled_from(partitions), min_size=1, max_size=3)):
            held = references.get(partition, PartitionReferences())
            references = references.discard(partition).insert(
                partition, held.insert(Reference(partition, made.id, 1))
            )
    return TableState(partitions=tree, shards=OverlayMap.of(shards), references=references)


@given(states(), short_keys)
def test_live_rows_are_those_that_a_query_reads(state: TableState, key: tuple[str]) -> None:
    """A shard is listed once; a key of it is live if and only if a query would read it there."""
    groups = live_shards(state)
    assert list(groups) == sorted(groups)
    listed = [live for group in groups.values() for live in group]
    assert sorted(live.shard.id for live in listed) == sorted(state.shards)
    read = {
        reference.shard
        for span, references in state.partitions_to_read(KeyRange())
        for reference in references
        if span.contains(encode_key(key))
    }
    for live in listed:
        within = live.shard.min_key <= key <= live.shard.max_key
        is_dead = any(gap.contains(encode_key(key)) for gap in live.dead)
        assert (live.shard.id in read and within) == (within and not is_dead)


def many(groups: int, each: int) -> dict[Key, list[LiveShard]]:
    return {
        (number,): [LiveShard(shard(f"{number}-{i}", (number,), (number,))) for i in range(each)]
        for number in range(groups)
    }


def test_manifests_have_about_a_thousand_shards_each() -> None:
    manifests = cut_into_manifests(many(10_000, 10))
    assert sum(map(len, manifests)) == 100_000
    assert ENTRIES / 4 < 100_000 / len(manifests) < ENTRIES * 4


def test_more_shards_change_one_manifest() -> None:
    groups = many(2_000, 10)
    before = {tuple(live.shard.id for live in part) for part in cut_into_manifests(groups)}
    groups[(777,)] += [LiveShard(shard(f"more{i}", (777,), (777,))) for i in range(15)]
    after = {tuple(live.shard.id for live in part) for part in cut_into_manifests(groups)}
    assert len(after - before) == 1


def test_a_leaf_that_is_split_changes_at_most_the_manifests_around_it() -> None:
    groups = many(2_000, 10)
    before = {tuple(live.shard.id for live in part) for part in cut_into_manifests(groups)}
    groups[(777, "half")] = groups[(777,)][5:]
    groups[(777,)] = groups[(777,)][:5]
    ordered = {key: groups[key] for key in sorted(groups)}
    after = {tuple(live.shard.id for live in part) for part in cut_into_manifests(ordered)}
    assert len(after - before) <= 2


def test_an_empty_state_has_no_manifests() -> None:
    assert cut_into_manifests(live_shards(TableState())) == []
