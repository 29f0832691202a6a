"""Where a shard comes from: what its footer says so that a lost state can be made anew.

`shards.writing` notes it, `features.compaction.compact` passes it on from inputs to outputs, and
`features.rebuild.rebuilding` draws its conclusions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dormouse.keys.ranges import KeyRange
from dormouse.model.state import TableState
from dormouse.stored.names import make_shard_id, run_of_shard


@dataclass(frozen=True, slots=True)
class Lineage:
    """What went into a shard before it was written.

    An ingested shard has the `sources` of its run. A compacted one has `inputs`, the shards it was
    merged from, and what could not be known any more once those are deleted:

    - `superseded`: what the inputs were merged from in turn, as far as it was not deleted yet;
    - `completed`: last shards of ingest runs merged into it, other shards of which are still there;
    - `sources`: those of the runs whose last shard was merged into it, while they are remembered.
    """

    sources: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    completed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Provenance:
    """The run that wrote a shard, and its place in it.

    `range` is that of the partition it was written for, or of the leaves from the first to the last
    one that it has rows in: leaves meet at both its ends, whatever is split or joined later.
    `number` counts the shards of a run, which are written in order; only the `last` one tells that
    it is, so a run is whole if its last shard is there. `generation` is that of the table it was
    written for.
    """

    range: KeyRange = KeyRange()
    job: str = ""
    written_ms: int = 0
    number: int = 0
    last: bool = True
    lineage: Lineage = Lineage()
    generation: int = 0


def merge_lineages(inputs: Mapping[str, Provenance], state: TableState) -> Lineage:
    """Return the lineage of a shard merged from `inputs`, `state` being the newest known.

    A shard that is gone from the state has no object any more, so nothing needs to be said of it.
    """
    origins = inputs.values()
    ingested = {
        shard: origin for shard, origin in inputs.items() if origin.last and not _merged(origin)
    }
    earlier = {s for o in origins for s in (*o.lineage.inputs, *o.lineage.superseded)}
    completed = {s for o in origins for s in o.lineage.completed} | ingested.keys()
    carried = [o for o in origins if _merged(o)]
    sources = {s for o in (*ingested.values(), *carried) for s in o.lineage.sources}
    return Lineage(
        sources=tuple(sorted(s for s in sources if s in state.sources)),
        inputs=tuple(inputs),
        superseded=tuple(sorted(s for s in earlier if s in state.shards)),
        completed=tuple(sorted(s for s in completed if _has_siblings(s, state))),
    )


def _merged(origin: Provenance) -> bool:
    return bool(origin.lineage.inputs)


def _has_siblings(last: str, state: TableState) -> bool:
    run, number = run_of_shard(last)
    return any(make_shard_id(run, n) in state.shards for n in range(number))
