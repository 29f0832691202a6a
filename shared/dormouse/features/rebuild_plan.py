"""Plan a table's state from the footers of its shards alone, or say why that is impossible.

docs/shard-format.md says what the footers contain, and why that is enough. `rebuild` reads them,
and commits what is planned here.
"""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dormouse.keys import KeyRange, prefix_successor
from dormouse.schema.schema import KeyTypes, key_problem
from dormouse.shards.run_markers import RunMarker
from dormouse.state.partitions import PartitionTree, Shard
from dormouse.state.state import Deletion, SourceSegment, TableState
from dormouse.state.versions import Provenance
from dormouse.stored.paths import PART_NUMBERS, make_shard_id, run_of_shard

# Choose the runs whose shards count, when nothing but the shards and run markers is left.
#
# An ingest job may be tried several times, and a source may be part of several jobs; at most one
# run with a source was committed. Runs of which a shard was merged were committed. Of the others,
# runs are chosen such that each source counts exactly once.
#
# A compaction that is complete has exactly the rows of its inputs, so it counts whether it was
# committed or not. One that is incomplete counts if it was committed: if a shard of it was merged,
# or if an input is deleted and no other compaction that counts has merged that input. A compaction
# in parts is complete if it has a run marker, which is kept as long as any of its shards; without
# the marker, it counts only if a part was merged.

_INCOMPLETE = "its run is incomplete, so it was never committed"


@dataclass(frozen=True, slots=True)
class RunChoice:
    """The runs that count, the reason why each other run does not, and contradictions."""

    counted: frozenset[str]
    left_out: Mapping[str, str]
    contradictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _IngestRun:
    """What the shards that are left show of an ingest run."""

    id: str
    sources: frozenset[str]
    is_complete: bool
    is_committed: bool


def choose_runs(
    shards: Mapping[str, Provenance], restored: frozenset[str] = frozenset()
) -> RunChoice:
    """Choose among the runs that wrote `shards`, which are all shards of the table, by id.

    Those of a `restored` version were committed.

    Example, with the sources of each ingest run in braces:

    - a {s}, and a shard c-0 that was merged from a-0: run a was committed, and counts.
    - b {s}: a retry of the same job. Its source counts by run a already, so b is left out.
    - d {t}, without its last shard: it crashed while writing, and is left out.
    - e {u, v}, f {u}, g {v, w}: not merged, complete, and they share sources. Nothing shows which
      were committed, but f and g together have each of u, v, w once, and e has no other rows. So
      f and g count, and e is left out.
    - h {x, y}, i {y, z}: no choice has each of x, y, z exactly once. This is a contradiction: a
      guess could lose rows or double them, so a person has to delete the shards of one run.
    """
    merged = _merged_runs(shards.values()) | restored
    by_ingests, compacted = _group_by_run(shards)
    runs = [_ingest_run(run, parts, run in merged) for run, parts in by_ingests]
    committed = [run for run in runs if run.is_committed]
    counted, left_out = _choose_compactions(compacted, merged, shards)
    open_runs: list[_IngestRun] = []
    # those that count already, by a committed run or a compacted shard
    ingested = {source for run in committed for source in run.sources}
    ingested.update(*(p.lineage.sources for p in shards.values() if p.lineage.inputs))
    for run in runs:
        if run.is_committed:
            continue
        if not run.is_complete:
            left_out[run.id] = _INCOMPLETE
        elif not run.sources.isdisjoint(ingested):
            left_out[run.id] = "its sources were ingested by another run"
        else:
            open_runs.append(run)
    contradictions = list(_shared_sources(committed))
    chosen: list[_IngestRun] = []
    for group in _connected_groups(open_runs):
        cover = _exact_cover(group)
        if cover is None:
            names = ", ".join(run.id for run in group)
            contradictions.append(
                f"the ingest runs {names} share some sources, and nothing shows which of them was "
                "committed: delete the shards of those that were not"
            )
            continue
        chosen += cover
        for run in group:
            if run not in cover:
                left_out[run.id] = "other runs with the same sources count"
    counted |= {run.id for run in (*committed, *chosen)}
    return RunChoice(frozenset(counted), left_out, tuple(contradictions))


