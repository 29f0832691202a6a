"""Which shards may be deleted: those that nothing has referenced for longer than the delay.

The delay must exceed the longest query, since a query reads at the version it began with.
"""

from __future__ import annotations

from collections.abc import Iterable

from dormouse.model.state import TableState


def waiting_seconds(state: TableState, shard: str, now_ms: int, delay_seconds: int) -> int:
    """Give how many seconds an unreferenced shard must still be kept; 0 when it may go."""
    since_ms = state.unreferenced[shard]
    return max(0, -((now_ms - since_ms - delay_seconds * 1000) // 1000))


def collectable(
    state: TableState, candidates: Iterable[str], now_ms: int, delay_seconds: int
) -> tuple[list[str], list[str]]:
    """Sort candidates into those which may be deleted now and those which must wait.

    What is referenced, or no longer known, is in neither.
    """
    due: list[str] = []
    waiting: list[str] = []
    for shard in sorted(set(candidates)):
        if shard in state.unreferenced:
            ready = waiting_seconds(state, shard, now_ms, delay_seconds) == 0
            (due if ready else waiting).append(shard)
    return due, waiting
