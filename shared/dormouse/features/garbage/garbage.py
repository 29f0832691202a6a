"""Choose the shards that may be deleted: those unreferenced for longer than the delay.

The delay must exceed the longest query, since a query reads at the version it began with. Shards of
pinned versions are kept until these are unpinned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dormouse.model.state import DAY_MS, TableState
from dormouse.ports.services import Services
from dormouse.state_store import StateStore
from dormouse.stored.paths import run_of_shard
from dormouse.tables.table import Table

MAX_UPLOAD_MS = DAY_MS
"""An upload that is older is of a run that died; lifecycle rules of the buckets use the same."""


def abandoned_after_ms(table: Table) -> int:
    """Return after how long what was sent of an unfinished upload is deleted.

    It may be short: a run that is alive after all finds its upload gone, and begins it again.
    """
    return min(MAX_UPLOAD_MS, table.properties.orphan_age_seconds * 1000)


def waiting_seconds(state: TableState, shard: str, now_ms: int, delay_seconds: int) -> int:
    """Return for how many more seconds an unreferenced shard must be kept."""
    since_ms = state.unreferenced[shard]
    return max(0, -((now_ms - since_ms - delay_seconds * 1000) // 1000))


def collectable(
    state: TableState, candidates: Iterable[str], now_ms: int, delay_seconds: int
) -> tuple[list[str], list[str]]:
    """Return the candidates that may be deleted now, and those that must wait.

    Shards that are referenced, disputed or unknown are in neither.
    """
    due: list[str] = []
    waiting: list[str] = []
    for shard in sorted(set(candidates)):
        if shard in state.unreferenced and shard not in state.disputed:
            ready = waiting_seconds(state, shard, now_ms, delay_seconds) == 0
            (due if ready else waiting).append(shard)
    return due, waiting


def unpinned(store: StateStore, state: TableState, shards: Iterable[str]) -> list[str]:
    """Return the shards, chosen because of a state, that no pinned version references.

    Call it after `shards` were chosen and before they are deleted: a version that is pinned later
    has none of them (`statestore.pinning`). A restore references shards again, and then removes its
    pin. So the newest state is read once more after the pins: a shard that was referenced since it
    was chosen is kept, even if it is not referenced any more.

    Raises:
        CorruptDataError: a pin is damaged, or the snapshot of one is.
    """
    left = list(shards)
    if left:
        for pinned in store.pins.states():
            left = [shard for shard in left if not pinned.reference_counts.get(shard, 0)]
    if left:
        now = store.current()
        left = [shard for shard in left if _is_as_chosen(shard, state, now)]
    return left


def _is_as_chosen(shard: str, chosen: TableState, now: TableState) -> bool:
    """Return whether a shard has been without references since a state in which it was chosen."""
    is_free = not now.reference_counts.get(shard, 0)
    return is_free and now.unreferenced.get(shard) == chosen.unreferenced.get(shard)


def unpublished(
    services: Services, table: Table, state: TableState, shards: list[str]
) -> list[str]:
    """Return those of a state's unreferenced shards that no reader of Iceberg may need.

    Call it after `shards` were chosen and before they are deleted: what is published later has none
    of them (`features.publishing.publish_iceberg`).

    Raises:
        CorruptDataError: the record of what is published is damaged.
    """
    record = services.publications.get(table.id) if shards else None
    if record is None:
        return shards
    oldest_ms = services.clock.now_ms() - table.properties.gc_delay_seconds * 1000
    return record.unneeded(table.state_id, state, shards, oldest_ms)


def is_following(services: Services, table: Table, state: TableState) -> bool:
    """Return whether all that readers of Iceberg may need is in this state or was.

    It is not for a while after a rebuild: the state before may have had other shards.
    """
    record = services.publications.get(table.id)
    if record is None:
        return True
    oldest_ms = services.clock.now_ms() - table.properties.gc_delay_seconds * 1000
    found = record.found_at(oldest_ms)
    return found is not None and (
        not found.metadata
        or (found.state_id, found.generation) == (table.state_id, state.generation)
    )


def orphans(state: TableState, modified_ms: Mapping[str, int], oldest_ms: int) -> list[str]:
    """Return the stored shards, by the times they were written, that no commit can need.

    The shards of a run are orphans together, once all were written at `oldest_ms` or before. The
    outputs of a job that is still assigned are none: its next run can adopt them, however old they
    are.
    """
    runs: dict[str, list[str]] = {}
    for shard in modified_ms:
        run, _ = run_of_shard(shard)
        if shard not in state.shards and run not in state.jobs:
            runs.setdefault(run, []).append(shard)
    return [
        shard
        for found in runs.values()
        if max(modified_ms[shard] for shard in found) <= oldest_ms
        for shard in found
    ]
