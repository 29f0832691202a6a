"""Exports that have not ended in time, which a sweep continues."""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.errors import CorruptDataError
from dormouse.features.export.stored import (
    delete_all,
    export_messages,
    list_exports,
    load_export,
    task_messages,
    unfinished_tasks,
)
from dormouse.jobs.sweep_check import SweepCheck
from dormouse.messages.stages import OutboundMessage
from dormouse.ports.services import Services
from dormouse.tables.table import Table


def overdue_exports(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield messages of exports that are due; delete the objects that finished exports left."""
    services, table = check.services, check.table
    oldest_ms = services.clock.now_ms() - table.properties.job_retry_seconds * 1000
    begun_ms, leftovers = list_exports(services, table.id, oldest_ms)
    delete_all(services, leftovers)
    for export_id in sorted(begun_ms.keys() - check.with_spark):
        if check.is_due(begun_ms[export_id]):
            try:
                yield from _remaining_tasks(services, table, export_id)
            except CorruptDataError as error:
                check.damaged.append(error)


def _remaining_tasks(services: Services, table: Table, export_id: str) -> list[OutboundMessage]:
    """Return the unfinished tasks of an export; if there are none, one task, which finishes it."""
    export = load_export(services, table.id, export_id)
    if export is None:
        return []
    if export.spark:
        return export_messages(export)
    return task_messages(export, unfinished_tasks(services, export) or [0])
