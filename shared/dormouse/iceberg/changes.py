"""What happened to a table between two publications, as far as readers of changes need it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dormouse.model.shards import Shard
from dormouse.state_store import VersionRecord

_RESET, _RESTORED = "reset table", "restore version"
"""What the history says of a table that was emptied, or got the rows of an earlier version."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The shards that ingests added, in the order of the log, also if compactions took them since.

    If the table was reset in between, they are those added since the last reset. `restored` says
    that this reset gave the table the rows of an earlier version.
    """

    added: tuple[Shard, ...] = ()
    reset: bool = False
    restored: bool = False


def changes_since(history: Sequence[VersionRecord], after: int, to: int) -> Changes | None:
    """Return the changes after version `after` up to `to`; None if the history does not have them
    all.
    """
    records = [record for record in history if after < record.version <= to]
    if [record.version for record in records] != list(range(after + 1, to + 1)):
        return None
    changes = Changes()
    for record in records:
        if _RESET in record.changes or _RESTORED in record.changes:
            changes = Changes(reset=True, restored=_RESTORED in record.changes)
        added = (*changes.added, *record.added)
        changes = Changes(added, changes.reset, changes.restored)
    return changes
