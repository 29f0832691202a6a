"""The lineage of a compacted shard: exactly what a rebuild still needs."""

from __future__ import annotations

from dormouse.keys import KeyRange
from dormouse.state.partitions import OverlayMap, Shard
from dormouse.state.state import TableState
from dormouse.state.versions import Lineage, Provenance, merge_lineages


def state_of(shards: list[str], sources: list[str]) -> TableState:
    known = {shard: Shard.of(shard, 1, 1, ("a",), ("a",)) for shard in shards}
    return TableState(shards=OverlayMap.of(known), sources=OverlayMap.of(dict.fromkeys(sources, 0)))


def test_a_lineage_leaves_out_deleted_shards_and_sealed_sources() -> None:
    low, high = KeyRange((), ("m",)), KeyRange(("m",))
    superseded = (("c-0", low), ("d-0", low))
    merged = Provenance(
        low, lineage=Lineage(("old", "new"), ("a-0", "b-0"), superseded, ("e-1", "f-1"))
    )
    other = Provenance(high, lineage=Lineage(inputs=("b-0", "h-0")))
    state = state_of(["j-0", "k-0", "b-0", "d-0", "f-0", "h-0"], ["new"])
    assert merge_lineages({"j-0": merged, "k-0": other}, state) == Lineage(
        ("new",), ("j-0", "k-0"), (("b-0", KeyRange()), ("d-0", low), ("h-0", high)), ("f-1",)
    )


def test_only_the_last_shard_of_a_run_passes_its_sources_on() -> None:
    lineage = Lineage(sources=("s",))
    first = Provenance(number=0, last=False, lineage=lineage)
    last = Provenance(number=1, last=True, lineage=lineage)
    state = state_of(["r-0", "r-1"], ["s"])
    assert merge_lineages({"r-0": first}, state) == Lineage(inputs=("r-0",))
    assert merge_lineages({"r-1": last}, state) == Lineage(("s",), ("r-1",), (), ("r-1",))


def test_a_run_of_one_shard_needs_no_witness() -> None:
    only = Provenance(lineage=Lineage(sources=("s",)))
    assert merge_lineages({"r-0": only}, state_of(["r-0"], ["s"])) == Lineage(("s",), ("r-0",))
