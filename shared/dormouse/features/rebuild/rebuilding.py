"""A table's state from the footers of its shards alone, or the reasons why it cannot be told.

What the footers say, and why that is enough, is in docs/shard-format.md. `rebuild` reads
them and commits what is planned here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dormouse.errors import InvariantError
from dormouse.features.rebuild.runs import LAST_NUMBER, choose_runs, written_twice
from dormouse.fold.fold import apply
from dormouse.fold.invariants import broken_invariants
from dormouse.keys.ranges import KeyRange, prefix_successor
from dormouse.model.partitions import ROOT, PartitionTree
from dormouse.model.provenance import Provenance
from dormouse.model.shards import NewShard, Shard
from dormouse.model.source_segments import SourceSegment
from dormouse.model.state import TableState
from dormouse.model.transactions import (
    AddShards,
    AdoptSegments,
    AssignJob,
    Entry,
    InitialisePartitions,
    ReplaceShards,
    ResetTable,
    Transaction,
)
from dormouse.schema.key_types import KeyTypes, key_problem
from dormouse.shards.run_markers import RunMarker
from dormouse.stored.paths import make_shard_id, run_of_shard

SHARDS_PER_TRANSACTION = 1000
SOURCES_PER_TRANSACTION = 10_000


@dataclass(frozen=True, slots=True)
class FoundShard:
    """A shard as its object and footer show it."""

    shard: Shard
    origin: Provenance


@dataclass(frozen=True, slots=True)
class PlacedShard:
    """A shard, and the leaves where its rows count, or were `merged` into other shards."""

    shard: Shard
    live: tuple[str, ...]
    merged: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """What a table's state is to be, and what of its shards is `left_out`, with the reasons."""

    tree: PartitionTree
    shards: tuple[PlacedShard, ...]
    sources: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    key_types: KeyTypes
    generation: int = 0
    segments: tuple[SourceSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The shards contradict each other; each reason names those that do."""

    reasons: tuple[str, ...]


def plan_rebuild(
    found: Iterable[FoundShard],
    key_types: KeyTypes,
    endings: Sequence[RunMarker] = (),
    generation: int = 0,
) -> RebuildPlan | Refusal:
    """Decide which rows of which shards count, from all shards of a table at its generation.

    `endings` are the notes that end runs: they count as last shards without rows.
    """
    ended = [_without_rows(ending) for ending in endings]
    every = sorted((*found, *ended), key=lambda item: item.shard.id)
    by_id = {item.shard.id: item for item in every if item.origin.generation == generation}
    emptied = [
        item.shard.id for item in every if item.origin.generation != generation and item.shard.rows
    ]
    if unfit := list(_unfit(by_id.values(), key_types)):
        return Refusal(tuple(unfit))
    reasons = list(_outside(by_id.values()))
    if reasons:
        return Refusal(tuple(reasons))
    tree = _tree(by_id.values())
    numbers = {ending.run: frozenset(ending.numbers) for ending in endings}
    twice = written_twice({shard: item.origin for shard, item in by_id.items()}, numbers)
    by_id = {shard: item for shard, item in by_id.items() if shard not in twice}
    choice = choose_runs({shard: item.origin for shard, item in by_id.items()})
    reasons += choice.contradictions
    counted = [item for shard, item in by_id.items() if run_of_shard(shard)[0] in choice.counted]
    claims = _claims(counted)
    placed = tuple(_place(item, claims, by_id, tree) for item in counted)
    reasons += _overlaps(claims, {item.shard.id: item for item in placed}, by_id)
    if reasons:
        return Refusal(tuple(reasons))
    left_out = tuple(
        (shard, reason)
        for shard in by_id
        if (reason := choice.left_out.get(run_of_shard(shard)[0])) is not None
    )
    left_out += tuple((shard, "its rows are in other shards of its run") for shard in sorted(twice))
    left_out += tuple((shard, "it is of before the table was emptied") for shard in emptied)
    sources = {s for item in counted for s in item.origin.lineage.sources}
    shards = tuple(item for item in placed if item.shard.rows)
    return RebuildPlan(tree, shards, tuple(sorted(sources)), left_out, key_types, generation)


def _without_rows(ending: RunMarker) -> FoundShard:
    # by a number which none of the shards it counts can have
    return FoundShard(Shard(make_shard_id(ending.run, LAST_NUMBER), 0, 0, (), ()), ending.origin)


def transactions(plan: RebuildPlan) -> Iterator[Transaction]:
    """Return what makes the planned state of an empty log, in order.

    A shard is added with all its rows; where they were merged into others, an empty replacement
    takes them out again. So the collector knows of what nothing references.
    """
    partitions = tuple(plan.tree.by_id.values())
    yield InitialisePartitions(partitions, plan.key_types)
    if plan.generation:
        yield ResetTable(plan.generation, partitions)
    if plan.segments:
        yield AdoptSegments(plan.segments)
    for start in range(0, len(plan.sources), SOURCES_PER_TRANSACTION):
        chunk = plan.sources[start : start + SOURCES_PER_TRANSACTION]
        yield AddShards(f"rebuild-sources-{start}", chunk, ())
    for start in range(0, len(plan.shards), SHARDS_PER_TRANSACTION):
        placed = plan.shards[start : start + SHARDS_PER_TRANSACTION]
        new = (NewShard(item.shard, ((ROOT, item.shard.rows),)) for item in placed)
        yield AddShards(f"rebuild-shards-{start}", (), tuple(new))
    merged: dict[str, list[str]] = {}
    for item in plan.shards:
        for leaf in item.merged:
            merged.setdefault(leaf, []).append(item.shard.id)
    for leaf, shards in sorted(merged.items()):
        job = f"rebuild-merged-{leaf}"
        yield AssignJob(job, leaf, tuple(shards))
        yield ReplaceShards(job, leaf, tuple(shards), ())


def rebuilt(plan: RebuildPlan, now_ms: int) -> TableState:
    """Return the state that the plan makes.

    Raises:
        InvariantError: the plan makes no sound state.
    """
    state = TableState()
    broken: list[str] = []
    for transaction in transactions(plan):
        state, verdict = apply(state, Entry(transaction, now_ms, state.generation))
        broken += map(str, verdict.violations)
    broken += broken_invariants(state, whole=True)
    live = {(leaf, item.shard.id) for item in plan.shards for leaf in item.live}
    if live != {(r.partition, r.shard) for r in state.all_references()}:
        broken.append("other rows are referenced than were to be")
    if broken:
        raise InvariantError(f"the plan of a rebuild is unsound: {'; '.join(broken[:5])}")
    return state


def _unfit(found: Iterable[FoundShard], key_types: KeyTypes) -> Iterator[str]:
    """Yield where keys are none of the table's, which could not even be compared."""
    for item in found:
        span = item.origin.range
        ends = [span.min] if span.max is None else [span.min, span.max]
        keys = (item.shard.min_key, item.shard.max_key) if item.shard.rows else ()
        faults = [key_problem(end, key_types, fewest_parts=0) for end in ends]
        faults += [key_problem(key, key_types, fewest_parts=len(key_types)) for key in keys]
        for fault in filter(None, faults):
            yield f"a key in shard {item.shard.id} is none of the table: {fault}"


def _outside(found: Iterable[FoundShard]) -> Iterator[str]:
    for item in found:
        shard, span = item.shard, item.origin.range
        if span.is_empty():
            yield f"shard {shard.id} was written for a range without keys"
        elif shard.rows and not span.contains_span(shard.min_key, shard.max_key):
            yield f"shard {shard.id} has keys outside the range it was written for"


def _tree(found: Iterable[FoundShard]) -> PartitionTree:
    """Return a tree whose leaves meet wherever a shard says that they did."""
    ranges = [item.origin.range for item in found]
    ends = {span.min for span in ranges} | {span.max for span in ranges}
    return PartitionTree.from_split_points(sorted(end for end in ends if end))


def _claims(counted: Iterable[FoundShard]) -> dict[str, list[str]]:
    """Return, for each shard that was merged, the shards that were made from it."""
    claims: dict[str, list[str]] = {}
    for item in counted:
        for shard in (*item.origin.lineage.inputs, *item.origin.lineage.superseded):
            claims.setdefault(shard, []).append(item.shard.id)
    return claims


def _place(
    item: FoundShard,
    claims: Mapping[str, Sequence[str]],
    by_id: Mapping[str, FoundShard],
    tree: PartitionTree,
) -> PlacedShard:
    shard = item.shard
    if not shard.rows:
        return PlacedShard(shard, (), ())
    span = KeyRange(shard.min_key, prefix_successor(shard.max_key))
    taken = [by_id[claimant].origin.range for claimant in claims.get(shard.id, ())]
    live: list[str] = []
    merged: list[str] = []
    for leaf in tree.leaves_overlapping(span):
        (merged if any(t.covers(leaf.range) for t in taken) else live).append(leaf.id)
    return PlacedShard(shard, tuple(live), tuple(merged))


def _overlaps(
    claims: Mapping[str, Sequence[str]],
    placed: Mapping[str, PlacedShard],
    by_id: Mapping[str, FoundShard],
) -> Iterator[str]:
    """Return where rows would count twice: two shards made from one by two runs, in one leaf.

    The shards of a run have no rows in common, nor has what was merged from different ones.
    """
    for shard, claimants in sorted(claims.items()):
        runs = {run_of_shard(claimant)[0] for claimant in claimants}
        holders: dict[str, list[tuple[str, set[str]]]] = {}
        for claimant in claimants:
            within = runs & _runs_in(by_id[claimant])
            for leaf in placed[claimant].live:
                others = holders.setdefault(leaf, [])
                other = next((other for other, runs in others if not runs & within), None)
                if other is not None:
                    yield (
                        f"shards {other} and {claimant} both hold rows of shard {shard} in "
                        f"partition {leaf}"
                    )
                    break
                if all(run_of_shard(other)[0] != run_of_shard(claimant)[0] for other, _ in others):
                    others.append((claimant, within))


def _runs_in(item: FoundShard) -> set[str]:
    """Return the runs of which a shard has rows: its own, and those of what it was merged from."""
    lineage = item.origin.lineage
    return {
        run_of_shard(shard)[0] for shard in (item.shard.id, *lineage.inputs, *lineage.superseded)
    }
