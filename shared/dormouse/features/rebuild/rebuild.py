"""rebuild: a table's state from the footers of its shards alone, after the state was lost.

Order: the registry notes the id of the new log, so that a deletion finds it whatever becomes of the
rebuild; the old log is closed, so that no commit can land that would be missed, and no generation
begin that the registry, read after that, does not count; then the shards are
listed and the new state is committed to a log of its own and read back; then the registry names the
new log. A crash before that leaves a table that can be rebuilt again; what was in flight comes
again, and goes to the new log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from dormouse.errors import ContendedError, CorruptDataError, InvariantError, NotFoundError
from dormouse.features.ingest.seal_sources import load_segments
from dormouse.features.rebuild.rebuilding import (
    FoundShard,
    RebuildPlan,
    Refusal,
    plan_rebuild,
    rebuilt,
    transactions,
)
from dormouse.messages import OutboundMessage, TableChanged
from dormouse.model.shards import Shard
from dormouse.model.state import TableState
from dormouse.model.transactions import ResetTable
from dormouse.ports import Services, StoredObject
from dormouse.shards.footer import FOOTER_READ_THREADS, read_footer
from dormouse.shards.run_markers import read_run_markers
from dormouse.state_store import Rejected, StateStore
from dormouse.stored.paths import data_prefix, shard_id_of
from dormouse.tables.table import Table

Progress = Callable[[int, int], None]
"""Is told how many shards were looked at, of how many."""

REASONS_TOLD = 20
HINT = "bring back, or move out of the data prefix, what is wrong among them; nothing was changed"


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What a rebuild makes, or would make: the state, and what is left out of it, and why."""

    state: TableState
    left_out: tuple[tuple[str, str], ...]


def preview(services: Services, table: Table, watch: Progress | None = None) -> Rebuilt:
    """Return what a rebuild would make of the table now; nothing is changed.

    Raises:
        CorruptDataError: the shards contradict each other, or some cannot be read; it says which.
    """
    plan = _plan(services, table, watch)
    return Rebuilt(rebuilt(plan, services.clock.now_ms()), plan.left_out)


def rebuild(
    services: Services, table: Table, watch: Progress | None = None
) -> tuple[Rebuilt, list[OutboundMessage]]:
    """Rebuild the state of the table, and replace what is left of the old one.

    Raises:
        CorruptDataError: the shards contradict each other, or some cannot be read; it says which.
        ContendedError: the table was rebuilt by somebody else meanwhile.
        NotFoundError: it is deleted, or being deleted.
        InvariantError: what was written is not what was to be; the table still has no state.
    """
    _plan(services, table, watch)  # before the old state is destroyed: the rebuild may be refused
    log = services.ids.new()
    services.tables.change(table.id, lambda newest: _with_new_log(newest, table, log))
    services.store(table).terminate()
    closed = _registered(services, table)
    plan = _plan(services, closed, watch)
    store = services.store(replace(closed, log=log))
    expected = _commit(store, plan, services.clock.now_ms())
    store.reopen()
    if (difference := _difference(expected, store.current())) is not None:
        store.destroy()
        raise InvariantError(f"the new state of table {table.name!r} has other {difference}")
    try:
        services.tables.change(table.id, lambda newest: _with_log(newest, table, log))
    except (ContendedError, NotFoundError):
        store.destroy()
        raise
    services.store(table).destroy()
    return Rebuilt(expected, plan.left_out), [
        OutboundMessage("table-changes", TableChanged(table.id))
    ]


def _registered(services: Services, table: Table) -> Table:
    newest = services.tables.get(table.id)
    if newest is None:
        raise NotFoundError(f"table {table.name!r} was deleted")
    return newest


def _with_new_log(newest: Table, known: Table, log: str) -> Table:
    """Return the table with a log noted that is begun for it."""
    return replace(_with_log(newest, known, known.log), logs=(*newest.logs, log))


def _with_log(newest: Table, known: Table, log: str) -> Table:
    if newest.log == known.log:
        return replace(newest, log=log)
    raise ContendedError(
        f"table {known.name!r} was rebuilt by somebody else meanwhile",
        hint="look at it, and rebuild it again if that is still needed",
    )


def _commit(store: StateStore, plan: RebuildPlan, now_ms: int) -> TableState:
    """Commit the plan to an empty log; give the state it is to make."""
    expected = rebuilt(plan, now_ms)
    generation = 0
    for transaction in transactions(plan):
        (outcome,) = store.commit(transaction, generation=generation)
        if isinstance(transaction, ResetTable):
            generation = transaction.generation
        if isinstance(outcome, Rejected):
            raise InvariantError(f"a rebuild was rejected: {outcome}")
    return expected


def _difference(expected: TableState, found: TableState) -> str | None:
    """Say in what the states differ, versions and times left aside; None if in nothing."""
    if found.partitions.by_id != expected.partitions.by_id:
        return "partitions"
    if found.shards != expected.shards:
        return "shards"
    if found.references != expected.references:
        return "references"
    if found.all_source_segments != expected.all_source_segments:
        return "sealed sources"
    return None if set(found.sources) == set(expected.sources) else "sources"


def _plan(services: Services, table: Table, watch: Progress | None) -> RebuildPlan:
    listed = list(services.storage.list(data_prefix(table.id)))
    stored = [o for o in listed if shard_id_of(o.path) is not None]
    strangers = tuple((o.path, "it is no shard") for o in listed if shard_id_of(o.path) is None)
    # Before the shards: what a note speaks of must not be collected in between.
    notes = read_run_markers(services.storage, table.id)
    segments, lost = load_segments(services, table)
    found, reasons = _read(services, table, stored, watch)
    reasons += lost
    plan: RebuildPlan | Refusal = (
        Refusal(tuple(reasons))
        if reasons
        else plan_rebuild(found, table.schema.key_types, notes, table.generation)
    )
    if isinstance(plan, Refusal):
        told = "; ".join(plan.reasons[:REASONS_TOLD])
        raise CorruptDataError(f"table {table.name!r} cannot be rebuilt: {told}", hint=HINT)
    return replace(plan, left_out=plan.left_out + strangers, segments=segments)


def _read(
    services: Services, table: Table, stored: Sequence[StoredObject], watch: Progress | None
) -> tuple[list[FoundShard], list[str]]:
    """Read all footers; give the shards, and what is wrong with any."""

    def read(stored: StoredObject) -> FoundShard | str | None:
        return _found(services, table, stored)

    found: list[FoundShard] = []
    reasons: list[str] = []
    with ThreadPoolExecutor(FOOTER_READ_THREADS) as pool:
        for done, result in enumerate(pool.map(read, stored), start=1):
            if isinstance(result, str):
                reasons.append(result)
            elif result is not None:
                found.append(result)
            if watch is not None:
                watch(done, len(stored))
    return found, reasons


def _found(services: Services, table: Table, stored: StoredObject) -> FoundShard | str | None:
    """Return a shard, or what is wrong with it; None if it was collected just now."""
    try:
        footer = read_footer(services.storage, stored.path, stored.size_bytes)
    except NotFoundError:
        return None
    except CorruptDataError as error:
        return error.explanation
    if (footer.table_id, footer.shard_id) != (table.id, shard_id_of(stored.path)):
        return f"{stored.path} is shard {footer.shard_id} of table {footer.table_id}"
    shard = Shard(footer.shard_id, footer.rows, stored.size_bytes, footer.min_key, footer.max_key)
    return FoundShard(shard, footer.origin)
