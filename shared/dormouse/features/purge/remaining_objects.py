"""Objects that may hold purged rows until garbage collection deletes them.

No query reads them any more. They are listed once, when the purge is finished, and the list is
saved beside the request.
"""

from __future__ import annotations

import msgspec

from dormouse.features.requests.outcomes import Look
from dormouse.features.requests.request_objects import Kept
from dormouse.features.requests.request_paths import request_left_path
from dormouse.ports import Services
from dormouse.stored.paths import data_prefix


class _Remaining(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    paths: tuple[str, ...]


_REMAINING = Kept(
    "a list of remaining objects",
    _Remaining,
    "delete this object: the next step lists them again",
)


def remaining_objects(look: Look) -> list[str]:
    """Return the paths of objects that no reference needed when the purge finished and still exist.

    The purge has checked every referenced shard, so once these objects are deleted, no object holds
    a row to remove.
    """
    # Listed before the state is read: a shard committed in between counts as referenced.
    listed = [o.path for o in look.services.storage.list(data_prefix(look.table.id))]
    state = look.services.store(look.table).current()
    unreferenced = [path for path in listed if not state.reference_counts.get(_shard_of(path), 0)]
    saved = load_remaining(look.services, look.table.id, look.key)
    if saved is None:
        saved = save_remaining(look.services, look.table.id, look.key, tuple(unreferenced))
    return sorted({*unreferenced} & {*saved})


def _shard_of(path: str) -> str:
    return path.rpartition("/")[2].removesuffix(".parquet")


def save_remaining(
    services: Services, table_id: str, key: str, paths: tuple[str, ...]
) -> tuple[str, ...]:
    """Save the remaining objects of a purge; return those that were saved first."""
    if _REMAINING.put(services, request_left_path(table_id, key), _Remaining(paths)):
        return paths
    return load_remaining(services, table_id, key) or ()


def load_remaining(services: Services, table_id: str, key: str) -> tuple[str, ...] | None:
    """Return the remaining objects of a purge; None if they are not listed yet.

    Raises:
        CorruptDataError: the stored list is damaged.
    """
    remaining = _REMAINING.get(services, request_left_path(table_id, key))
    return None if remaining is None else remaining.paths
