"""What the verdicts on a delta mean to whoever committed it."""

from __future__ import annotations

from collections.abc import Sequence

from dormouse.fold.fold import Verdict
from dormouse.state_store import AlreadyCommitted, Committed, Outcome, Rejected
from dormouse.statestore.group_commit import Outcomes


def outcomes_of(verdicts: Sequence[Verdict], version: int) -> Outcomes:
    """Return the outcome of each entry of the delta that made a version."""
    return tuple(_outcome(verdict, version) for verdict in verdicts)


def _outcome(verdict: Verdict, version: int) -> Outcome:
    if verdict.repeated:
        return AlreadyCommitted()
    return Rejected(verdict.violations) if verdict.violations else Committed(version)
