"""Queries that have not ended in time, which a sweep continues; and what ended ones left.

The pins of a table name the queries that read it: a pin is put before anything else, and removed
after all else, also when it has expired. So no listing of results is needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.features.queries.pinning import query_of
from dormouse.features.queries.stored import (
    delete_parts,
    done_tasks,
    load_end,
    load_query,
    task_messages,
)
from dormouse.jobs.sweep_check import SweepCheck
from dormouse.messages.stages import OutboundMessage
from dormouse.model.versions.pins import Pin

FUNCTION_MS = 15 * 60 * 1000
"""How long a function may still be at work on a query that is not stored yet, or has ended; none
runs for longer."""


def overdue_queries(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield messages of queries that are due; delete the parts of queries without a result, and
    the pins of all that ended.
    """
    pins = check.services.store(check.table).pins
    for pin in pins.all(expired=True):
        query_id = query_of(pin)
        if query_id is not None:
            with check.going_on():
                yield from _followed(check, pin, query_id)


def _followed(check: SweepCheck, pin: Pin, query_id: str) -> list[OutboundMessage]:
    services = check.services
    results, now_ms = services.results, services.clock.now_ms()
    end = load_end(results, query_id)
    if end is not None:
        if end.state != "finished":
            delete_parts(results, query_id)
            if now_ms < end.ended_ms + FUNCTION_MS:  # an attempt may still write: look again then
                return []
        services.store(check.table).pins.remove(pin.owner)
        return []
    query = load_query(results, query_id)
    if query is None:
        if pin.pinned_ms < now_ms - FUNCTION_MS:  # its message is dead, or was never sent
            services.store(check.table).pins.remove(pin.owner)
        return []
    if now_ms < query.deadline_ms and not check.is_due(query.begun_ms):
        return []
    return task_messages(query, done_tasks(results, query))
