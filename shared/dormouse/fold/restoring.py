"""The part of the fold that makes an earlier version of a table its newest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dormouse.fold.rules import Rule, Violation
from dormouse.model.disputes import RowsTaken
from dormouse.model.overlay_map import OverlayMap
from dormouse.model.state import TableState
from dormouse.model.transactions import RestoreVersion


def restore_violations(
    state: TableState, restore: RestoreVersion, earlier: TableState | None
) -> Iterator[Violation]:
    """Yield every reason why `state` cannot go back to `earlier`, the snapshot of the version.

    Only shards that the table still has can come back. A shard that was deleted never does, and a
    reset leaves none, so nothing comes back across it.
    """
    name = f"version {restore.version}"
    if earlier is None or earlier.version != restore.version or earlier.version > state.version:
        yield Violation(Rule.NOT_THE_VERSION, name)
        return
    if earlier.key_types != state.key_types:
        yield Violation(Rule.KEY_TYPES_UNFIT, name)
    for shard, references in earlier.reference_counts.items():
        if references and state.shards.get(shard) != earlier.shards[shard]:
            yield Violation(Rule.SHARD_MISSING, shard)


def restored(state: TableState, earlier: TableState, generation: int) -> TableState:
    """Return the start of a generation with the rows and sources of `earlier`, which has no jobs.

    Which shards there are, which are disputed, and since when others have been without references,
    is known by `state`: it is true of the objects, whichever version is the newest.
    """
    counts, unreferenced = earlier.reference_counts, state.unreferenced
    for shard in earlier.shards:
        if shard not in state.shards:
            counts = counts.discard(shard)
    for shard in state.shards:
        if counts.get(shard, 0):
            unreferenced = unreferenced.discard(shard)
        elif shard not in unreferenced:
            unreferenced = unreferenced.insert(shard, state.time_ms)
        if shard not in counts:
            counts = counts.insert(shard, 0)
    return replace(
        earlier,
        version=state.version,
        time_ms=state.time_ms,
        generation=generation,
        rules=state.rules,
        shards=state.shards,
        reference_counts=counts,
        unreferenced=unreferenced,
        taken=_taken(state, earlier, counts),
        disputed=state.disputed,
        transactions=OverlayMap(),
    )


def _taken(
    state: TableState, earlier: TableState, counts: OverlayMap[str, int]
) -> OverlayMap[str, tuple[RowsTaken, ...]]:
    """Return the counts of rows taken from shards that have references again, and the evidence of
    disputes over the others.
    """
    taken = earlier.taken
    for shard in earlier.taken:
        if not counts.get(shard, 0):
            taken = taken.discard(shard)
    for shard in state.disputed:
        if not counts.get(shard, 0) and (takings := state.taken.get(shard)):
            taken = taken.insert(shard, takings)
    return taken
