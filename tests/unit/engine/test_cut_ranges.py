"""Rows of parts of shards are those of their ranges, however the rows beyond are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dormouse.keys import Key, KeyRange, encode_key
from dormouse.ports import Cache
from dormouse.rows import datafusion, merging, wide_rows
from dormouse.rows.predicates import parse_predicate
from dormouse.schema.schema import Schema
from dormouse.shards.reading import Slice
from dormouse.storage import FolderStorage
from tests.support.depth import examples
from tests.support.small_blocks import write_small_blocks
from tests.support.tables import MEMORY_BYTES, ShardTable

SCHEMA = Schema.from_json(
    {
        "rowKeyFields": [{"name": "k", "type": "StringType"}],
        "sortKeyFields": [{"name": "n", "type": "IntType"}],
        "valueFields": [{"name": "shard", "type": "IntType"}],
    }
)
LETTERS = "abcdefgh"
INPUTS = 3
NARROW, WIDE = 2**40, 0
"""How many bytes a row has that is wide."""
BOUNDS = st.one_of(
    st.tuples(st.sampled_from([*LETTERS, "", "cc", "z"])),
    st.tuples(st.sampled_from(LETTERS), st.integers(-2, 16) | st.just(2**40)),
)
RANGES = st.builds(KeyRange, st.just(()) | BOUNDS, st.none() | BOUNDS)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ShardTable:
    """Return shards of many row groups, some of which begin and end later."""
    folder = tmp_path_factory.mktemp("table")
    (folder / "scratch").mkdir()
    made = ShardTable(FolderStorage(folder / "data"), SCHEMA, folder / "scratch")
    with pytest.MonkeyPatch.context() as patch:
        write_small_blocks(patch, 4)
        for shard in range(INPUTS):
            made.add(
                [
                    {"k": letter, "n": n, "shard": shard}
                    for letter in LETTERS[shard % 3 :]
                    for n in range(shard, shard + 12)
                ]
            )
    return made


def merged(table: ShardTable, ranges: Sequence[KeyRange], **options: Any) -> list[tuple[Key, int]]:
    shards = sorted(table.state.shards.values(), key=lambda shard: shard.id)
    slices = [Slice(shard, span) for shard, span in zip(shards, ranges, strict=True)]
    options |= {"scratch": table.folder, "memory_bytes": MEMORY_BYTES}
    merge = options.pop("merge", merging.merge_slices)
    batches = merge(table.storage, "table", slices, SCHEMA, **options)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [((row["k"], row["n"]), row["shard"]) for row in rows]


def expected(table: ShardTable, ranges: Sequence[KeyRange], *, least: int = 0) -> set[Any]:
    found = [((str(row["k"]), int(str(row["n"]))), int(str(row["shard"]))) for row in table.rows()]
    return {(key, n) for key, n in found if ranges[n].contains(encode_key(key)) and key[1] >= least}


@pytest.mark.parametrize("wide", [NARROW, WIDE], ids=["narrow", "wide"])
@settings(max_examples=examples(50))
@given(
    ranges=st.lists(RANGES, min_size=INPUTS, max_size=INPUTS)
    | RANGES.map(lambda span: [span] * INPUTS),
    least=st.integers(0, 14),
)
def test_the_rows_are_those_of_each_range(
    table: ShardTable, wide: int, ranges: list[KeyRange], least: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wide_rows, "WIDE_ROW_BYTES", wide)
        rows = merged(table, ranges)
        assert sorted(rows) == sorted(expected(table, ranges))
        assert [key for key, _ in rows] == sorted(key for key, _ in rows)
        few = merged(table, ranges, merge=merging.merged_rows, cache=Cache())
        assert sorted(few) == sorted(rows)
        assert [key for key, _ in few] == [key for key, _ in rows]
        some = merged(table, ranges, where=parse_predicate(f"n >= {least}", SCHEMA))
        assert sorted(some) == sorted(expected(table, ranges, least=least))


@pytest.mark.parametrize(
    ("span", "is_compared"),
    [(KeyRange(("b",), ("g",)), False), (KeyRange(("b", 4), ("b", 5)), True), (KeyRange(), False)],
    ids=["most of what is read", "few of those that are read", "all"],
)
def test_rows_are_compared_with_a_range_only_where_most_are_not_in_it(
    table: ShardTable, span: KeyRange, is_compared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[KeyRange] = []
    read = datafusion.sorted_file

    def sorted_file(*given: Any) -> Any:
        compared.append(given[4])
        return read(*given)

    monkeypatch.setattr(merging.engine, "sorted_file", sorted_file)
    assert sorted(merged(table, [span] * INPUTS)) == sorted(expected(table, [span] * INPUTS))
    assert any(each != KeyRange() for each in compared) == is_compared


def test_slices_of_two_ranges_are_each_cut_to_their_own(table: ShardTable) -> None:
    """A whole shard beside parts of others: nothing of it may be cut with them."""
    ranges = [KeyRange(("b",), ("g",))] * (INPUTS - 1) + [KeyRange()]
    assert sorted(merged(table, ranges)) == sorted(expected(table, ranges))
