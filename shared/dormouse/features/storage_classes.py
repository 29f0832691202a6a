"""Shards that have lasted for some days move to a cheaper storage class of S3.

The daily audit marks them by a tag, and S3 moves what has the tag, by rules of the bucket. So a
shard keeps its name, its bytes and its date, and no role may write over it. Shards are never put
into a cheaper class at once: such a class charges for 30 or 90 days, and most shards are replaced
before.
"""

from itertools import islice

from dormouse.errors import InvalidRequestError
from dormouse.features.garbage import unpinned
from dormouse.jobs import record
from dormouse.ports import Services
from dormouse.state.jobs import Finished, TrackedJob
from dormouse.state.state import DAY_MS
from dormouse.stored.paths import data_prefix, is_index_object, shard_id_of
from dormouse.tables.properties import Properties
from dormouse.tables.table import Table

CLASSES_JOB = "storage-classes"
"""The id of the tracker's record of the shards that were last marked."""
LEAST_BYTES = 128 * 1024
"""S3 moves no smaller object: the cheaper classes charge for as much."""
INFREQUENT = ("STANDARD_IA", "ONEZONE_IA")
INFREQUENT_DAYS = 30
"""S3 moves an object to these classes after so many days, and not before."""
MARKED_AT_ONCE = 50_000
"""The most shards of a table that one audit marks; the next one goes on."""
MOVES_FROM = {
    "STANDARD_IA": ("STANDARD",),
    "INTELLIGENT_TIERING": ("STANDARD", "STANDARD_IA"),
    "ONEZONE_IA": ("STANDARD", "STANDARD_IA", "INTELLIGENT_TIERING"),
    "GLACIER_IR": ("STANDARD", "STANDARD_IA", "INTELLIGENT_TIERING"),
}
"""From which classes S3 moves objects to each: never back to a dearer one."""


def check_storage_class(services: Services, properties: Properties) -> None:
    """Check that shards of a table with these properties can move as they say.
    Raises InvalidRequestError: there are no storage classes here, or the days are too few.
    """
    storage_class, days = properties.storage_class, properties.storage_class_days
    if storage_class not in MOVES_FROM:
        return
    if services.mark_for_class is None:
        raise InvalidRequestError(
            f"storage_class cannot be {storage_class} in a folder, which has no storage classes of "
            "S3",
            hint="leave storage_class STANDARD",
        )
    if storage_class in INFREQUENT and days < INFREQUENT_DAYS:
        raise InvalidRequestError(
            f"S3 moves no object to {storage_class} before it is {INFREQUENT_DAYS} days old, and "
            f"storage_class_days is {days}",
            hint=f"set storage_class_days to {INFREQUENT_DAYS} or more, or another storage_class",
        )


def mark_lasting_shards(services: Services, table: Table) -> None:
    """Mark the shards that are to move to the table's storage class and have not moved yet.

    Shards that nothing needs any more are left alone, and those that a job has not committed yet.

    Raises UnavailableError: some are not marked; the next audit marks them.
    """
    storage_class = table.properties.storage_class
    if services.mark_for_class is None or storage_class not in MOVES_FROM:
        return
    store = services.store(table)
    state = store.current()
    until_ms = services.clock.now_ms() - table.properties.storage_class_days * DAY_MS
    due = (
        (shard, each.path)
        for each in services.storage.list(data_prefix(table.id))
        if each.modified_ms <= until_ms
        and each.size_bytes >= LEAST_BYTES
        and each.storage_class in MOVES_FROM[storage_class]
        and not is_index_object(each.path)
        and (shard := shard_id_of(each.path) or "") in state.shards
    )
    some = dict(islice(due, MARKED_AT_ONCE))
    garbage = {*unpinned(store, state, [shard for shard in some if shard in state.unreferenced])}
    paths = [path for shard, path in some.items() if shard not in garbage]
    if paths:
        services.mark_for_class(paths, storage_class)
        subject = f"{len(paths)} shards to {storage_class}"
        job = TrackedJob(table.id, CLASSES_JOB, "sweep")
        record(services, job, Finished(subject=subject, files=len(paths)))
