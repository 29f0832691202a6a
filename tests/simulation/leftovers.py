"""What is left of states: of those of tables that are gone, and of what no version needs any more.

Shared by the simulation and the crash points. The head of a log that is closed stays for good.
"""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.items.blobs import Kind
from dormouse.log.engine import StateStore
from dormouse.log.pages import version_before
from dormouse.state.state import DAY_MS
from dormouse.stored.paths import RESTORED, SOURCES, blob_prefix, state_prefix
from dormouse.tables.table import Table
from tests.simulation.instance import Instance


def left_of_gone(instance: Instance, table_id: str) -> Iterator[str]:
    """Return what is left of a table that is gone, wherever it lies; its tombstone stays for
    good."""
    for stored in instance.storage.list(f"{table_id}/"):
        yield stored.path
    for name, hash_key, range_key in instance.dynamodb.kept:
        if _is_of(hash_key.partition("#")[0], table_id):
            yield f"item {range_key} under {hash_key} of {name}"
    logs = {s: log for s, log in instance.pages.logs.items() if _is_of(s, table_id)}
    for state_id, log in logs.items():
        if not log.head.closed:
            yield f"a log, {state_id}, that is not closed"
        elif log.pages:
            yield f"pages {sorted(log.pages)} of the log {state_id}"
    if instance.publications.get(table_id) is not None:
        yield "a record of what is published"
    if instance.tables.tombstone(table_id) is None:
        yield "no tombstone"


def _is_of(state_id: str, table_id: str) -> bool:
    """Return whether a state is one of those that a table had."""
    return state_id.partition("/")[0] == table_id


def left_in_state(instance: Instance, table: Table) -> Iterator[str]:
    """Return what lies in the state of a table though nothing refers to it, after a collection.

    A collection that died is made up for by the next, which a table that rests may not need: so
    one is done here. All it must have taken is below its low-water mark.
    """
    store = instance.worker("collector").wiring.services.store(table)
    assert isinstance(store, StateStore)
    reader = store.reader
    if not store._collector.collect():
        yield "a collection with nobody at work was too late"
    head = reader.log.head()
    assert head is not None
    named = {
        *reader.log.ids_after(version_before(head.manifest.covered_pages)),
        *(each.id for each in (*head.manifest.segments, *head.manifest.snapshots)),
        *(each.id for each in head.manifest.increments),
        *(restored for segment in head.manifest.segments for restored in segment.restores),
    }
    for kind in ("delta", "segment", "snapshot"):
        for each in blobs_of(instance, table, kind):
            if each not in named and each < head.low_water_mark:
                yield f"{kind} {each} is in the state of {table.name} for nothing"
    yield from (f"pin {pin} is left" for pin in instance.pages.pins.all(table.state_id))
    yield from _strange(instance, table)


def blobs_of(instance: Instance, table: Table, kind: Kind) -> list[str]:
    """Return the ids of the blobs of a kind that there are of a table."""
    if not _in_objects(instance, table) or (instance.in_folder and kind == "delta"):
        found = {
            i for _, k, i in instance.dynamodb.kept if k.startswith(f"{table.state_id}#{kind}#")
        }
        return sorted({range_key.partition("#")[0] for range_key in found})
    prefix = f"{state_prefix(table.state_id)}{kind}s/"
    paths = (stored.path for stored in instance.storage.list(prefix))
    return [path.rpartition("/")[2].partition(".")[0] for path in paths]


def _in_objects(instance: Instance, table: Table) -> bool:
    """Return whether the blobs of a table are objects, as those of a folder are but for deltas."""
    return instance.in_folder or table.properties.state_store == "s3"


def _strange(instance: Instance, table: Table) -> Iterator[str]:
    """Return the objects that are no part of a state, where it is kept."""
    on_s3 = _in_objects(instance, table)
    parts = tuple(blob_prefix(table.id, kind) for kind in ("delta", "segment", "snapshot"))
    state = instance.worker("collector").wiring.services.store(table).current()
    sealed = {SOURCES.path(table.id, segment.id) for segment in state.all_source_segments}
    sealed.add(RESTORED.path(table.id, table.restored))
    young_ms = instance.clock.now_ms() - table.properties.orphan_age_seconds * 1000 - DAY_MS
    for stored in instance.storage.list(state_prefix(table.id)):
        is_left = stored.path.startswith(SOURCES.prefix(table.id)) and stored.modified_ms > young_ms
        is_part = stored.path in sealed or (on_s3 and stored.path.startswith(parts))
        if not is_part and not is_left:
            yield f"{stored.path} is no part of the state"
