"""Drop from a state what a snapshot does not keep: expired transactions."""

from __future__ import annotations

from dataclasses import replace

from dormouse.model.state import TRANSACTION_RETENTION_MS, TableState


def without_expired(state: TableState) -> TableState:
    """Return `state` without the transactions that are past their retention.

    The fold ignores those at this time and later, so no verdict changes.
    """
    recent_ms = state.time_ms - TRANSACTION_RETENTION_MS
    return replace(state, transactions=state.transactions.retain(lambda at: at > recent_ms))
