"""Plan a table's state from the footers of its shards alone, or say why that is impossible.

docs/shard-format.md says what the footers contain, and why that is enough. `rebuild` reads them,
and commits what is planned here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dormouse.features.rebuild.choose_runs import RunChoice, choose_runs
from dormouse.features.rebuild.duplicate_shards import MARKER_NUMBER, duplicate_shards, is_marker
from dormouse.keys.ranges import KeyRange, prefix_successor
from dormouse.model.partitions import PartitionTree
from dormouse.model.shards import Shard
from dormouse.model.source_segments import SourceSegment
from dormouse.model.state import TableState
from dormouse.model.versions.provenance import Provenance
from dormouse.schema.key_types import KeyTypes, key_problem
from dormouse.shards.writing.run_markers import RunMarker
from dormouse.stored.paths import make_shard_id, run_of_shard

_DUPLICATE = "other shards of its run have its rows"
_EARLIER = "it was written before the table was reset"


@dataclass(frozen=True, slots=True)
class FoundShard:
    """A shard as its object and footer show it, or a run marker as a shard without rows."""

    shard: Shard
    provenance: Provenance

    @property
    def merged_from(self) -> tuple[str, ...]:
        """The shards whose rows it has: its inputs, and as far as known, their inputs."""
        return (*self.provenance.lineage.inputs, *self.provenance.lineage.superseded)


@dataclass(frozen=True, slots=True)
class PlacedShard:
    """A shard, the leaves where its rows are `live`, and those where they were `merged`.

    `counted` are its rows in each leaf, if they were counted in all.
    """

    shard: Shard
    live: tuple[str, ...]
    merged: tuple[str, ...]
    counted: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RebuildPlan:
    """The state to build, and each shard or object that is `left_out`, with the reason."""

    tree: PartitionTree
    shards: tuple[PlacedShard, ...]
    sources: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    key_types: KeyTypes
    generation: int = 0
    segments: tuple[SourceSegment, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reasons why no state can be planned; each names the shards concerned."""

    reasons: tuple[str, ...]


def plan_rebuild(
    found: Iterable[FoundShard],
    key_types: KeyTypes,
    markers: Sequence[RunMarker] = (),
    generation: int = 0,
    restored: TableState | None = None,
) -> RebuildPlan | Refusal:
    """Decide which rows of which shards belong to a table, from all its shards and run markers.

    Only shards of the given `generation` count, and those of the version that was `restored` at its
    start, where that has rows of them. Others were written before the table was reset.

    Example: shard r-0 has keys a to z and was ingested by run r for the range of all keys. Shard
    j-0 was merged from r-0 for the range below m, with keys a to c.

    - Partitions met at the ends of both ranges, so the tree has a leaf below m and one from m.
    - Runs r and j are complete, so both count.
    - j-0 was merged from r-0 for the whole leaf below m. So r-0 is merged there, and live from m;
      j-0 is live below m.
    - If another run had merged r-0 for the range below m as well, into k-0, the leaf would have
      the rows of r-0 twice. This cannot come from committed runs, so it is refused.

    r-0 keeps the reference from m, and if it had none left, it would be garbage in the new state.
    """
    every = sorted((*found, *map(_marker_as_shard, markers)), key=lambda item: item.shard.id)
    held = _held_in(restored)
    by_id = {
        item.shard.id: item
        for item in every
        if item.provenance.generation == generation or item.shard.id in held
    }
    if problems := [*_key_problems(by_id.values(), key_types)]:
        return Refusal(tuple(problems))  # such keys cannot even be compared
    if problems := [*_range_problems(by_id.values())]:
        return Refusal(tuple(problems))
    tree = _tree(by_id.values(), restored)
    provenances = {shard: item.provenance for shard, item in by_id.items()}
    duplicates = duplicate_shards(provenances, {m.run: frozenset(m.numbers) for m in markers})
    provenances = {shard: p for shard, p in provenances.items() if shard not in duplicates}
    choice = choose_runs(provenances, frozenset(run_of_shard(shard)[0] for shard in held))
    counted = [by_id[s] for s in provenances if run_of_shard(s)[0] in choice.counted]
    merged_into = _merged_into(counted)
    placed = tuple(_place(item, merged_into, by_id, tree, held) for item in counted)
    contradictions = [
        *choice.contradictions,
        *_overlaps(merged_into, {item.shard.id: item for item in placed}, by_id),
    ]
    if contradictions:
        return Refusal(tuple(contradictions))
    left_out = [
        *_left_out(choice, provenances),
        *((shard, _DUPLICATE) for shard in sorted(duplicates)),
        *((each.shard.id, _EARLIER) for each in every if each.shard.id not in by_id),
    ]
    sources = {s for item in counted for s in item.provenance.lineage.sources}
    sources.update(restored.sources if restored else ())
    shards = tuple(item for item in placed if item.shard.rows)
    shards_left_out = tuple(each for each in left_out if not is_marker(each[0]))
    return RebuildPlan(tree, shards, tuple(sorted(sources)), shards_left_out, key_types, generation)


def _held_in(restored: TableState | None) -> dict[str, list[KeyRange]]:
    """Return the ranges in which a restored version has rows of each of its shards."""
    held: dict[str, list[KeyRange]] = {}
    if restored is not None:
        for reference in restored.all_references():
            span = restored.partitions.get(reference.partition).range
            held.setdefault(reference.shard, []).append(span)
    return held