def _merged_runs(shards: Iterable[Provenance]) -> frozenset[str]:
    """Return the runs of which at least one shard was merged, and which were so committed."""
    return frozenset(
        run_of_shard(shard)[0]
        for provenance in shards
        for shard in (*(shard for shard, _ in provenance.merged), *provenance.lineage.completed)
    )


_Run = tuple[str, list[Provenance]]


def _group_by_run(shards: Mapping[str, Provenance]) -> tuple[list[_Run], list[_Run]]:
    """Return the ingest runs and the compactions, by id, each with its shards in order."""
    ingested: dict[str, list[Provenance]] = {}
    compacted: dict[str, list[Provenance]] = {}
    for shard, provenance in shards.items():
        runs = compacted if provenance.lineage.inputs else ingested
        runs.setdefault(run_of_shard(shard)[0], []).append(provenance)
    for parts in (*ingested.values(), *compacted.values()):
        parts.sort(key=lambda provenance: (provenance.last, provenance.number))
    return sorted(ingested.items()), sorted(compacted.items())


def _ingest_run(run: str, parts: Sequence[Provenance], is_merged: bool) -> _IngestRun:
    """Return what the shards of a run, of which the last comes last, show of it.

    The shards of an uncommitted run are deleted last shard first. So a run that has its last shard
    but lacks another was committed, and the missing shard was merged and deleted since.
    """
    last = parts[-1]
    lacks_shards = last.last and len(parts) <= last.number
    sources = frozenset(last.lineage.sources)
    return _IngestRun(run, sources, last.last, is_merged or lacks_shards)


def _choose_compactions(
    compacted: Iterable[_Run], merged: frozenset[str], shards: Container[str]
) -> tuple[set[str], dict[str, str]]:
    """Return the compactions that count, and the reasons why the others do not.

    Example: j was merged from r-0 and s-0, and only j-0 is left, which is not its last shard. If
    r-0 and s-0 exist, j never got to its commit, and they have the rows. If r-0 is deleted, j was
    committed, since inputs are deleted after the commit only; j-1 was merged and deleted since.
    But if k was merged from r-0 in the same range as well, r-0 was deleted after the commit of k:
    a rebuild had forgotten j, and its inputs were planned again as k. Then j does not count.
    """
    newest = {run: parts[-1] for run, parts in compacted}
    counted = {run for run, last in newest.items() if last.last or run in merged}
    merged_ranges: dict[str, list[KeyRange]] = {}
    for run in counted:
        for shard, span in newest[run].merged:
            merged_ranges.setdefault(shard, []).append(span)
    left_out = {}
    for run in newest.keys() - counted:
        last = newest[run]
        deleted = [shard for shard in last.lineage.inputs if shard not in shards]
        others = [span for shard in deleted for span in merged_ranges.get(shard, ())]
        # Parts that were committed have a run marker, as long as any of them exists.
        is_part = last.number >= PART_NUMBERS
        if deleted and not is_part and not any(span.overlaps(last.range) for span in others):
            counted.add(run)
        else:
            left_out[run] = _INCOMPLETE
    return counted, left_out


def _shared_sources(committed: Sequence[_IngestRun]) -> Iterator[str]:
    """Yield a contradiction for each source that two committed runs have."""
    by_source: dict[str, list[_IngestRun]] = {}
    for run in committed:
        for source in sorted(run.sources):
            for other in by_source.setdefault(source, []):
                yield f"the ingest runs {other.id} and {run.id} both have source {source}"
            by_source[source].append(run)


def _connected_groups(runs: Sequence[_IngestRun]) -> list[list[_IngestRun]]:
    """Group runs that share sources, directly or through other runs.

    Example: of a {s, t}, b {t, u}, c {u}, d {v}, the groups are a, b, c and d alone.
    """
    by_source: dict[str, list[_IngestRun]] = {}
    for run in runs:
        for source in run.sources:
            by_source.setdefault(source, []).append(run)
    groups, seen = [], set[str]()
    for first in runs:
        if first.id in seen:
            continue
        seen.add(first.id)
        group, pending = [], [first]
        while pending:
            run = pending.pop()
            group.append(run)
            for other in (o for source in run.sources for o in by_source[source]):
                if other.id not in seen:
                    seen.add(other.id)
                    pending.append(other)
        groups.append(sorted(group, key=lambda run: run.id))
    return groups


