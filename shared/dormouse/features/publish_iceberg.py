"""publish_iceberg: publish the newest version of a table as Iceberg metadata over its shards.

Order of writes: a record without checkpoints, if the table has none; then the table and its state
are read; the objects of the metadata, none of which is ever put under a name again; the record,
which names them, if it is still the one that was read; the entry in Glue. A crash in between
leaves objects that no metadata reaches, which the sweep deletes; the redelivery publishes what is
newest then. Of two publishers at once one replaces the record, and the other looks again.

Garbage collection keeps shards by the record (`state.versions`). It reads the record after it
has chosen what is due. If there was none, the state was read after that here, and has nothing of
what is deleted.
"""

from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import blake2b

import msgspec

from dormouse.errors import AlreadyExistsError, ContendedError, CorruptDataError, NotFoundError
from dormouse.iceberg.dead_rows import find_dead_rows, find_hidden_rows
from dormouse.iceberg.metadata import MetadataFile, Previous, next_row_id, read_previous
from dormouse.iceberg.publication import Changes, PublicationSource, changes_since, plan_publication
from dormouse.log.engine import StateStore
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports import Mirror, MirroredTable, Services
from dormouse.schema.iceberg import hive_type
from dormouse.state.state import TableState
from dormouse.state.versions import Checkpoint, PublicationRecord
from dormouse.storage import root_uri
from dormouse.stored.paths import data_prefix, iceberg_prefix, publication_sequence
from dormouse.tables.table import Table, glue_name, is_mirrored, is_published, published_name

# Let the entry of a table in Glue name the metadata that is published.
#
# The record of the publication comes first and is right; Glue repeats it for AWS's engines. Each
# step is recorded, so a run that is cut off is continued by the next: the name before the entry is
# made, what it names after it was put, no name after it was deleted.
#
# The entry is read before the record is looked at again, and replaced only as it was read. So a
# slow publisher never puts older metadata over newer.

MIRROR_STEPS = 8
"""How many steps one run makes, also in vain because another process was quicker."""


def follow_in_glue(services: Services, table_id: str) -> None:
    """Put, replace or delete the entry of a table, as what is published of it asks.

    Raises:
        AlreadyExistsError: Glue has an entry of that name which is not of this table.
        ContendedError: other publishers were quicker each time.
    """
    mirror = services.mirror
    for _ in range(MIRROR_STEPS):
        record = services.publications.get(table_id) if mirror is not None else None
        if mirror is None or record is None:
            return
        table = services.tables.get(table_id)
        name = _mirror_name(mirror, table, record)
        if record.mirror not in ("", name):
            entry = mirror.get(record.mirror)
            if entry is not None and entry.table_id == table_id:
                mirror.delete(record.mirror)
            result = replace(record, mirror="", mirrored="")
        elif not name or table is None or record.mirrored == record.metadata:
            return
        elif not record.mirror:
            result = replace(record, mirror=name)
        elif _put(services, mirror, table, record):
            result = replace(record, mirrored=record.metadata)
        else:
            continue
        services.publications.replace(table_id, record, result)
    raise ContendedError(f"others keep changing the entry of table {table_id} in Glue; try again")


def _mirror_name(mirror: Mirror, table: Table | None, record: PublicationRecord) -> str:
    """Return the name of the entry that there should be; empty if there should be none."""
    if table is None or table.deleting or not is_mirrored(table.properties):
        return ""
    return glue_name(published_name(table)) if mirror.database and record.metadata else ""


def _put(services: Services, mirror: Mirror, table: Table, record: PublicationRecord) -> bool:
    """Put the entry; return False if it, or the record, is another by now.
    Raises AlreadyExistsError: there is an entry of another table.
    """
    old = mirror.get(record.mirror)
    if services.publications.get(table.id) != record:
        return False
    if old is not None and old.table_id != table.id:
        raise AlreadyExistsError(
            f"Glue has a table {mirror.database}.{record.mirror} that is not an entry of table "
            f"{table.name!r}, and was left as it is",
            hint="delete it there, rename this table, or set iceberg_glue=off",
        )
    root = root_uri(services.storage)
    entry = MirroredTable(
        table.id,
        f"{root}/{record.metadata}",
        f"{root}/{iceberg_prefix(table.id).rstrip('/')}",
        [(field.name.lower(), hive_type(field.type)) for field in table.schema.fields],
    )
    return (old is not None and old.metadata == entry.metadata) or mirror.put(
        record.mirror, entry, old
    )


MOST_ROW_IDS = 2**36
"""A publication uses fewer ids of rows. Of ids, which have 63 bits, that leaves 2**27 publications:
one a minute for 255 years."""
PUBLISH_ATTEMPTS = 4
"""How often one run looks again because another publisher was quicker."""


def publish_iceberg(services: Services, message: TableChanged) -> list[OutboundMessage]:
    """Publish what is new of a table, or withdraw what is published of one that is to be no more;
    return no messages.
    Raises ContendedError: other publishers were quicker each time.
    """
    for _ in range(PUBLISH_ATTEMPTS):
        record = services.publications.get(message.table_id)
        table = services.table(message.table_id)
        if table is None or not is_published(table.properties):
            if record is not None and record.mirror:
                follow_in_glue(services, message.table_id)  # before its metadata is deleted
                record = services.publications.get(message.table_id)
            if table is None or _withdraw(services, table, record):
                return []
        elif record is None:
            objects = services.storage.list(iceberg_prefix(table.id))  # of a record that is lost
            numbers = (publication_sequence(each.path) or 0 for each in objects)
            begun = PublicationRecord(sequence=max(numbers, default=0))
            services.publications.replace(table.id, None, begun)
        elif _publish(services, table, record):
            if record.mirror or is_mirrored(table.properties):
                follow_in_glue(services, table.id)
            return []
    raise ContendedError(f"others keep publishing table {message.table_id}; try again")


