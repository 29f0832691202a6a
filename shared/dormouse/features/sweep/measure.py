"""measure: publish the metrics of a table, on a schedule. Only reads the table."""

from __future__ import annotations

from dormouse.features.publishing.lag import lag_ms
from dormouse.features.sweep.table_metrics import state_metrics
from dormouse.messages.stages import OutboundMessage
from dormouse.model.jobs.metrics import Metric
from dormouse.ports.services import Services
from dormouse.tables.published import is_published
from dormouse.tables.table import Table


def measure(services: Services, table: Table) -> list[OutboundMessage]:
    """Publish the metrics of a table; return no messages."""
    if not table.deleting:
        services.metrics.emit(table.name, current_metrics(services, table))
    return []


def current_metrics(services: Services, table: Table) -> dict[Metric, float]:
    """Return the metrics of a table now."""
    store = services.store(table)
    state = store.current()
    metrics = state_metrics(state, services.clock.now_ms(), store.log_length())
    if is_published(table.properties):
        metrics[Metric.ICEBERG_LAG_SECONDS] = lag_ms(services, table, state) / 1000
    return metrics
