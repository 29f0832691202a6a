"""measure: on a schedule, tell the metrics how a table stands. Reads, and changes nothing."""

from __future__ import annotations

from dormouse.features.sweep.gauges import gauges
from dormouse.messages import OutboundMessage
from dormouse.model.metrics import Metric
from dormouse.ports import Services
from dormouse.tables.table import Table


def measure(services: Services, table: Table) -> list[OutboundMessage]:
    """Emit the levels of a table; nothing follows from it."""
    if not table.deleting:
        services.metrics.emit(table.name, levels(services, table))
    return []


def levels(services: Services, table: Table) -> dict[Metric, float]:
    """Return the levels of a table now."""
    store = services.store(table)
    state = store.current()
    return gauges(state, services.clock.now_ms(), store.log_length())
