"""The objects that a purge leaves behind for a while: no row of it is found in them any more.

Which these are is listed once, when the purge is finished, and put beside the request.
"""

from __future__ import annotations

import msgspec

from dormouse.features.requests.ends import Look
from dormouse.features.requests.kept import Kept
from dormouse.features.requests.request_names import request_left_path
from dormouse.ports import Services
from dormouse.stored.paths import data_prefix


class _Left(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The objects that a purge leaves behind, by their paths."""

    paths: tuple[str, ...]


_LEFT = Kept("what a purge left", _Left, "delete this object: it is listed once more")


def remaining_objects(look: Look) -> list[str]:
    """Return which objects are there that the table did not need when its purge was finished.

    All that it needed were looked at by the purge, and hold no row of it; so once these are gone,
    no object does. Listed before the state is read, so what is committed meanwhile is none of them.
    """
    listed = [o.path for o in look.services.storage.list(data_prefix(look.table.id))]
    state = look.services.store(look.table).current()
    idle = [path for path in listed if not state.reference_counts.get(_shard_of(path), 0)]
    known = load_remaining(look.services, look.table.id, look.key)
    if known is None:
        known = save_remaining(look.services, look.table.id, look.key, tuple(idle))
    return sorted({*idle} & {*known})


def _shard_of(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".parquet")


def save_remaining(
    services: Services, table_id: str, key: str, paths: tuple[str, ...]
) -> tuple[str, ...]:
    """Keep which objects a purge leaves behind; return those that were kept first."""
    if _LEFT.put(services, request_left_path(table_id, key), _Left(paths)):
        return paths
    return load_remaining(services, table_id, key) or ()


def load_remaining(services: Services, table_id: str, key: str) -> tuple[str, ...] | None:
    """Return which objects a purge left behind; None if nobody has looked yet.

    Raises:
        CorruptDataError: what is kept of that is damaged.
    """
    left = _LEFT.get(services, request_left_path(table_id, key))
    return None if left is None else left.paths
