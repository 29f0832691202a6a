"""What is left of states: of those of tables that are gone, and of what no version needs any more.

Shared by the simulation and the crash points. The head of a log that is closed stays for good.
"""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.model.names import delta_prefix, segment_prefix, snapshot_prefix, state_prefix
from dormouse.model.tables import Table
from dormouse.statestore.engine import LogStateStore
from dormouse.statestore.pages import version_before
from tests.simulation.instance import Instance


def left_of_gone(instance: Instance, table_id: str, gone_ms: int) -> Iterator[str]:
    """Give what is left of the state of a table that is gone.

    What somebody puts who slept when the table was being deleted, at `gone_ms`, nobody looks for.
    """
    for name, items in instance.items.kept.items():
        for hash_key, range_key in items:
            put_ms = instance.items.put_ms[name, hash_key, range_key]
            if hash_key.partition("#")[0] == table_id and put_ms <= gone_ms:
                yield f"item {range_key} under {hash_key} of {name}"
    log = instance.pages._logs.get(table_id)
    if log is None or not log.head.closed:
        yield "a log that is not closed"
    elif log.pages:
        yield f"pages {sorted(log.pages)} of its log"


def left_in_state(instance: Instance, table: Table) -> Iterator[str]:
    """Give what lies in the state of a table though nothing refers to it, after a collection.

    A collection that died is made up for by the next, which a table that rests may not need: so
    one is done here. All it must have taken is below its floor.
    """
    store = instance.worker("collector").wiring.services.store(table)
    assert isinstance(store, LogStateStore)
    reader = store._reader
    if not store._collector.collect():
        yield "a collection with nobody at work was too late"
    head = reader.log.head()
    assert head is not None
    needed = {
        "delta": (reader.deltas, reader.log.ids_after(version_before(head.root.covered_pages))),
        "segment": (reader.segments, [each.id for each in head.root.segments]),
        "snapshot": (reader.snapshots, [each.id for each in head.root.snapshots]),
    }
    for kind, (kept, named) in needed.items():
        for each in sorted(set(kept.ids() if kept else ()) - set(named)):
            if each < head.floor:
                yield f"{kind} {each} is in the state of {table.name} for nothing"
    yield from _strange(instance, table)


def _strange(instance: Instance, table: Table) -> Iterator[str]:
    """Give the objects that are no part of a state, where it is kept."""
    on_s3 = table.properties.state_store == "s3"
    parts = (delta_prefix(table.id), segment_prefix(table.id), snapshot_prefix(table.id))
    for stored in instance.storage.list(state_prefix(table.id)):
        if not (on_s3 and stored.path.startswith(parts)):
            yield f"{stored.path} is no part of the state"
