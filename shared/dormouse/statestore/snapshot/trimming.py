"""What a snapshot keeps of a state."""

from __future__ import annotations

from dataclasses import replace

from dormouse.model.state import TRANSACTION_RETENTION_MS, TableState


def without_forgotten(state: TableState) -> TableState:
    """Return `state` without the transactions whose time of being remembered is over.

    The fold would not heed them any more at this time or later, so nothing else changes.
    """
    recent_ms = state.time_ms - TRANSACTION_RETENTION_MS
    return replace(state, transactions=state.transactions.retain(lambda at: at > recent_ms))