def _marker_as_shard(marker: RunMarker) -> FoundShard:
    """Return a run marker as a last shard without rows, whose number no shard of its run has."""
    return FoundShard(
        Shard(make_shard_id(marker.run, MARKER_NUMBER), 0, 0, b"", b""), marker.provenance
    )


def _left_out(choice: RunChoice, shards: Iterable[str]) -> Iterator[tuple[str, str]]:
    for shard in shards:
        reason = choice.left_out.get(run_of_shard(shard)[0])
        if reason is not None:
            yield shard, reason


def _key_problems(found: Iterable[FoundShard], key_types: KeyTypes) -> Iterator[str]:
    """Yield the keys that do not fit the row keys of the table."""
    for item in found:
        span = item.provenance.range
        ends = [span.min] if span.max is None else [span.min, span.max]
        keys = (item.shard.min_key, item.shard.max_key) if item.shard.rows else ()
        problems = [key_problem(end, key_types, fewest_parts=0) for end in ends]
        problems += [key_problem(key, key_types, fewest_parts=len(key_types)) for key in keys]
        for problem in filter(None, problems):
            yield f"a key in shard {item.shard.id} does not fit the table: {problem}"


def _range_problems(found: Iterable[FoundShard]) -> Iterator[str]:
    for item in found:
        shard, span = item.shard, item.provenance.range
        if span.is_empty():
            yield f"shard {shard.id} was written for a range without keys"
        elif shard.rows and not span.contains_span(shard.low, shard.high):
            yield f"shard {shard.id} has keys outside the range it was written for"


def _tree(found: Iterable[FoundShard], restored: TableState | None) -> PartitionTree:
    """Return a tree with a leaf boundary at both ends of the range of every shard.

    Leaves met there when the shard was written, and leaves are never joined. The leaves of a
    restored version are those with which the generation started.
    """
    ranges = [item.provenance.range for item in found]
    ranges += [leaf.range for leaf in restored.partitions.leaves()] if restored else []
    ends = {span.low for span in ranges} | {span.high for span in ranges}
    return PartitionTree.from_splits(sorted(end for end in ends if end))


def _merged_into(counted: Iterable[FoundShard]) -> dict[str, list[str]]:
    """Return, for each shard that was merged, the shards that were made from it."""
    made: dict[str, list[str]] = {}
    for item in counted:
        for shard in item.merged_from:
            made.setdefault(shard, []).append(item.shard.id)
    return made


def _place(
    item: FoundShard,
    merged_into: Mapping[str, Sequence[str]],
    by_id: Mapping[str, FoundShard],
    tree: PartitionTree,
    held: Mapping[str, Sequence[KeyRange]],
) -> PlacedShard:
    """Divide the leaves where a shard has rows into those where it is live and where merged.

    Of a shard of a restored version, rows beyond the ranges where it is `held` were merged before.
    """
    shard = item.shard
    if not shard.rows:
        return PlacedShard(shard, (), ())
    span = KeyRange(shard.min_key, prefix_successor(shard.max_key))
    taken = [by_id[output].provenance.range for output in merged_into.get(shard.id, ())]
    spans = held.get(shard.id)
    live: list[str] = []
    merged: list[str] = []
    for leaf in tree.leaves_overlapping(span):
        is_live = spans is None or any(span.covers(leaf.range) for span in spans)
        is_taken = any(span.covers(leaf.range) for span in taken)
        (live if is_live and not is_taken else merged).append(leaf.id)
    return PlacedShard(shard, tuple(live), tuple(merged))


def _overlaps(
    merged_into: Mapping[str, Sequence[str]],
    placed: Mapping[str, PlacedShard],
    by_id: Mapping[str, FoundShard],
) -> Iterator[str]:
    """Yield where rows would count twice: in a leaf, two runs merged the same shard.

    Two live shards made from the same one are no contradiction if they are, or were merged from,
    different shards of one run, since the shards of a run have no rows in common.

    Example: run j merged r-0 into j-0 and j-1, and later k merged j-1 into k-0. All of j-0, j-1 and
    k-0 were made from r-0. j-0 and k-0 are both live, but both have rows of run j, so these are
    different rows. If l had merged r-0 into l-0 without j, l-0 and j-0 would be a contradiction.
    """
    for shard, outputs in sorted(merged_into.items()):
        runs = {run_of_shard(output)[0] for output in outputs}
        holders: dict[str, list[tuple[str, set[str]]]] = {}
        for output in outputs:
            within = runs & _runs_in(by_id[output])
            for leaf in placed[output].live:
                others = holders.setdefault(leaf, [])
                other = next((other for other, runs in others if not runs & within), None)
                if other is not None:
                    yield (
                        f"shards {other} and {output} both hold rows of shard {shard} in "
                        f"partition {leaf}"
                    )
                    break
                if all(run_of_shard(other)[0] != run_of_shard(output)[0] for other, _ in others):
                    others.append((output, within))


def _runs_in(item: FoundShard) -> set[str]:
    """Return the runs of which a shard has rows: its own, and those that it was merged from."""
    return {run_of_shard(shard)[0] for shard in (item.shard.id, *item.merged_from)}
