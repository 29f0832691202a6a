"""The provenance of a shard: what its footer says so that a lost state can be rebuilt.

`shards.writing` writes it, `features.compaction.compact` passes it on from inputs to outputs, and
`features.rebuild.plan_rebuild` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dormouse.keys.ranges import KeyRange
from dormouse.model.state import TableState
from dormouse.stored.paths import make_shard_id, run_of_shard


@dataclass(frozen=True, slots=True)
class Lineage:
    """What went into a shard before it was written.

    An ingested shard has the `sources` of its run. A compacted one has `inputs`, the shards that it
    was merged from, and what nobody could know once those are deleted:

    - `superseded`: the inputs of its inputs, and theirs, as far as they were not yet deleted;
    - `completed`: the last shards of ingest runs that were merged into it, while others of the same
      run still exist;
    - `sources`: those of the runs whose last shard was merged into it, while they are remembered.
    """

    sources: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Provenance:
    """The run that wrote a shard, and the shard's place in that run.

    `range` is that of the partition for which the shard was written, or spans the leaves from the
    first to the last in which it has rows. Leaves meet at both ends of it, whatever is split later.
    `number` counts the shards of a run, which are written in order. Only the `last` one is marked,
    so a run is complete if its last shard exists. `generation` is that of the table when the shard
    was written.
    """

    range: KeyRange = KeyRange()
    job: str = ""
    written_ms: int = 0
    number: int = 0
    last: bool = True
    lineage: Lineage = Lineage()
    generation: int = 0


def merge_lineages(inputs: Mapping[str, Provenance], state: TableState) -> Lineage:
    """Return the lineage of a shard merged from `inputs`; `state` is the newest known.

    A shard that is gone from the state has no object any more, so the lineage need not mention it.

    Example: run r ingested r-0 and r-1 (the last, with the run's sources s). Merging r-1 with x
    gives inputs r-1, x. It also gives sources s, since a rebuild that finds only the merged shard
    must know that s is ingested; and completed r-1, as long as r-0 exists, since r-0 alone would
    look like a run that never finished. Merging the result again moves r-1 and x to superseded
    until their objects are deleted: a rebuild that finds them must not count their rows twice.
    """
    provenances = inputs.values()
    ingested = {
        shard: provenance
        for shard, provenance in inputs.items()
        if provenance.last and not _merged(provenance)
    }
    earlier = {s for p in provenances for s in (*p.lineage.inputs, *p.lineage.superseded)}
    completed = {s for p in provenances for s in p.lineage.completed} | ingested.keys()
    carried = [p for p in provenances if _merged(p)]
    sources = {s for p in (*ingested.values(), *carried) for s in p.lineage.sources}
    return Lineage(
        sources=tuple(sorted(s for s in sources if s in state.sources)),
        inputs=tuple(inputs),
        superseded=tuple(sorted(s for s in earlier if s in state.shards)),
        completed=tuple(sorted(s for s in completed if _has_siblings(s, state))),
    )


def _merged(provenance: Provenance) -> bool:
    return bool(provenance.lineage.inputs)


def _has_siblings(last: str, state: TableState) -> bool:
    run, number = run_of_shard(last)
    return any(make_shard_id(run, n) in state.shards for n in range(number))
