"""administer: a request about a whole table → done once, or refused with the reason.

Each is finished by its redelivery if it was cut off, and done once whatever the deliveries: a
finished request is remembered by its id. What each does is in `stages.requests`.
"""

from __future__ import annotations

from dormouse.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from dormouse.messages import Outgoing
from dormouse.ports import NO_TABLE, Services
from dormouse.requests import (
    AdminRequest,
    AlterSchema,
    CreateTable,
    DeleteTable,
    PurgeRows,
    Redrive,
    ReinitialiseTable,
    RenameTable,
    SetDefaults,
    SetOnline,
    SetProperties,
    replies,
)
from dormouse.stages.requests.alter_schema import alter_schema
from dormouse.stages.requests.create_table import create_table
from dormouse.stages.requests.delete_table import delete_table
from dormouse.stages.requests.purge_rows import purge_rows
from dormouse.stages.requests.redrive import redrive
from dormouse.stages.requests.reinitialise_table import reinitialise_table
from dormouse.stages.requests.rename_table import rename_table
from dormouse.stages.requests.set_online import set_online
from dormouse.stages.requests.set_properties import set_defaults, set_properties
from dormouse.stages.tracking import record

INSTANCE_NAME = "(instance)"
"""The subject of a request about no table."""


def administer(services: Services, request: AdminRequest) -> list[Outgoing]:
    """Do what is asked, or record why not.

    Raises:
        InvalidRequestError: what is asked makes no sense, or not for this table.
        AlreadyExistsError: what is to be made exists.
        NotFoundError: no table of that name exists.
    """
    earlier = services.tracker.get(NO_TABLE, request.request_id)
    if earlier is not None and earlier.state == "finished":
        return replies(request)
    kind = type(request).__name__
    subject = _subject(request)
    try:
        messages = _perform(services, request)
    except (InvalidRequestError, AlreadyExistsError, NotFoundError) as error:
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


def _perform(services: Services, request: AdminRequest) -> list[Outgoing]:
    match request:
        case AlterSchema():
            alter_schema(services, request)
        case CreateTable():
            create_table(services, request)
        case DeleteTable():
            delete_table(services, request)
        case Redrive():
            redrive(services, request)
        case SetOnline():
            return set_online(services, request)
        case RenameTable():
            rename_table(services, request)
        case ReinitialiseTable():
            return reinitialise_table(services, request)
        case SetProperties():
            return set_properties(services, request)
        case SetDefaults():
            set_defaults(services, request)
        case PurgeRows():
            return purge_rows(services, request)
    return []
