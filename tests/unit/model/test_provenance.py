"""What an output says of the shards before it: just what is still needed."""

from __future__ import annotations

from dormouse.model.overlay_map import LayeredMap
from dormouse.model.provenance import Lineage, Origin, lineage_of
from dormouse.model.shards import Shard
from dormouse.model.state import TableState


def state_of(shards: list[str], sources: list[str]) -> TableState:
    known = {shard: Shard(shard, 1, 1, ("a",), ("a",)) for shard in shards}
    return TableState(shards=LayeredMap.of(known), sources=LayeredMap.of(dict.fromkeys(sources, 0)))


def test_shards_and_sources_that_are_gone_are_not_spoken_of() -> None:
    merged = Origin(lineage=Lineage(("old", "new"), ("a-0", "b-0"), ("c-0", "d-0"), ("e-1", "f-1")))
    state = state_of(["j-0", "b-0", "d-0", "f-0"], ["new"])
    assert lineage_of({"j-0": merged}, state) == Lineage(
        ("new",), ("j-0",), ("b-0", "d-0"), ("f-1",)
    )


def test_only_the_last_shard_of_a_run_passes_its_sources_on() -> None:
    lineage = Lineage(sources=("s",))
    first = Origin(number=0, last=False, lineage=lineage)
    last = Origin(number=1, last=True, lineage=lineage)
    state = state_of(["r-0", "r-1"], ["s"])
    assert lineage_of({"r-0": first}, state) == Lineage(inputs=("r-0",))
    assert lineage_of({"r-1": last}, state) == Lineage(("s",), ("r-1",), (), ("r-1",))


def test_a_run_of_one_shard_needs_no_witness() -> None:
    only = Origin(lineage=Lineage(sources=("s",)))
    assert lineage_of({"r-0": only}, state_of(["r-0"], ["s"])) == Lineage(("s",), ("r-0",))
