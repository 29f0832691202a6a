"""administer: a request about a whole table → done once, or refused with the reason.

Each is finished by its redelivery if it was cut off, and done once whatever the deliveries: a
finished request is remembered by its id. What each does is in `stages.requests`.
"""

from __future__ import annotations

from dormouse.errors import AlreadyExistsError, InvalidRequestError, NotFoundError
from dormouse.messages import AdminRequest, CreateTable, DeleteTable, Outgoing, PurgeRows, SetOnline
from dormouse.ports import NO_TABLE, Services
from dormouse.stages.requests.create_table import create_table
from dormouse.stages.requests.delete_table import delete_table
from dormouse.stages.requests.purge_rows import purge_rows
from dormouse.stages.requests.set_online import set_online
from dormouse.stages.tracking import record


def administer(services: Services, request: AdminRequest) -> list[Outgoing]:
    """Do what is asked, or record why not.

    Raises:
        InvalidRequestError: what is asked makes no sense, or not for this table.
        AlreadyExistsError: what is to be made exists.
        NotFoundError: no table of that name exists.
    """
    earlier = services.tracker.get(NO_TABLE, request.request_id)
    if earlier is not None and earlier.state == "finished":
        return []
    kind = type(request).__name__
    try:
        messages = _perform(services, request)
    except (InvalidRequestError, AlreadyExistsError, NotFoundError) as error:
        record(
            services,
            NO_TABLE,
            request.request_id,
            kind,
            "refused",
            subject=request.name,
            reason=error.explanation,
        )
        raise
    record(services, NO_TABLE, request.request_id, kind, "finished", subject=request.name)
    return messages


def _perform(services: Services, request: AdminRequest) -> list[Outgoing]:
    match request:
        case CreateTable():
            create_table(services, request)
        case DeleteTable():
            delete_table(services, request)
        case SetOnline():
            return set_online(services, request)
        case PurgeRows():
            return purge_rows(services, request)
    return []