def _withdraw(services: Services, table: Table, record: PublicationRecord | None) -> bool:
    """Let a table have no metadata any more; return False if the record is another by now.

    What readers have found is kept for the delay, and then deleted.
    """
    if record is None or (record.newest is not None and not record.metadata):
        return True
    state = services.store(table).current()
    return _recorded(services, table, record, state, metadata="")


def _publish(services: Services, table: Table, record: PublicationRecord) -> bool:
    """Publish the newest version; return False if the record is another by now."""
    store, root = services.store(table), root_uri(services.storage)
    state, content = store.current(), _fingerprint(table)
    if state.generation != table.generation:  # it is being reset: the planning of that comes again
        return state.generation < table.generation
    is_new = (record.root, record.content) != (root, content)
    if not is_new and not record.again and not _is_due(services, table, record, state):
        return True
    previous = _previous(services, record) if record.root == root else None
    source = PublicationSource(
        table,
        root,
        int(table.properties.iceberg_format),
        sequence=record.sequence,
        next_row_id=_next_row_id(services, table, record, previous),
    )
    plan_after = partial(
        plan_publication,
        source,
        state,
        _changes(store, table, record, state),
        now_ms=services.clock.now_ms(),
        purged=record.again == "purged",
    )
    try:
        plan = plan_after(previous)
    except (NotFoundError, CorruptDataError):  # in what is published: as if it were not
        plan = plan_after(None)
    if table.properties.keep == "latest":
        rows = find_hidden_rows(services, table, plan.unranked, plan.live)
    else:
        rows = find_dead_rows(services.storage, table, plan.unranked, services.cache)
    publication = plan.publication(rows)
    services.storage.expose(data_prefix(table.id))
    for item in publication.objects:
        services.storage.put(item.path, item.content)
    sequence = publication.sequence
    result = replace(record, sequence=sequence, root=root, content=content, again="")
    return _recorded(services, table, record, state, publication.metadata, result)


def _is_due(services: Services, table: Table, record: PublicationRecord, state: TableState) -> bool:
    """Return whether there is a newer version, or the metadata may list what is not kept."""
    newest = record.newest
    if newest is None or not newest.metadata or not newest.covers(table.state_id, state):
        return True
    delay_ms = table.properties.gc_delay_seconds * 1000
    return newest.published_ms <= services.clock.now_ms() - delay_ms


def _previous(services: Services, record: PublicationRecord) -> Previous | None:
    """Return what is published now; None if there is nothing, or it is to be written again.

    It is written again, too, if any of it is lost or damaged: all of it follows from the state.
    """
    if not record.metadata or record.again == "all":
        return None
    try:
        return read_previous(record.metadata, services.storage.get)
    except (NotFoundError, CorruptDataError):
        return None


def _next_row_id(
    services: Services, table: Table, record: PublicationRecord, previous: Previous | None
) -> int:
    """Return the first id of a row that no publication has used: a new list of snapshots goes on
    from there, as ids of rows are never used again.

    What is published may not say it: it is lost, was withdrawn, or is of format 2. Then it is a
    multiple of the last sequence number, so that it is above all ids of the publications before.
    """
    if int(table.properties.iceberg_format) < 3:
        return 0
    metadata = previous.metadata if previous is not None else {}
    if previous is None and record.metadata:
        with suppress(NotFoundError, CorruptDataError):
            metadata = MetadataFile.read(record.metadata, services.storage.get).metadata
    return next_row_id(metadata) or record.sequence * MOST_ROW_IDS


def _changes(
    store: StateStore, table: Table, record: PublicationRecord, state: TableState
) -> Changes | None:
    """Return what changed since the newest publication; None if that is not known."""
    newest = record.newest
    if newest is None or not newest.metadata or newest.state_id != table.state_id:
        return None
    return changes_since(store.history(), newest.version, state.version)


def _recorded(
    services: Services,
    table: Table,
    record: PublicationRecord,
    state: TableState,
    metadata: str,
    result: PublicationRecord | None = None,
) -> bool:
    """Put a checkpoint into the record; return False if the record is another by now."""
    made_of = table.state_id, state.generation, state.version, state.time_ms
    checkpoint = Checkpoint(services.clock.now_ms(), *made_of, metadata)
    delay_ms = table.properties.gc_delay_seconds * 1000
    new = (result or record).with_checkpoint(checkpoint, delay_ms)
    # Whatever happens, the number of this attempt is used up: what others put under it, and died,
    # can then be collected.
    new = replace(new, sequence=max(new.sequence, record.sequence + 1))
    return services.publications.replace(table.id, record, new)


def _fingerprint(table: Table) -> str:
    """Return what of a table decides its metadata beside its state, in short."""
    properties = table.properties
    parts = (table.schema.to_json(), properties.iceberg_format, properties.gc_delay_seconds)
    return blake2b(msgspec.json.encode(parts, order="deterministic"), digest_size=16).hexdigest()
