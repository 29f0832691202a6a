"""Requests without a reply, which a sweep follows again."""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.features.administration.stored_requests import unfinished_requests
from dormouse.features.export.stored import delete_all
from dormouse.jobs.sweep_check import SweepCheck
from dormouse.messages.stages import OutboundMessage, RequestStep


def overdue_requests(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield a step for each request without a reply that is due; delete obsolete replies."""
    now_ms = check.services.clock.now_ms()
    stored_ms, expired = unfinished_requests(check.services, check.table.id, now_ms)
    delete_all(check.services, expired)
    for key, time_ms in sorted(stored_ms.items()):
        if check.is_due(time_ms):
            yield OutboundMessage("admin", RequestStep(check.table.id, key, begun_ms=now_ms))
