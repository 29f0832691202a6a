"""Choose the runs whose shards count, when nothing but the shards and run markers is left.

An ingest job may be tried several times, and a source may be part of several jobs; at most one run
with a source was committed. Runs of which a shard was merged were committed. Of the others, runs
are chosen such that each source counts exactly once.

A compaction that is complete has exactly the rows of its inputs, so it counts whether it was
committed or not. One that is incomplete counts if it was committed: if a shard of it was merged, or
if an input is deleted and no other compaction that counts has merged that input. A compaction in
parts is complete if it has a run marker, which is kept as long as any of its shards; without the
marker, it counts only if a part was merged.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dormouse.keys.ranges import KeyRange
from dormouse.model.versions.provenance import Provenance
from dormouse.stored.paths import PART_NUMBERS, run_of_shard

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

    def shares_sources(self, other: _IngestRun) -> bool:
        """Return whether at most one of the two runs can have been committed."""
        return not self.sources.isdisjoint(other.sources)


def choose_runs(shards: Mapping[str, Provenance], known: frozenset[str] = frozenset()) -> RunChoice:
    """Choose among the runs that wrote `shards`, which are all shards of the table, by id.

    Runs that are `known` were committed.

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
    merged = _merged_runs(shards.values()) | known
    ingested, compacted = _group_by_run(shards)
    runs = [_ingest_run(run, found, run in merged) for run, found in ingested]
    committed = [run for run in runs if run.is_committed]
    counted, left_out = _choose_compactions(compacted, merged, shards)
    open_runs: list[_IngestRun] = []
    carried = [p for p in shards.values() if p.lineage.inputs and p.lineage.sources]
    for run in runs:
        if run.is_committed:
            continue
        if not run.is_complete:
            left_out[run.id] = _INCOMPLETE
        elif _is_ingested(run, committed, carried):
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
    lineages = [provenance.lineage for provenance in shards]
    return frozenset(
        run_of_shard(shard)[0]
        for lineage in lineages
        for shard in (*lineage.inputs, *lineage.superseded, *lineage.completed)
    )


_Run = tuple[str, list[Provenance]]


def _group_by_run(shards: Mapping[str, Provenance]) -> tuple[list[_Run], list[_Run]]:
    """Return the ingest runs and the compactions, by id, each with its shards in order."""
    ingested: dict[str, list[Provenance]] = {}
    compacted: dict[str, list[Provenance]] = {}
    for shard, provenance in shards.items():
        runs = compacted if provenance.lineage.inputs else ingested
        runs.setdefault(run_of_shard(shard)[0], []).append(provenance)
    for found in (*ingested.values(), *compacted.values()):
        found.sort(key=lambda provenance: (provenance.last, provenance.number))
    return sorted(ingested.items()), sorted(compacted.items())


def _ingest_run(run: str, found: Sequence[Provenance], is_merged: bool) -> _IngestRun:
    """Return what the shards of a run, of which the last comes last, show of it.

    The shards of an uncommitted run are deleted last shard first. So a run that has its last shard
    but lacks another was committed, and the missing shard was merged and deleted since.
    """
    last = found[-1]
    lacks_shards = last.last and len(found) <= last.number
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
    known = {run: found[-1] for run, found in compacted}
    counted = {run for run, last in known.items() if last.last or run in merged}
    merged_ranges: dict[str, list[KeyRange]] = {}
    for run in counted:
        for shard in (*known[run].lineage.inputs, *known[run].lineage.superseded):
            merged_ranges.setdefault(shard, []).append(known[run].range)
    left_out = {}
    for run in known.keys() - counted:
        last = known[run]
        deleted = [shard for shard in last.lineage.inputs if shard not in shards]
        others = [span for shard in deleted for span in merged_ranges.get(shard, ())]
        # Parts that were committed have a run marker, as long as any of them exists.
        is_part = last.number >= PART_NUMBERS
        if deleted and not is_part and not any(span.overlaps(last.range) for span in others):
            counted.add(run)
        else:
            left_out[run] = _INCOMPLETE
    return counted, left_out


def _is_ingested(
    run: _IngestRun, committed: Iterable[_IngestRun], carried: Iterable[Provenance]
) -> bool:
    """Return whether a source of `run` counts already, by another run or a compacted shard."""
    return any(run.shares_sources(other) for other in committed) or any(
        not run.sources.isdisjoint(provenance.lineage.sources) for provenance in carried
    )


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
                found = extend([*chosen, candidate])
                if found is not None:
                    return found
        return None

    return extend([])
