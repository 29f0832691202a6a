"""References of a partition: what is added, and what that reads."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from dormouse.log.columns import HeldMap
from dormouse.state.partitions import MOST_IN_A_DICT, PartitionReferences, Reference

NUMBERS = st.integers(0, 2 * MOST_IN_A_DICT)


def references(*numbers: int) -> dict[str, Reference]:
    """Return a reference to each shard of a number; those of even ones are free."""
    jobs = {n: "job" if n % 2 else None for n in numbers}
    return {f"s{n}": Reference("root", f"s{n}", n, True, jobs[n]) for n in numbers}


def held(size: int) -> PartitionReferences:
    """Return as many references as a snapshot holds them: read when one is asked for."""
    entries = references(*range(size))
    few = HeldMap(size, lambda: entries)
    free = sum(each.job is None for each in entries.values())
    return PartitionReferences(few, sum(range(size)), free)


@given(NUMBERS, st.lists(st.integers(1, 20), max_size=5), st.sets(NUMBERS))
def test_references_that_are_added_are_inserted(size: int, more: list[int], gone: set[int]) -> None:
    added = inserted = held(size)
    for count in more:
        new = references(*range(len(added), len(added) + count))
        added, inserted = added.add(new), inserted.insert(*new.values())
        assert added == inserted
        assert inserted == added
    left = added.discard(*(f"s{n}" for n in gone))
    assert left == inserted.discard(*(f"s{n}" for n in gone))
    assert sorted(left.by_shard) == sorted(each.shard for each in left)


def test_what_a_snapshot_holds_of_a_partition_is_not_read_to_add_to_it() -> None:
    class Unread:
        def __len__(self) -> int:
            return 10

        def __contains__(self, key: object) -> bool:
            raise AssertionError("it was read")

        def __iter__(self) -> Iterator[str]:
            raise AssertionError("it was read")

        def get(self, key: str, /) -> Reference | None:
            raise AssertionError("it was read")

        def items(self) -> Iterator[tuple[str, Reference]]:
            raise AssertionError("it was read")

    found = PartitionReferences(Unread(), 10, 10).add(references(12)).add(references(14))
    assert (len(found), found.rows, found.free) == (12, 36, 12)
