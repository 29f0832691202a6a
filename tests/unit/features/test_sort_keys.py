"""Sort keys continue row keys wherever rows are asked for: queries, counts, exports and purges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dormouse.errors import InvalidRequestError
from dormouse.features.administration import administer
from dormouse.features.purge import build_purge_request
from dormouse.features.purge_rows import prove_purge
from dormouse.keys import Key, KeyRange, encode_key
from dormouse.messages.requests import PurgeRows
from dormouse.messages.stages import SelectionMessage
from dormouse.tables.table import Table
from tests.support.depth import examples
from tests.support.made_once import made_once
from tests.support.purges import purge_request
from tests.support.queries import count_rows
from tests.support.world import World
from tests.unit.features.exports import rows_of
from tests.unit.features.test_every_type import new_world

Row = dict[str, object]
LETTERS = st.sampled_from("abc")
NUMBERS = st.integers(0, 3)
ROWS = st.lists(st.tuples(LETTERS, NUMBERS), min_size=1, max_size=12)
KEYS: st.SearchStrategy[Key] = st.tuples(LETTERS) | st.tuples(LETTERS, NUMBERS)


def as_rows(keys: Sequence[tuple[str, int]]) -> list[Row]:
    return [{"letter": a, "at": s, "note": f"{i}"} for i, (a, s) in enumerate(keys)]


def keys_of(rows: Sequence[Row]) -> list[Key]:
    return [(str(row["letter"]), int(str(row["at"]))) for row in rows]


@made_once
def filled(world: World, files: Sequence[Sequence[tuple[str, int]]], **options: object) -> Table:
    table = world.create(**{"splits": [("b",)], "gc_delay_seconds": 60, **options})
    world.set_online(table, False)
    for number, keys in enumerate(files):
        world.drop(f"letters/{number}.parquet", as_rows(keys))
    world.settle()
    return table


def counted(world: World, table: Table, ranges: Sequence[KeyRange]) -> int:
    state = world.state(table)
    scratch = world.folder / "scratch"
    return count_rows(
        world.storage, table, state, ranges, now_ms=0, scratch=scratch, memory_bytes=2**26
    )


@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(ROWS, min_size=1, max_size=3),
    st.lists(KEYS, max_size=2),
    st.lists(st.tuples(st.none() | KEYS, st.none() | KEYS), max_size=2),
    st.lists(KEYS, min_size=1, max_size=3),
)
def test_each_way_to_ask_for_keys_finds_just_the_rows_that_plain_python_does(
    files: list[list[tuple[str, int]]],
    keys: list[Key],
    ends: list[tuple[Key | None, Key | None]],
    purged: list[Key],
) -> None:
    ends = [(a, b) for a, b in ends if b is None or (a or ()) <= b]
    ranges = [KeyRange.exactly(key) for key in keys]
    ranges += [KeyRange(low or (), high) for low, high in ends]
    everything = sorted(key for file in files for key in file)
    asked = [
        key for key in everything if not ranges or any(r.contains(encode_key(key)) for r in ranges)
    ]
    left = [key for key in everything if not any(key[: len(p)] == p for p in purged)]
    with new_world() as world:
        table = filled(world, files)
        assert keys_of(world.rows(table, *ranges)) == asked
        assert counted(world, table, ranges) == len(asked)
        world.export(table, to="out", keys=tuple(keys), ranges=tuple(ends))
        world.settle()
        assert keys_of(rows_of(world)) == asked
        purge = PurgeRows("purge-1", table.name, SelectionMessage(keys=tuple(purged)))
        request = build_purge_request(table, purge)
        proof = prove_purge(world.services, table, request)
        assert proof.rows == len(everything) - len(left)
        world.queue += administer(world.services, purge)
        world.settle()
        assert keys_of(world.rows(table)) == left


@pytest.mark.parametrize("how", ["first", "last"])
def test_of_rows_of_which_one_is_kept_the_others_are_not_exported(tmp_path: Path, how: str) -> None:
    world = World(tmp_path)
    table = filled(world, [[("a", 1), ("b", 1)], [("a", 2), ("b", 2)]], aggregations=f"{how}(note)")
    kept = 1 if how == "first" else 2
    for at in (1, 2):
        world.export(table, to=f"out{at}", keys=(("a", at), ("b", at)))
        world.settle()
        found = keys_of(rows_of(world, f"out{at}"))
        assert found == ([("a", at), ("b", at)] if at == kept else [])


def test_a_purge_of_what_is_one_of_several_rows_of_a_group_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    table = filled(world, [[("a", 1)], [("a", 2)]], aggregations="last(note)")
    with pytest.raises(InvalidRequestError, match="cannot select rows by at"):
        some = SelectionMessage(keys=(("a", 2),))
        administer(world.services, PurgeRows("purge-1", table.name, some))
    summing = purge_request(table.schema, keys=(("a",),))
    proof = prove_purge(world.services, table, summing)
    assert proof.rows == 2


def test_a_key_that_goes_on_beyond_the_sort_keys_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    filled(world, [[("a", 1)]])
    request = PurgeRows("purge-1", "letters", SelectionMessage(keys=(("a", 1, 2),)))
    with pytest.raises(InvalidRequestError, match="key 1 has 3 parts, not 1 to 2") as caught:
        administer(world.services, request)
    assert "one row key, letter, then the sort key at" in caught.value.hint
