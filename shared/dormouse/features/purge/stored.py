"""Save, load and delete the stored state of running purges."""

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
from dormouse.ports.services import Services
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
        CorruptDataError: the stored request is damaged.
    """
    path = purge_path(table_id, purge_id)
    try:
        return decode_request(services.storage.get(path), path)
    except NotFoundError:
        return None


def load_matches(services: Services, table_id: str, purge_id: str) -> ShardMatches:
    """Return the shard matches that the steps of a purge have saved.

    A damaged object is skipped: the shards in it are checked again.
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
    """Save the shards that a step has checked, for later steps."""
    path = purge_matches_path(table_id, purge_id, services.ids.new())
    services.storage.put(path, encode_matches(found, path))


def delete_purge(services: Services, table_id: str, purge_id: str) -> None:
    """Delete the stored state of a purge; its request last, so that a redelivery finds the rest."""
    matches = services.storage.list(purge_matches_prefix(table_id, purge_id))
    paths = [stored.path for stored in matches]
    if paths:
        services.storage.delete(paths)
    services.storage.delete([purge_path(table_id, purge_id)])


def list_purges(services: Services, table_id: str) -> tuple[dict[str, int], list[str]]:
    """Return the running purges, mapped to when they were requested, and the paths of leftovers.

    A step that is still running when another finishes the purge leaves shard matches behind.
    """
    requested_ms: dict[str, int] = {}
    matches: list[tuple[str, str]] = []
    for stored in services.storage.list(purge_prefix(table_id)):
        purge_id, is_request = parse_purge_path(stored.path)
        if is_request:
            requested_ms[purge_id] = stored.modified_ms
        else:
            matches.append((purge_id, stored.path))
    return requested_ms, [path for purge_id, path in matches if purge_id not in requested_ms]
