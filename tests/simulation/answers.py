"""What was asked for is done, or was refused: held against what lies there when all is at rest."""

from __future__ import annotations

from msgspec import UNSET

from dormouse.features.export import export_id_of, load_manifest
from dormouse.features.purge import purge_id_of
from dormouse.features.requests import request_key
from dormouse.messages.requests import (
    AdminRequest,
    AlterSchema,
    CreateTable,
    DeleteTable,
    ExportRows,
    PurgeRows,
    ReinitialiseTable,
    RenameTable,
    Reply,
    RestoreVersion,
    SetOnline,
    SetProperties,
)
from dormouse.messages.stages import decode
from dormouse.state.jobs import JobRecord
from dormouse.stored.paths import REPLIES
from dormouse.tables.table import Table
from tests.simulation.event_log import Violation
from tests.simulation.instance import Instance
from tests.simulation.simulation import Simulation
from tests.simulation.workload import table_id_of

OVER = ("accepted", "finished", "failed", "refused")


def check_answers(simulation: Simulation) -> None:
    """Check that each request was answered, and that those reported as finished had their effect.

    Raises:
        Violation: one was not, or did not.
    """
    instance = simulation.instance
    answered = _answered(instance)
    for request in simulation.workload.asked:
        found = _job_record(instance, request.request_id)
        if found is None or found.state not in OVER:
            raise Violation(f"{request} was not answered: {found}")
        if request.reply and request.request_id not in answered:
            raise Violation(f"{request} has no last reply, and its record says {found.state}")
        if found.state == "refused" and not found.reason:
            raise Violation(f"{request} was refused without a reason")
        if found.state in ("accepted", "finished") and not _is_done(simulation, request):
            raise Violation(f"{request} is recorded as {found.state}, and did nothing")


def _answered(instance: Instance) -> set[str]:
    """Return the ids of the requests whose last reply was sent."""
    replies = [decode(waiting.body, Reply) for waiting in instance.queues.messages[REPLIES]]
    return {reply.request_id for reply in replies if reply.outcome != "accepted"}


def _job_record(instance: Instance, request_id: str) -> JobRecord | None:
    """Return the last record of a request, under its table or under none."""
    found = [
        result for (_, job_id), result in instance.tracker.latest.items() if job_id == request_id
    ]
    return max(found, key=lambda result: result.updated_ms, default=None)


def _is_done(simulation: Simulation, request: AdminRequest) -> bool:
    """Return whether a request had its effect; that of some leaves no trace which must be there."""
    instance = simulation.instance
    became = instance.tables.became.get(request.request_id)
    match request:
        case CreateTable():
            return table_id_of(request.request_id) in instance.tables.created
        case DeleteTable():
            bound = instance.tracker.bound.get(request_key(request))
            return bound is not None and bound not in instance.tables.by_id
        case PurgeRows():
            return purge_id_of(request.request_id) in simulation.watch.begun
        case ExportRows():
            return _is_exported(instance, request)
        case AlterSchema() | ReinitialiseTable() | RenameTable() | SetOnline() | SetProperties():
            return became is not None and _is_as_asked(request, became)
        case RestoreVersion():
            return became is not None and bool(became.restored)
        case _:
            return True


def _is_as_asked(request: AdminRequest, became: Table) -> bool:
    """Return whether a table has become what a request wants."""
    match request:
        case AlterSchema():
            there = {field.name for field in became.schema.fields}
            added = {str(field["name"]) for field in request.add}
            return (added | set(request.rename.values())) <= there and not (
                {*request.drop, *request.rename} & there
            )
        case ReinitialiseTable():
            is_new = request.schema is not UNSET
            replaces = bool(request.split_points) or request.delete_partitions
            return (
                bool(became.tree) == replaces  # the row keys are always of the same types
                and (became.schema_generation == became.generation > 0) == is_new
            )
        case RenameTable():
            return became.name == request.new_name
        case SetOnline():
            return became.online == request.online
        case SetProperties():
            put = request.properties.items() <= became.settings.items()
            return put and not set(request.unset) & became.settings.keys()
        case _:
            return True


def _is_exported(instance: Instance, request: ExportRows) -> bool:
    """Return whether an export is whole, or failed for a reason, or went with its table."""
    export_id = export_id_of(request.request_id)
    manifest = load_manifest(instance.results, request.to)
    if manifest is not None:
        return manifest.export == export_id
    for (table_id, job_id), found in instance.tracker.latest.items():
        if job_id == export_id:
            is_gone = table_id not in instance.tables.by_id
            return is_gone or (found.state == "failed" and bool(found.reason))
    return False
