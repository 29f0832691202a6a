"""Objects that may hold purged rows until garbage collection deletes them.

No query reads them any more. They are listed once, when the purge is finished, and the list is
saved beside the request.
"""

from __future__ import annotations

import msgspec

from dormouse.features.publishing.collect_iceberg import list_replaced
from dormouse.features.requests.outcomes import JobCheck
from dormouse.features.requests.request_objects import RequestObject
from dormouse.features.requests.request_paths import request_left_path
from dormouse.ports.services import Services
from dormouse.stored.paths import data_prefix


class _Remaining(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    paths: tuple[str, ...]


_REMAINING = RequestObject(
    "a list of remaining objects",
    _Remaining,
    "delete this object: the next step lists them again",
)


def remaining_objects(check: JobCheck) -> list[str]:
    """Return the paths of objects that no reference needed when the purge finished and still exist.

    The purge has checked every referenced shard, so once these objects are deleted, no object holds
    a row to remove, or its key.
    """
    # Listed before the state is read: a shard committed in between counts as referenced.
    listed = [o.path for o in check.services.storage.list(data_prefix(check.table.id))]
    state = check.services.store(check.table).current()
    unreferenced = [path for path in listed if not state.reference_counts.get(_shard_of(path), 0)]
    unreferenced += list_replaced(check.services, check.table)
    saved = load_remaining(check.services, check.table.id, check.key)
    if saved is None:
        saved = save_remaining(check.services, check.table.id, check.key, tuple(unreferenced))
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
