"""What is kept of the purges that are not finished: read and deleted here, by every stage."""

from __future__ import annotations

from dormouse.errors import NotFoundError
from dormouse.model.names import purge_path, verdict_path, verdict_prefix
from dormouse.model.purges import (
    PurgeRequest,
    Verdicts,
    decode_request,
    decode_verdicts,
    encode_verdicts,
)
from dormouse.ports import Services


def purge_request(services: Services, table_id: str, purge_id: str) -> PurgeRequest | None:
    """Give the request of a purge; None if the purge is finished.

    Raises:
        CorruptDataError: what is kept of it is damaged.
    """
    path = purge_path(table_id, purge_id)
    try:
        return decode_request(services.storage.get(path), path)
    except NotFoundError:
        return None


def known_verdicts(services: Services, table_id: str, purge_id: str) -> Verdicts:
    """Give all that the steps of a purge found out so far.

    Raises:
        CorruptDataError: a part of it is damaged.
    """
    known = Verdicts()
    for stored in services.storage.list(verdict_prefix(table_id, purge_id)):
        try:
            body = services.storage.get(stored.path)
        except NotFoundError:  # another delivery finished the purge just now
            continue
        known |= decode_verdicts(body, stored.path)
    return known


def keep_verdicts(services: Services, table_id: str, purge_id: str, found: Verdicts) -> None:
    """Keep what a step found out, for the steps to come."""
    path = verdict_path(table_id, purge_id, services.ids.new())
    services.storage.put(path, encode_verdicts(found))


def forget_purge(services: Services, table_id: str, purge_id: str) -> None:
    """Delete all that is kept of a purge; its request last, so that a redelivery finds the rest."""
    verdicts = services.storage.list(verdict_prefix(table_id, purge_id))
    paths = [stored.path for stored in verdicts]
    if paths:
        services.storage.delete(paths)
    services.storage.delete([purge_path(table_id, purge_id)])
