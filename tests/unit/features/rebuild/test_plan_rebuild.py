"""plan_rebuild: each row counts once; contradictions are refused with the names of the shards."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dormouse.features.rebuild import planned_state
from dormouse.features.rebuild_plan import FoundShard, RebuildPlan, Refusal, plan_rebuild
from dormouse.keys import KeyRange
from dormouse.shards.run_markers import RunMarker
from dormouse.state.partitions import ROOT, Shard
from dormouse.state.state import DAY_MS, TableState
from dormouse.state.versions import Lineage, Provenance
from dormouse.stored.paths import make_shard_id, part_shard_number
from tests.support.trees import LEFT, RIGHT, TEXT

ALL, BELOW_M, FROM_M = KeyRange(), KeyRange((), ("m",)), KeyRange(("m",))
R, RS = (("r-0", ALL),), (("r-0", ALL), ("s-0", ALL))


def shard(
    name: str,
    low: str = "a",
    high: str = "z",
    *,
    span: KeyRange = ALL,
    number: int = 0,
    last: bool = True,
    day: int = 0,
    lineage: Lineage | None = None,
) -> FoundShard:
    provenance = Provenance(
        span, "job", day * DAY_MS, number, last, lineage or Lineage(sources=(f"source-of-{name}",))
    )
    return FoundShard(Shard.of(name, 10, 100, (low,), (high,)), provenance)


def merged(name: str, *inputs: str, **more: object) -> FoundShard:
    return shard(name, lineage=Lineage(inputs=inputs), **more)  # type: ignore[arg-type]  # passed on


def planned(found: list[FoundShard], markers: Sequence[RunMarker] = ()) -> RebuildPlan | Refusal:
    return plan_rebuild(found, TEXT, markers)


def live(plan: RebuildPlan | Refusal) -> dict[str, tuple[str, ...]]:
    assert isinstance(plan, RebuildPlan), plan
    planned_state(plan, 0)
    return {item.shard.id: item.live for item in plan.shards if item.live}


def test_an_output_takes_the_place_of_its_inputs_in_its_own_partition_only() -> None:
    plan = planned([shard("r-0"), merged("j-0", "r-0", high="c", span=BELOW_M)])
    assert live(plan) == {"j-0": (LEFT,), "r-0": (RIGHT,)}


def test_the_shards_of_one_compaction_take_the_place_of_its_inputs_together() -> None:
    whole = [merged("j-0", "r-0", high="c", last=False), merged("j-1", "r-0", low="d", number=1)]
    assert live(planned([shard("r-0"), *whole])) == {"j-0": (ROOT,), "j-1": (ROOT,)}


def test_an_incomplete_compaction_counts_only_if_it_was_committed() -> None:
    half = merged("j-0", "r-0", "s-0", high="c", last=False)
    inputs = [shard("r-0"), shard("s-0")]
    plan = planned([*inputs, half])
    assert live(plan) == {"r-0": (ROOT,), "s-0": (ROOT,)}
    assert isinstance(plan, RebuildPlan)
    assert [shard for shard, _ in plan.left_out] == ["j-0"]
    # one input is collected already: the other shard of the run must have been merged since
    assert live(planned([inputs[0], half])) == {"j-0": (ROOT,)}


def test_shards_of_a_run_that_were_merged_separately_all_count() -> None:
    inputs = [shard("r-0"), shard("s-0")]
    run = [
        merged("j-0", "r-0", "s-0", high="c", last=False),
        merged("j-1", "r-0", "s-0", low="d", number=1),
    ]
    apart = Lineage(inputs=("j-1", "x-0"), superseded=RS)
    later = [shard("x-0"), shard("k-0", lineage=apart)]
    assert live(planned([*inputs, *run, *later])) == {"j-0": (ROOT,), "k-0": (ROOT,)}
    assert live(planned([*inputs, run[0], *later])) == {"j-0": (ROOT,), "k-0": (ROOT,)}
    other = shard("l-0", lineage=Lineage(inputs=("j-0",), superseded=RS))
    assert live(planned([*inputs, *run, *later, other])) == {"k-0": (ROOT,), "l-0": (ROOT,)}


def test_no_shards_make_an_empty_table() -> None:
    assert live(planned([])) == {}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ([shard("r-0", span=BELOW_M)], "r-0 has keys outside the range it was written for"),
        ([shard("r-0", span=KeyRange(("m",), ("c",)))], "r-0 was written for a range without keys"),
        (
            [shard("r-0", span=KeyRange((), (7,)))],
            "r-0 does not fit the table: its part 1 is not of type string",
        ),
        (
            [shard("r-0", span=KeyRange((), ("m", "n")))],
            "r-0 does not fit the table: it has 2 parts",
        ),
        (
            [shard("r-0"), merged("j-0", "r-0"), merged("k-0", "r-0")],
            "shards j-0 and k-0 both hold rows of shard r-0 in partition root",
        ),
        (
            [
                shard("r-0", lineage=Lineage(sources=("s",))),
                shard("q-0", lineage=Lineage(sources=("s",))),
                merged("j-0", "r-0"),
                merged("k-0", "q-0"),
            ],
            "the ingest runs q and r both have source s",
        ),
        (
            [
                shard("r-0", lineage=Lineage(sources=("s", "t"))),
                shard("q-0", lineage=Lineage(sources=("t", "u"))),
            ],
            "the ingest runs q, r share some sources",
        ),
    ],
)
def test_contradictions_are_refused(found: list[FoundShard], reason: str) -> None:
    plan = planned(found)
    assert isinstance(plan, Refusal)
    assert re.search(reason, "; ".join(plan.reasons)), plan.reasons


def test_runs_that_share_sources_are_chosen_so_that_each_source_counts_once() -> None:
    plan = planned(
        [
            shard("a-0", lineage=Lineage(sources=("s", "t"))),
            shard("b-0", lineage=Lineage(sources=("s",))),
            shard("c-0", lineage=Lineage(sources=("t", "u"))),
        ]
    )
    assert set(live(plan)) == {"b-0", "c-0"}
    assert isinstance(plan, RebuildPlan)
    assert plan.sources == ("s", "t", "u")
    assert plan.left_out == (("a-0", "other runs with the same sources count"),)


def test_a_run_whose_sources_an_output_carries_is_left_out() -> None:
    carrier = shard("j-0", lineage=Lineage(sources=("s",), inputs=("gone-0",)))
    plan = planned([carrier, shard("r-0", lineage=Lineage(sources=("s",)))])
    assert set(live(plan)) == {"j-0"}


def test_of_two_runs_with_a_source_one_counts_however_far_apart_they_were_written() -> None:
    lineage = Lineage(sources=("s",))
    plan = planned([shard("r-0", lineage=lineage), shard("q-0", day=16, lineage=lineage)])
    assert len(live(plan)) == 1


def test_a_run_without_its_last_shard_counts_if_a_shard_of_it_was_merged() -> None:
    def first(run: str) -> FoundShard:
        return shard(f"{run}-0", "a", "c", span=BELOW_M, last=False)

    witness = shard(
        "j-0", "n", span=FROM_M, lineage=Lineage(inputs=("gone-0",), completed=("r-1",))
    )
    plan = planned([first("r"), first("q"), witness])
    assert set(live(plan)) == {"j-0", "r-0"}
    assert isinstance(plan, RebuildPlan)
    assert plan.left_out == (("q-0", "its run is incomplete, so it was never committed"),)


def test_a_complete_run_that_lacks_a_shard_was_committed_and_the_shard_merged() -> None:
    lineage = Lineage(sources=("s",))
    rest = shard("r-1", "n", span=FROM_M, number=1, lineage=lineage)
    repeat = shard("q-0", lineage=lineage)
    assert set(live(planned([rest, repeat]))) == {"r-1"}


def test_an_input_of_a_deleted_input_does_not_count() -> None:
    output = shard("p-0", lineage=Lineage(inputs=("gone-0",), superseded=R))
    plan = planned([output, shard("r-0")])
    assert set(live(plan)) == {"p-0"}
    assert isinstance(plan, RebuildPlan)
    assert [item.merged for item in plan.shards] == [(), ("root",)]


def test_what_a_job_joined_of_leaves_leaves_the_rows_between_them() -> None:
    """r-0 was merged in its first and last leaf, and a purge rewrote both together."""
    first, last = KeyRange((), ("d",)), KeyRange(("t",))
    lineage = Lineage(inputs=("gone-0", "gone-1"), superseded=(("r-0", first), ("r-0", last)))
    found = [shard("r-0"), shard("p-0", lineage=lineage)]
    plan, middle = planned(found), KeyRange(("d",), ("t",))
    assert isinstance(plan, RebuildPlan)
    held = {s.shard.id: [plan.tree.get(leaf).range for leaf in s.live] for s in plan.shards}
    assert held["r-0"] == [middle]
    merged_since = merged("k-0", "r-0", low="d", high="s", span=middle)
    assert set(live(planned([*found, merged_since]))) == {"k-0", "p-0"}


def test_rows_that_a_run_before_a_restore_divided_are_different_ones() -> None:
    """i merged r-0 into two shards; of these, d and h were made, and restored. Then a purge joined
    h-0 and what lies beyond d-0.
    """
    low, middle, high = KeyRange((), ("d",)), KeyRange(("d",), ("t",)), KeyRange(("t",))
    both = KeyRange((), ("t",))
    before = [
        shard("r-0", high="s", span=both),
        merged("i-0", "r-0", high="c", span=both, last=False),
        merged("i-1", "r-0", low="d", high="s", span=both, number=1),
    ]
    older = (("r-0", both),)
    h = shard("h-0", high="c", span=low, lineage=Lineage(inputs=("i-0",), superseded=older))
    d = shard("d-0", "d", "s", span=middle, lineage=Lineage(inputs=("i-1",), superseded=older))
    x = shard("x-0", "t", span=high)
    version = restored_of(h, d, x)
    lineage = Lineage(inputs=("h-0", "x-0"), superseded=(("i-0", low), *older))
    joined = replace(shard("p-0", lineage=lineage).provenance, generation=1)
    p = replace(shard("p-0", lineage=lineage), provenance=joined)
    plan = plan_rebuild([*before, h, d, x, p], TEXT, (), 1, version)
    assert set(live(plan)) == {"d-0", "p-0"}


def part(run: str, task: int, low: str, high: str, *inputs: str) -> FoundShard:
    """Return a shard of a run in parts, none of which is marked as the last."""
    number = part_shard_number(task, 0)
    name = make_shard_id(run, number)
    return shard(name, low, high, number=number, last=False, lineage=Lineage(inputs=inputs))


def marker(
    run: str, parts: tuple[int, ...], *inputs: str, sources: tuple[str, ...] = ()
) -> RunMarker:
    numbers = tuple(part_shard_number(task, 0) for task in parts)
    provenance = Provenance(job="job", number=len(parts), lineage=Lineage(sources, inputs))
    return RunMarker(run, provenance, numbers)


def test_a_run_written_in_parts_counts_only_with_its_run_marker() -> None:
    run = [part("r", 0, "a", "c"), part("r", 2, "d", "z")]
    assert live(planned(run)) == {}
    plan = planned(run, [marker("r", (0, 2), sources=("one",))])
    assert live(plan) == {"r-0": (ROOT,), "r-2000000": (ROOT,)}
    assert isinstance(plan, RebuildPlan)
    assert plan.sources == ("one",)


def test_of_two_runs_in_parts_with_one_source_the_one_that_lacks_shards_was_committed() -> None:
    markers = [marker(run, (0, 1), sources=("one",)) for run in "rs"]
    left = [part("r", 1, "d", "z")]  # the other was merged and collected
    again = [part("s", 0, "a", "c"), part("s", 1, "d", "z")]
    plan = planned([*left, *again], markers)
    assert live(plan) == {"r-1000000": (ROOT,)}
    assert isinstance(plan, RebuildPlan)
    assert [shard for shard, _ in plan.left_out] == ["s-0", "s-1000000"]


def test_a_compaction_in_parts_takes_the_place_of_its_inputs_once_it_has_a_run_marker() -> None:
    inputs = [shard("r-0"), shard("s-0")]
    run = [part("j", 1, "a", "c", "r-0", "s-0"), part("j", 2, "d", "z", "r-0", "s-0")]
    assert live(planned([*inputs, *run])) == {"r-0": (ROOT,), "s-0": (ROOT,)}
    plan = planned([*inputs, *run], [marker("j", (1, 2), "r-0", "s-0")])
    assert live(plan) == {"j-1000000": (ROOT,), "j-2000000": (ROOT,)}


@pytest.mark.parametrize("has_marker", [True, False])
def test_a_compaction_written_whole_and_then_in_parts_counts_once(has_marker: bool) -> None:
    inputs = [shard("r-0"), shard("s-0")]
    whole = shard("j-0", lineage=Lineage(inputs=("r-0", "s-0")))
    parts = [part("j", 1, "a", "c", "r-0", "s-0"), part("j", 2, "d", "z", "r-0", "s-0")]
    markers = [marker("j", (1, 2), "r-0", "s-0")] if has_marker else []
    plan = planned([*inputs, whole, *parts], markers)
    counted = {"j-1000000": (ROOT,), "j-2000000": (ROOT,)} if has_marker else {"j-0": (ROOT,)}
    assert live(plan) == counted


def test_parts_that_the_run_marker_does_not_list_do_not_count() -> None:
    """A step was cut into two, and then a process that was believed dead wrote all of it."""
    inputs = [shard("r-0")]
    late = part("j", 9, "a", "z", "r-0")
    parts = [part("j", 1, "a", "c", "r-0"), part("j", 2, "d", "z", "r-0")]
    plan = planned([*inputs, *parts, late], [marker("j", (1, 2), "r-0")])
    assert live(plan) == {"j-1000000": (ROOT,), "j-2000000": (ROOT,)}
    assert isinstance(plan, RebuildPlan)
    assert dict(plan.left_out) == {"j-9000000": "other shards of its run have its rows"}


def test_parts_do_not_count_if_the_whole_was_merged() -> None:
    later = shard("k-0", lineage=Lineage(inputs=("j-0",), superseded=RS))
    plan = planned([later, part("j", 1, "a", "c", "r-0", "s-0")])
    assert live(plan) == {"k-0": (ROOT,)}


def test_parts_without_a_run_marker_do_not_count_although_their_inputs_are_deleted() -> None:
    plan = planned([shard("t-0"), part("j", 1, "a", "c", "r-0", "s-0")])
    assert live(plan) == {"t-0": (ROOT,)}


def test_an_incomplete_compaction_does_not_count_if_another_merged_its_deleted_inputs() -> None:
    first = shard("j-0", "a", "c", last=False, lineage=Lineage(inputs=("r-0", "s-0")))
    again = shard("k-0", lineage=Lineage(inputs=("r-0", "s-0")))
    assert live(planned([first, again])) == {"k-0": (ROOT,)}
    assert live(planned([first])) == {"j-0": (ROOT,)}, "no other shard has its rows"


def restored_of(*found: FoundShard) -> TableState:
    """The state of these shards, to which the table was restored."""
    plan = planned(list(found))
    assert isinstance(plan, RebuildPlan), plan
    return planned_state(plan, 0)


def test_of_a_restored_shard_only_what_the_version_had_is_live() -> None:
    """Though the shard that was merged from it is not there, or was written later."""
    r, j = shard("r-0"), merged("j-0", "r-0", high="c", span=BELOW_M)
    version = restored_of(r, j)
    assert live(plan_rebuild([r], TEXT, (), 1, version)) == {"r-0": (RIGHT,)}
    undone = merged("k-0", "r-0", low="n", span=FROM_M)
    assert live(plan_rebuild([r, j, undone], TEXT, (), 1, version)) == {
        "r-0": (RIGHT,),
        "j-0": (LEFT,),
    }


def test_a_run_of_a_restored_version_counts_though_it_looks_incomplete() -> None:
    """Its last shard was merged without rows, which only an earlier generation shows."""
    first = shard("r-0", high="c", last=False)
    version = restored_of(first, shard("r-1", low="d", number=1))
    plan = plan_rebuild([first], TEXT, (), 1, version)
    assert live(plan) == {"r-0": (ROOT,)}
    assert isinstance(plan, RebuildPlan)
    assert plan.sources == ("source-of-r-0", "source-of-r-1")
