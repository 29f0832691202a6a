"""A key index is little larger than what it indexes, whichever jobs hold wide partitions."""

from __future__ import annotations

from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dormouse.keys import Key, KeyRange, encode_key
from dormouse.log import key_index
from dormouse.log.key_index import (
    SCHEMA,
    all_rows,
    blocks_of_changes,
    decode_key_index,
    index_place,
    known_part,
    without_footer,
)
from dormouse.log.snapshot import encode_snapshot
from dormouse.state.partitions import (
    ROOT,
    OverlayMap,
    PartitionReferences,
    PartitionTree,
    Reference,
    Shard,
)
from dormouse.state.state import TableState
from tests.support.strategies import short_keys

LEAVES = 6000


def state_of(wide: int, leaves: int = LEAVES) -> TableState:
    """A state with a reference on each leaf, and many that jobs hold of the root."""
    tree = PartitionTree.from_split_points([(number,) for number in range(1, leaves)])
    held: dict[str, PartitionReferences] = {}
    shards: dict[str, Shard] = {}
    places = [(leaf.id, (f"{n:08}",)) for n, leaf in enumerate(tree.leaves())]
    places.append((ROOT, tuple(f"w{n:07}" for n in range(wide))))
    for partition, names in places:
        if not names:
            continue
        here = {name: Reference(partition, name, 10, True, f"job{name}") for name in names}
        shards |= {name: Shard.of(name, 10, 1000, (0,), (leaves,)) for name in names}
        held[partition] = PartitionReferences(OverlayMap.of(here), 10 * len(here), 0)
    return TableState(
        partitions=tree,
        shards=OverlayMap.of(shards),
        references=OverlayMap.of(held),
        reference_counts=OverlayMap.of(dict.fromkeys(shards, 1)),
        rows=10 * len(shards),
        reference_count=len(shards),
    )


def parts_of(state: TableState) -> tuple[bytes, int]:
    """Return a snapshot with its key index, and how many bytes that has."""
    plain = encode_snapshot("t", state)
    whole = encode_snapshot("t", state, has_key_index=True)
    return whole, len(whole) - len(plain)


def test_a_key_index_is_bounded_by_what_there_is_whoever_holds_wide_partitions() -> None:
    _, narrow = parts_of(state_of(0))
    _, wide = parts_of(state_of(3000))
    assert wide < 1.75 * narrow, "half as many references more, not that many for each block"


@pytest.mark.parametrize("wide", [0, 3, 400])
def test_a_reader_of_a_key_finds_what_wide_partitions_hold(wide: int) -> None:
    with patch.multiple(key_index, BLOCK_ROWS=64, BLOCK_ROWS_OF_CHANGES=64, MOST_REACHING=16):
        state = state_of(wide, 500)
        whole, _ = parts_of(state)
    for key in ((0,), (77,), (255,), (499,)):
        found = read(whole, KeyRange.exactly(key))
        _, references = next(iter(state.partitions_to_read(KeyRange.exactly(key))))
        (piece,) = found
        assert [shard.id for shard in piece.shards] == [r.shard for r in references]


def read(whole: bytes, wanted: KeyRange) -> list[object]:
    alone = without_footer(whole)
    index = decode_key_index("t", alone, len(alone), "it")
    assert index
    tables = []
    for number in index.blocks([wanted]):
        start, end = index.place(number)
        tables.append(index.rows(number, whole[start:end], "it"))
    return list(known_part([tables], [wanted]).pieces())


def test_each_row_of_all_is_there_once() -> None:
    with patch.multiple(key_index, BLOCK_ROWS=64, BLOCK_ROWS_OF_CHANGES=64, MOST_REACHING=16):
        state = state_of(100, 500)
        whole, _ = parts_of(state)
        assert index_place(whole)
        found = all_rows("t", whole, "it")
    assert found is not None
    assert len(found) == len(state.partitions.by_id) + state.reference_count


ends = st.tuples(short_keys, short_keys).filter(lambda pair: pair[0] != pair[1])
OPEN_BESIDE_ENDING = [
    ((("a",), ("b",)), True, 0),
    ((("a",), ("c",)), False, 0),
    ((("b",), ("c",)), False, 0),
]


@example(drawn=OPEN_BESIDE_ENDING, key=("d",), per_block=2, most=0)
@given(
    st.lists(st.tuples(ends, st.booleans(), st.integers(0, 5)), max_size=40),
    short_keys,
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_blocks_and_shared_ones_have_all_rows_of_any_key(
    drawn: list[tuple[tuple[Key, Key], bool, int]], key: Key, per_block: int, most: int
) -> None:
    spans = [(*sorted(map(encode_key, pair)), is_open) for pair, is_open, _ in drawn]
    cells = [
        {"low": low, "high": None if is_open else high, "shard": f"s{number}", "gone": False}
        for number, ((low, high, is_open), (_, _, count)) in enumerate(
            zip(spans, drawn, strict=True)
        )
        for number in range(10 * number, 10 * number + 1 + count)
    ]
    table = pa.Table.from_pylist(cells, SCHEMA)
    with patch.multiple(
        key_index, BLOCK_ROWS=per_block, BLOCK_ROWS_OF_CHANGES=per_block, MOST_REACHING=most
    ):
        found = list(blocks_of_changes(table))
    plain = [block for block in found if isinstance(block, key_index.IndexBlock)]
    assert sum(len(block.rows) for block in found) <= len(table) + most * len(plain)
    at = encode_key(key)
    here = [block for block in plain if block.fence <= at][-1:] or plain[:1]
    here += [
        block
        for block in found
        if isinstance(block, key_index.SharedBlock)
        and block.low <= at
        and (block.high is None or at <= block.high)
    ]
    seen = {row["shard"] for block in here for row in block.rows.to_pylist()}
    wanted = {
        cell["shard"]
        for cell in cells
        if cell["low"] <= at and (cell["high"] is None or at < cell["high"])
    }
    assert wanted <= seen
