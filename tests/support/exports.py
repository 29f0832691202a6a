"""Exports as a request would begin them."""

from __future__ import annotations

from msgspec.structs import replace

from dormouse.features.export import EXPORT, ExportRequest, parts_of
from dormouse.features.long_jobs import ReadTable
from dormouse.query.selection import Selection, plan_tasks
from dormouse.stored.paths import EXPORTS
from dormouse.tables.table import Table
from tests.support.world import World


def begin_export(world: World, table: Table, export_id: str, to: str, selection: Selection) -> None:
    """Save an export of the newest state and its tasks, and send nothing."""
    export = ExportRequest(export_id, to, ReadTable.of(table, selection), cut="1")
    tasks = plan_tasks(world.state(table), selection.ranges)
    export = replace(export, tasks=parts_of(world.storage, export).save(tasks))
    assert EXPORT.put(world.storage, EXPORTS.path(table.id, export_id), export)