def _exact_cover(group: Sequence[_IngestRun]) -> list[_IngestRun] | None:
    """Choose runs which together have each source of the group exactly once; None if none do.

    All runs with a source have the same rows of it, so any exact cover has the same rows. The
    search takes the first source that is not covered, tries each run that has it and shares no
    source with those chosen so far, and goes back a step if the rest cannot be covered.

    Example: of a {s, t}, b {s}, c {t, u}, source s is first. With a, nothing fits for u, since c
    shares t with a. With b, run c covers t and u. The cover is b, c.
    """
    candidates = list({run.sources: run for run in reversed(group)}.values())[::-1]

    def extend(chosen: list[_IngestRun]) -> list[_IngestRun] | None:
        covered = {source for run in chosen for source in run.sources}
        uncovered = (s for run in group for s in sorted(run.sources) if s not in covered)
        missing = next(uncovered, None)
        if missing is None:
            return chosen
        for candidate in candidates:
            if missing in candidate.sources and covered.isdisjoint(candidate.sources):
                cover = extend([*chosen, candidate])
                if cover is not None:
                    return cover
        return None

    return extend([])


# Find the shards of a compaction whose rows other shards of the same run have.
#
# A run writes either one series of shards (*whole*, numbers below 1,000,000), or several *parts*
# side by side (numbers from 1,000,000 on). If a run crashes and its job is then cut into parts,
# both may be there.

MARKER_NUMBER = 2**63
"""The shard number with which a run marker takes part in a rebuild; no shard has it."""


def duplicate_shards(
    shards: Mapping[str, Provenance], marked: Mapping[str, Container[int]]
) -> frozenset[str]:
    """Return the shards of compactions that do not count, because others have their rows.

    `marked` has the shard numbers that the marker of each run lists, for runs that have one.

    Example: a run of job j wrote all rows to j-0, its last shard, and crashed before its commit.
    The job was cut into two parts, which wrote j-1000000 and j-2000000 with the same rows. Later, a
    process that was believed dead wrote part 9, j-9000000. Which of these have the rows that count?
    The first rule that applies decides:

    1. A shard of the whole was merged, such as j-0 into k-0: the run was committed as a whole, so
       the parts are duplicates.
    2. The run has a marker: it was put before a commit in parts, so the parts that it lists count.
       The whole, and parts that it does not list (j-9000000), are duplicates.
    3. A part was merged: the run was committed in parts, so the whole is a duplicate.
    4. The whole is complete: nothing is known of a commit, and the whole surely has all rows.
       Parts without a marker may lack some, so they are duplicates.

    Otherwise, no shard is a duplicate; `choose_runs` decides whether the run counts.
    """
    merged = {shard for provenance in shards.values() for shard, _ in provenance.merged}
    whole_merged = {run for run, number in map(run_of_shard, merged) if number < PART_NUMBERS}
    parts_merged = {run for run, number in map(run_of_shard, merged) if number >= PART_NUMBERS}
    duplicates: set[str] = set()
    for run, by_number in _compactions(shards).items():
        whole = {shard for number, shard in by_number.items() if number < PART_NUMBERS}
        parts = set(by_number.values()) - whole
        if run in whole_merged:
            duplicates |= parts
        elif run in marked:
            own = {n: shard for n, shard in by_number.items() if n != MARKER_NUMBER}
            duplicates |= {shard for number, shard in own.items() if number not in marked[run]}
        elif run in parts_merged:
            duplicates |= whole
        elif any(shards[shard].last for shard in whole):
            duplicates |= parts
    return frozenset(duplicates)


def _compactions(shards: Mapping[str, Provenance]) -> dict[str, dict[int, str]]:
    """Return the shards of each run of a compaction, by their number in the run."""
    runs: dict[str, dict[int, str]] = {}
    for shard, provenance in shards.items():
        if provenance.lineage.inputs:
            run, number = run_of_shard(shard)
            runs.setdefault(run, {})[number] = shard
    return runs


