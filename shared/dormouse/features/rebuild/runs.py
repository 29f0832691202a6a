"""Which runs count when nothing but their shards is left; used by `rebuilding`.

An ingest may be tried several times, and sources may come in several jobs; of all runs with a
source at most one was committed. A run is known to be committed if anything of it was merged. Of
the others, runs are chosen so that no source is lost and none counts twice.

A compaction counts if it is whole: whether it was committed or not, it has the rows of its inputs.
If it is not, it counts if it was committed: if some of it was merged, or some input is deleted that
no compaction which counts was merged from. The end of one done in parts is noted as long as any of
its shards is needed, so without that note a part counts only if some of the run was merged.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dormouse.keys.ranges import KeyRange
from dormouse.model.provenance import Provenance
from dormouse.stored.paths import PART_NUMBERS, run_of_shard

LAST_NUMBER = 2**63
_BROKEN_OFF = "its run was broken off, and so never committed"


@dataclass(frozen=True, slots=True)
class Choice:
    """The runs that count, why the others do not, and what contradicts itself."""

    counted: frozenset[str]
    left_out: Mapping[str, str]
    contradictions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Run:
    """What is left of an ingest run."""

    id: str
    sources: frozenset[str]
    whole: bool
    committed: bool

    def repeats(self, other: _Run) -> bool:
        """Return whether at most one of the runs can have been committed."""
        return not self.sources.isdisjoint(other.sources)


def choose_runs(origins: Mapping[str, Provenance]) -> Choice:
    """Choose among the runs of all shards there are, given by id."""
    merged = _merged(origins.values())
    ingested, compacted = _runs(origins)
    runs = [_run(run, found, run in merged) for run, found in ingested]
    committed = [run for run in runs if run.committed]
    compactions, left_out = _whole_compactions(compacted, merged, origins)
    open_runs: list[_Run] = []
    carried = [o for o in origins.values() if o.lineage.inputs and o.lineage.sources]
    for run in runs:
        if run.committed:
            continue
        if not run.whole:
            left_out[run.id] = _BROKEN_OFF
        elif _was_ingested(run, committed, carried):
            left_out[run.id] = "its sources were ingested by another run"
        else:
            open_runs.append(run)
    contradictions = list(_repeats_among(committed))
    chosen: list[_Run] = []
    for group in _groups(open_runs):
        covering = _cover(group)
        if covering is None:
            names = ", ".join(run.id for run in group)
            contradictions.append(
                f"the ingest runs {names} share some sources, and nothing tells which of them was "
                "committed: delete the shards of those that were not"
            )
            continue
        chosen += covering
        for run in group:
            if run not in covering:
                left_out[run.id] = "its sources count by another run"
    counted = compactions | {run.id for run in (*committed, *chosen)}
    return Choice(counted, left_out, tuple(contradictions))


def _merged(origins: Iterable[Provenance]) -> frozenset[str]:
    """Return the runs of which a shard is known to have been merged."""
    lineages = [origin.lineage for origin in origins]
    return frozenset(
        run_of_shard(shard)[0]
        for lineage in lineages
        for shard in (*lineage.inputs, *lineage.superseded, *lineage.completed)
    )


def _runs(
    origins: Mapping[str, Provenance],
) -> tuple[list[tuple[str, list[Provenance]]], list[tuple[str, list[Provenance]]]]:
    """Return what there is of ingest runs and of compactions, by id, shards in order."""
    ingested: dict[str, list[Provenance]] = {}
    compacted: dict[str, list[Provenance]] = {}
    for shard, origin in origins.items():
        runs = compacted if origin.lineage.inputs else ingested
        runs.setdefault(run_of_shard(shard)[0], []).append(origin)
    for found in (*ingested.values(), *compacted.values()):
        found.sort(key=lambda origin: (origin.last, origin.number))
    return sorted(ingested.items()), sorted(compacted.items())


def _run(run: str, found: Sequence[Provenance], merged: bool) -> _Run:
    last = found[-1]
    lacks_others = last.last and len(found) <= last.number
    sources = frozenset(last.lineage.sources)
    return _Run(run, sources, last.last, merged or lacks_others)


def _whole_compactions(
    compacted: Iterable[tuple[str, Sequence[Provenance]]],
    merged: frozenset[str],
    shards: Container[str],
) -> tuple[frozenset[str], dict[str, str]]:
    """Return the compactions that count, and why the others do not."""
    known = {run: found[-1] for run, found in compacted}
    counted = {run for run, last in known.items() if last.last or run in merged}
    taken: dict[str, list[KeyRange]] = {}
    for run in counted:
        for shard in (*known[run].lineage.inputs, *known[run].lineage.superseded):
            taken.setdefault(shard, []).append(known[run].range)
    left_out = {}
    for run in known.keys() - counted:
        gone = [shard for shard in known[run].lineage.inputs if shard not in shards]
        # One that a rebuild forgot was planned once more, and left shards of its steps behind.
        others = [span for shard in gone for span in taken.get(shard, ())]
        is_parts = (
            known[run].number >= PART_NUMBERS
        )  # their end would be noted, as long as they are
        if gone and not is_parts and not any(s.overlaps(known[run].range) for s in others):
            counted.add(run)
        else:
            left_out[run] = _BROKEN_OFF
    return frozenset(counted), left_out


def written_twice(
    origins: Mapping[str, Provenance], ended: Mapping[str, Container[int]]
) -> frozenset[str]:
    """Return the shards of compactions that do not count, as others of their run have their rows.

    `ended` has the numbers of the shards of each run whose end is noted.

    A run that died before its commit may have written everything, as shard 0, the last. Is the job
    then cut into parts, shards from 1,000,000 on hold the same rows; is a part cut again, so do
    those of the smaller parts. Whoever was taken for dead may write its shards long after others
    committed theirs. What was merged counts; else the parts that the noted end lists; else what
    says that it is the last.
    """
    lineages = [origin.lineage for origin in origins.values()]
    merged = {shard for each in lineages for shard in (*each.inputs, *each.superseded)}
    whole_merged = {run for run, number in map(run_of_shard, merged) if number < PART_NUMBERS}
    parts_merged = {run for run, number in map(run_of_shard, merged) if number >= PART_NUMBERS}
    runs: dict[str, dict[int, str]] = {}
    for shard, origin in origins.items():
        if origin.lineage.inputs:
            run, number = run_of_shard(shard)
            runs.setdefault(run, {})[number] = shard
    twice: set[str] = set()
    for run, shards in runs.items():
        whole = {shard for number, shard in shards.items() if number < PART_NUMBERS}
        if run in whole_merged:
            twice |= set(shards.values()) - whole
        elif run in ended:
            listed = ended[run]
            twice |= {s for n, s in shards.items() if n != LAST_NUMBER and n not in listed}
        elif run in parts_merged:
            twice |= whole
        elif any(origins[shard].last for shard in whole):
            twice |= set(shards.values()) - whole
    return frozenset(twice)


def _was_ingested(run: _Run, committed: Iterable[_Run], carried: Iterable[Provenance]) -> bool:
    """Return whether a source of `run` counts already."""
    return any(run.repeats(other) for other in committed) or any(
        not run.sources.isdisjoint(origin.lineage.sources) for origin in carried
    )


def _repeats_among(committed: Sequence[_Run]) -> Iterator[str]:
    by_source: dict[str, list[_Run]] = {}
    for run in committed:
        for source in sorted(run.sources):
            for other in by_source.setdefault(source, []):
                if run.repeats(other):
                    yield f"the ingest runs {other.id} and {run.id} both have source {source}"
            by_source[source].append(run)


def _groups(runs: Sequence[_Run]) -> list[list[_Run]]:
    """Put together the runs that repeat each other, directly or by way of others."""
    by_source: dict[str, list[_Run]] = {}
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
                if other.id not in seen and run.repeats(other):
                    seen.add(other.id)
                    pending.append(other)
        groups.append(sorted(group, key=lambda run: run.id))
    return groups


def _cover(group: Sequence[_Run]) -> list[_Run] | None:
    """Choose runs that do not repeat each other and have all sources of the group; None if none do.

    All runs with a source have the same rows of it, so any such choice has the same rows.
    """
    candidates = list({run.sources: run for run in reversed(group)}.values())[::-1]

    def extend(chosen: list[_Run]) -> list[_Run] | None:
        missing = next(
            (
                source
                for run in group
                for source in sorted(run.sources)
                if not any(source in c.sources for c in chosen)
            ),
            None,
        )
        if missing is None:
            return chosen
        for candidate in candidates:
            fits = missing in candidate.sources
            if fits and not any(candidate.repeats(c) for c in chosen):
                found = extend([*chosen, candidate])
                if found is not None:
                    return found
        return None

    return extend([])
