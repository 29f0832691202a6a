"""Purges that have not ended in time, which a sweep continues."""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.features.export.stored import delete_all
from dormouse.features.purge.stored import list_purges
from dormouse.jobs.sweep_check import SweepCheck
from dormouse.messages.stages import OutboundMessage, PurgeStep


def overdue_purges(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield a step for each purge that is due; delete the objects that finished purges left."""
    requested_ms, leftovers = list_purges(check.services, check.table.id)
    delete_all(check.services, leftovers)
    now_ms = check.services.clock.now_ms()
    for purge_id, time_ms in sorted(requested_ms.items()):
        if check.is_due(time_ms):
            yield OutboundMessage("purges", PurgeStep(check.table.id, purge_id, now_ms))
