"""Choose the partitions that a planning looks at: a commit changes few, so most need no look.

The planning of a change looks at the partitions that changed. The planning of a sweep also looks at
a part of all others, in turn, so it finds what a crash, a limit of jobs or a changed property has
left. A table with few partitions is always planned whole.
"""

from __future__ import annotations

from collections.abc import Iterable

from dormouse.jobs.retry_policy import SWEEP_SECONDS
from dormouse.model.state import TableState
from dormouse.stored.crc32 import crc32

LOOKED_AT_ONCE = 4096
"""About how many partitions a planning looks at besides those that changed: a CPU second."""
_TURN_MS = SWEEP_SECONDS * 1000


def partitions_to_plan(
    state: TableState, swept_ms: int | None = None, at_once: int = LOOKED_AT_ONCE
) -> Iterable[str]:
    """Return the partitions to look at; with `swept_ms`, the time of a sweep, also its part.

    Those that changed are those that differ from the base of the state, which is its newest
    snapshot or increment. Only a planning writes one, before it plans what changed since the last.

    Example: of 10,000 partitions a sweep looks at some third. Three sweeps, one after the other,
    look at all.
    """
    references = state.references
    if len(references) <= at_once:
        return references
    changed = {partition for partition in references.changes if partition in references}
    if swept_ms is not None:
        parts = -(-len(references) // at_once)
        part = swept_ms // _TURN_MS % parts
        changed.update(p for p in references if crc32(p.encode()) % parts == part)
    return changed
