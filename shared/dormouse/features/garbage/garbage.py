"""Which shards may be deleted: those that nothing has referenced for longer than the delay.

The delay must exceed the longest query, since a query reads at the version it began with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dormouse.model.state import TableState
from dormouse.stored.paths import run_of_shard


def waiting_seconds(state: TableState, shard: str, now_ms: int, delay_seconds: int) -> int:
    """Return how many seconds an unreferenced shard must still be kept; 0 when it may go."""
    since_ms = state.unreferenced[shard]
    return max(0, -((now_ms - since_ms - delay_seconds * 1000) // 1000))


def collectable(
    state: TableState, candidates: Iterable[str], now_ms: int, delay_seconds: int
) -> tuple[list[str], list[str]]:
    """Sort candidates into those which may be deleted now and those which must wait.

    What is referenced, disputed or no longer known is in neither.
    """
    due: list[str] = []
    waiting: list[str] = []
    for shard in sorted(set(candidates)):
        if shard in state.unreferenced and shard not in state.disputed:
            ready = waiting_seconds(state, shard, now_ms, delay_seconds) == 0
            (due if ready else waiting).append(shard)
    return due, waiting


def orphans(state: TableState, modified_ms: Mapping[str, int], oldest_ms: int) -> list[str]:
    """Return the shards, of those put at these times, which no commit, past or to come, can need.

    They go run by run, once the youngest of a run was put at `oldest_ms` or before. The output of
    a job still assigned can be adopted by its next run, however old it is.
    """
    runs: dict[str, list[str]] = {}
    for shard in modified_ms:
        run, _ = run_of_shard(shard)
        if shard not in state.shards and run not in state.jobs:
            runs.setdefault(run, []).append(shard)
    return [
        shard
        for found in runs.values()
        if max(modified_ms[shard] for shard in found) <= oldest_ms
        for shard in found
    ]
