"""What of a state a snapshot keeps; used by `consolidation`."""

from __future__ import annotations

from dataclasses import replace

from dormouse.model.state import (
    SOURCES_REMEMBERED_MS,
    TRANSACTIONS_REMEMBERED_MS,
    TableState,
)


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
