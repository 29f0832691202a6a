"""When a snapshot of a state is due, and what of the state it keeps; used by `s3`."""

from __future__ import annotations

from dataclasses import replace

from dormouse.model.state import (
    SOURCES_REMEMBERED_MS,
    TRANSACTIONS_REMEMBERED_MS,
    TableState,
)
from dormouse.statestore.pages import PAGE_CAPACITY, Root

BYTES_PER_COMMIT = 16 * 1024
"""What a snapshot may cost for each commit since the one before."""


def snapshot_due(version: int, root: Root | None) -> bool:
    """Tell whether a state at `version` should be written out, `root` being the newest snapshot.

    A reader that starts cold fetches every delta since the snapshot, a writer of snapshots writes
    all of the state: a big state is written after as many commits as make its size a small cost
    for each, a small one after every page.
    """
    if root is None:
        return version >= PAGE_CAPACITY
    return version - root.version >= max(PAGE_CAPACITY, root.size_bytes // BYTES_PER_COMMIT)


def without_forgotten(state: TableState) -> TableState:
    """Give `state` without the sources and transactions whose time of being remembered is over.

    The fold would not heed them any more at this time or later, so nothing else changes.
    """
    since_ms = state.time_ms - SOURCES_REMEMBERED_MS
    recent_ms = state.time_ms - TRANSACTIONS_REMEMBERED_MS
    return replace(
        state,
        sources=state.sources.retain(lambda at: at > since_ms),
        transactions=state.transactions.retain(lambda at: at > recent_ms),
    )
