"""What is kept of the purges that are not finished: read and deleted here, by every stage."""

from __future__ import annotations

from contextlib import suppress

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.features.purge.purge import (
    PurgeRequest,
    ShardMatches,
    decode_matches,
    decode_request,
    encode_matches,
)
from dormouse.ports import Services
from dormouse.stored.paths import (
    parse_purge_path,
    purge_matches_path,
    purge_matches_prefix,
    purge_path,
    purge_prefix,
)


def load_purge(services: Services, table_id: str, purge_id: str) -> PurgeRequest | None:
    """Return the request of a purge; None if the purge is finished.

    Raises:
        CorruptDataError: what is kept of it is damaged.
    """
    path = purge_path(table_id, purge_id)
    try:
        return decode_request(services.storage.get(path), path)
    except NotFoundError:
        return None


def load_matches(services: Services, table_id: str, purge_id: str) -> ShardMatches:
    """Return all that the steps of a purge found out so far, and that can be read.

    What is damaged counts as not found out: its shards are looked at once more.
    """
    known = ShardMatches()
    for stored in services.storage.list(purge_matches_prefix(table_id, purge_id)):
        try:
            body = services.storage.get(stored.path)
        except NotFoundError:  # another delivery finished the purge just now
            continue
        with suppress(CorruptDataError):
            known |= decode_matches(body, stored.path)
    return known


def save_matches(services: Services, table_id: str, purge_id: str, found: ShardMatches) -> None:
    """Keep what a step found out, for the steps to come."""
    path = purge_matches_path(table_id, purge_id, services.ids.new())
    services.storage.put(path, encode_matches(found, path))


def delete_purge(services: Services, table_id: str, purge_id: str) -> None:
    """Delete all that is kept of a purge; its request last, so that a redelivery finds the rest."""
    verdicts = services.storage.list(purge_matches_prefix(table_id, purge_id))
    paths = [stored.path for stored in verdicts]
    if paths:
        services.storage.delete(paths)
    services.storage.delete([purge_path(table_id, purge_id)])


def list_purges(services: Services, table_id: str) -> tuple[dict[str, int], list[str]]:
    """Return the purges that are not finished, with when they were asked for, and what can go.

    The latter are paths: a step that went on when another had finished its purge leaves verdicts.
    """
    requested_ms: dict[str, int] = {}
    verdicts: list[tuple[str, str]] = []
    for stored in services.storage.list(purge_prefix(table_id)):
        purge_id, is_request = parse_purge_path(stored.path)
        if is_request:
            requested_ms[purge_id] = stored.modified_ms
        else:
            verdicts.append((purge_id, stored.path))
    return requested_ms, [path for purge_id, path in verdicts if purge_id not in requested_ms]
