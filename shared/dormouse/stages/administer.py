"""administer: a request about a whole table → done once, or refused with the reason.

Each is finished by its redelivery if it was cut off, and done once whatever the deliveries: a
finished request is remembered by its id. What each does is in `stages.requests`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dormouse.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from dormouse.messages import Outgoing
from dormouse.ports import NO_TABLE, Services
from dormouse.requests import (
    AdminRequest,
    AlterSchema,
    CollectGarbage,
    CompactTable,
    CreateTable,
    DeleteTable,
    ExportRows,
    IngestFiles,
    PurgeRows,
    Redrive,
    ReinitialiseTable,
    RenameTable,
    Request,
    SetDefaults,
    SetOnline,
    SetProperties,
    SplitPartitions,
    replies,
)
from dormouse.stages.requests.alter_schema import alter_schema
from dormouse.stages.requests.collect_garbage import collect_garbage
from dormouse.stages.requests.compact_table import compact_table
from dormouse.stages.requests.create_table import create_table
from dormouse.stages.requests.delete_table import delete_table
from dormouse.stages.requests.export_rows import export_rows
from dormouse.stages.requests.ingest_files import ingest_files
from dormouse.stages.requests.purge_rows import purge_rows
from dormouse.stages.requests.redrive import redrive
from dormouse.stages.requests.reinitialise_table import reinitialise_table
from dormouse.stages.requests.rename_table import rename_table
from dormouse.stages.requests.set_online import set_online
from dormouse.stages.requests.set_properties import set_defaults, set_properties
from dormouse.stages.requests.split_partitions import split_partitions
from dormouse.stages.tracking import record

INSTANCE_NAME = "(instance)"
"""The subject of a request about no table."""

VERBS: Mapping[type[Request], Callable[..., list[Outgoing] | None]] = {
    AlterSchema: alter_schema,
    CollectGarbage: collect_garbage,
    CompactTable: compact_table,
    CreateTable: create_table,
    DeleteTable: delete_table,
    ExportRows: export_rows,
    IngestFiles: ingest_files,
    PurgeRows: purge_rows,
    Redrive: redrive,
    ReinitialiseTable: reinitialise_table,
    RenameTable: rename_table,
    SetDefaults: set_defaults,
    SetOnline: set_online,
    SetProperties: set_properties,
    SplitPartitions: split_partitions,
}
"""What does each kind of request; some have messages that follow from it."""


def administer(services: Services, request: AdminRequest) -> list[Outgoing]:
    """Do what is asked, or record why not.

    Raises:
        InvalidRequestError: what is asked makes no sense, or not for this table.
        AlreadyExistsError: what is to be made exists.
        NotFoundError: no table of that name exists.
    """
    earlier = services.tracker.get(NO_TABLE, request.request_id)
    is_finished = earlier is not None and earlier.state == "finished"
    if is_finished and not isinstance(request, IngestFiles | SplitPartitions):
        return replies(request)  # of those two, nobody else sends the messages if they were lost
    kind = type(request).__name__
    subject = _subject(request)
    try:
        messages = VERBS[type(request)](services, request) or []
    except (InvalidRequestError, AlreadyExistsError, NotFoundError) as error:
        if is_finished:  # nothing is left to do of it
            return replies(request)
        record(
            services,
            NO_TABLE,
            request.request_id,
            kind,
            "refused",
            subject=subject,
            reason=error.explanation,
        )
        raise
    record(services, NO_TABLE, request.request_id, kind, "finished", subject=subject)
    return [*messages, *replies(request)]


def _subject(request: AdminRequest) -> str:
    match request:
        case Redrive():
            return request.queue
        case SetDefaults():
            return INSTANCE_NAME
        case _:
            return request.name