_DUPLICATE = "other shards of its run have its rows"
_EARLIER = "it was written before the table was reset"


@dataclass(frozen=True, slots=True)
class FoundShard:
    """A shard as its object and footer show it, or a run marker as a shard without rows."""

    shard: Shard
    provenance: Provenance


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
    deletions: tuple[Deletion, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reasons why no state can be planned; each names the shards concerned."""

    reasons: tuple[str, ...]


def plan_rebuild(
    shards: Iterable[FoundShard],
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
    every = sorted((*shards, *map(_marker_as_shard, markers)), key=lambda item: item.shard.id)
    spans = _restored_ranges(restored)
    by_id = {
        item.shard.id: item
        for item in every
        if item.provenance.generation == generation or item.shard.id in spans
    }
    # keys that do not fit cannot even be compared with ranges
    problems = [*_key_problems(by_id.values(), key_types)] or [*_range_problems(by_id.values())]
    if problems:
        return Refusal(tuple(problems))
    tree = _tree(by_id.values(), restored)
    provenances = {shard: item.provenance for shard, item in by_id.items()}
    duplicates = duplicate_shards(provenances, {m.run: frozenset(m.numbers) for m in markers})
    provenances = {shard: p for shard, p in provenances.items() if shard not in duplicates}
    choice = choose_runs(provenances, frozenset(run_of_shard(shard)[0] for shard in spans))
    runs = {shard: run_of_shard(shard)[0] for shard in provenances}
    counted = [by_id[shard] for shard, run in runs.items() if run in choice.counted]
    merged_into = _merged_into(counted)
    placed = tuple(_place(item, merged_into, tree, spans) for item in counted)
    contradictions = [
        *choice.contradictions,
        *_overlaps(merged_into, _merged_into(every), placed, by_id, tree),
    ]
    if contradictions:
        return Refusal(tuple(contradictions))
    left_out = [
        *((s, choice.left_out[run]) for s, run in runs.items() if run in choice.left_out),
        *((shard, _DUPLICATE) for shard in sorted(duplicates)),
        *((each.shard.id, _EARLIER) for each in every if each.shard.id not in by_id),
    ]
    sources = {s for item in counted for s in item.provenance.lineage.sources}
    sources.update(restored.sources if restored else ())
    with_rows = tuple(item for item in placed if item.shard.rows)
    rest = tuple(each for each in left_out if run_of_shard(each[0])[1] != MARKER_NUMBER)
    return RebuildPlan(tree, with_rows, tuple(sorted(sources)), rest, key_types, generation)


def _restored_ranges(restored: TableState | None) -> dict[str, list[KeyRange]]:
    """Return the ranges in which a restored version has rows of each of its shards."""
    spans: dict[str, list[KeyRange]] = {}
    if restored is not None:
        for reference in restored.all_references():
            span = restored.partitions.get(reference.partition).range
            spans.setdefault(reference.shard, []).append(span)
    return spans


def _marker_as_shard(marker: RunMarker) -> FoundShard:
    """Return a run marker as a last shard without rows, whose number no shard of its run has."""
    return FoundShard(
        Shard(make_shard_id(marker.run, MARKER_NUMBER), 0, 0, b"", b""), marker.provenance
    )


def _key_problems(shards: Iterable[FoundShard], key_types: KeyTypes) -> Iterator[str]:
    """Yield the keys that do not fit the row keys of the table."""
    for item in shards:
        span = item.provenance.range
        ends = [span.min] if span.max is None else [span.min, span.max]
        keys = (item.shard.min_key, item.shard.max_key) if item.shard.rows else ()
        problems = [key_problem(end, key_types, fewest_parts=0) for end in ends]
        problems += [key_problem(key, key_types, fewest_parts=len(key_types)) for key in keys]
        for problem in filter(None, problems):
            yield f"a key in shard {item.shard.id} does not fit the table: {problem}"


def _range_problems(shards: Iterable[FoundShard]) -> Iterator[str]:
    for item in shards:
        shard, span = item.shard, item.provenance.range
        if span.is_empty():
            yield f"shard {shard.id} was written for a range without keys"
        elif shard.rows and not span.contains_span(shard.low, shard.high):
            yield f"shard {shard.id} has keys outside the range it was written for"


def _tree(shards: Collection[FoundShard], restored: TableState | None) -> PartitionTree:
    """Return a tree with a leaf boundary at both ends of the range of every shard.

    Leaves met there when the shard was written, and leaves are never joined. The leaves of a
    restored version are those with which the generation started.
    """
    ranges = [item.provenance.range for item in shards]
    ranges += [span for item in shards for _, span in item.provenance.lineage.superseded]
    ranges += [leaf.range for leaf in restored.partitions.leaves()] if restored else []
    ends = {span.low for span in ranges} | {span.high for span in ranges}
    return PartitionTree.from_splits(sorted(end for end in ends if end))


_MergedInto = dict[str, list[tuple[str, KeyRange]]]


def _merged_into(counted: Iterable[FoundShard]) -> _MergedInto:
    """Return, for each shard that was merged, the shards made from it, and of which range."""
    made: _MergedInto = {}
    for item in counted:
        for shard, span in item.provenance.merged:
            made.setdefault(shard, []).append((item.shard.id, span))
    return made


def _place(
    item: FoundShard,
    merged_into: _MergedInto,
    tree: PartitionTree,
    restored: Mapping[str, Sequence[KeyRange]],
) -> PlacedShard:
    """Divide the leaves where a shard has rows into those where it is live and where merged.

    Of a shard of a restored version, rows beyond the `restored` ranges were merged before.
    """
    shard = item.shard
    if not shard.rows:
        return PlacedShard(shard, (), ())
    span = KeyRange(shard.min_key, prefix_successor(shard.max_key))
    merged_spans = [span for _, span in merged_into.get(shard.id, ())]
    spans = restored.get(shard.id)
    live: list[str] = []
    merged: list[str] = []
    for leaf in tree.leaves_overlapping(span):
        is_live = spans is None or any(span.covers(leaf.range) for span in spans)
        is_merged = any(span.covers(leaf.range) for span in merged_spans)
        (live if is_live and not is_merged else merged).append(leaf.id)
    return PlacedShard(shard, tuple(live), tuple(merged))


def _overlaps(
    merged_into: _MergedInto,
    ever_made: _MergedInto,
    placed: Sequence[PlacedShard],
    by_id: Mapping[str, FoundShard],
    tree: PartitionTree,
) -> Iterator[str]:
    """Yield where rows would count twice: in a leaf, two runs merged the same shard.

    Two live shards made from the same one are no contradiction if they are, or were merged from,
    different shards of one run, since the shards of a run have no rows in common.

    `ever_made` is `merged_into` with what does not count, as runs of a generation before a restore.

    Example: run j merged r-0 into j-0 and j-1, and later k merged j-1 into k-0. All of j-0, j-1 and
    k-0 were made from r-0. j-0 and k-0 are both live, but both have rows of run j, so these are
    different rows. If l had merged r-0 into l-0 without j, l-0 and j-0 would be a contradiction.
    """
    live = {item.shard.id: item.live for item in placed}
    for shard, outputs in sorted(merged_into.items()):
        runs = {run_of_shard(output)[0] for output, _ in ever_made[shard]}
        holders: dict[str, list[tuple[str, set[str]]]] = {}
        for output, span in outputs:
            inputs = (shard for shard, _ in by_id[output].provenance.merged)
            # of these runs, whose rows it can have: its own, and those that it was merged from
            within = runs & {run_of_shard(each)[0] for each in (output, *inputs)}
            for leaf in live[output]:
                if not span.covers(tree.get(leaf).range):
                    continue
                others = holders.setdefault(leaf, [])
                other = next((other for other, common in others if not common & within), None)
                if other is not None:
                    yield (
                        f"shards {other} and {output} both hold rows of shard {shard} in "
                        f"partition {leaf}"
                    )
                    break
                # one shard of a run stands for all of them, whose rows differ
                if all(run_of_shard(other)[0] != run_of_shard(output)[0] for other, _ in others):
                    others.append((output, within))
