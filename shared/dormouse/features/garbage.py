"""collect_garbage: delete the objects of unreferenced shards, then remove them from the state.

The shards that are due are chosen before the pins are read; those of pinned versions stay, and are
candidates again once these are unpinned. So do those that a restore referenced meanwhile. Then the
record of what is published is read: what readers of Iceberg may need stays, and comes again.

Order of writes: object, then state. A crash in between leaves a shard that the state still lists;
the redelivery deletes its object again, which is idempotent. The other order could leak objects.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice

from dormouse.errors import InvalidRequestError
from dormouse.features.batch_files import look_up_sources
from dormouse.features.requests import TABLE_RESET, JobCheck, JobOutcome, RequestResult, StoredWork
from dormouse.jobs import finalise, grouped, record, tracked
from dormouse.log.engine import StateStore
from dormouse.messages.requests import CollectGarbage, Counts
from dormouse.messages.stages import GarbageCandidates, IngestJob, OutboundMessage
from dormouse.ports import Services
from dormouse.state.jobs import Finished, Started, TrackedJob
from dormouse.state.rules import Rejected
from dormouse.state.sources import Source
from dormouse.state.state import DAY_MS, DeleteShards, TableState
from dormouse.stored.paths import (
    data_prefix,
    is_index_object,
    paths_of_shard,
    run_of_shard,
    shard_id_of,
)
from dormouse.tables.properties import Properties
from dormouse.tables.table import Table

# Choose the shards that may be deleted: those unreferenced for longer than the delay.
#
# The delay must exceed the longest query, since a query reads at the version it began with. Shards
# of pinned versions are kept until these are unpinned.

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
    has none of them (`log.pinning`). A restore references shards again, and then removes its
    pin. So the newest state is read once more after the pins: a shard that was referenced since it
    was chosen is kept, even if it is not referenced any more.
    Raises CorruptDataError: a pin is damaged, or the snapshot of one is.
    """
    rest = list(shards)
    if rest:
        for pinned in store.pins.states():
            rest = [shard for shard in rest if not pinned.reference_counts.get(shard, 0)]
    if rest:
        now = store.current()
        rest = [
            shard
            for shard in rest
            if not now.reference_counts.get(shard, 0)
            and now.unreferenced.get(shard) == state.unreferenced.get(shard)
        ]
    return rest


def unpublished(
    services: Services, table: Table, state: TableState, shards: list[str]
) -> list[str]:
    """Return those of a state's unreferenced shards that no reader of Iceberg may need.

    Call it after `shards` were chosen and before they are deleted: what is published later has none
    of them (`features.publish_iceberg`).
    Raises CorruptDataError: the record of what is published is damaged.
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
    checkpoint = record.found_at(oldest_ms)
    return checkpoint is not None and (
        not checkpoint.metadata
        or (checkpoint.state_id, checkpoint.generation) == (table.state_id, state.generation)
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
        for shards in runs.values()
        if max(modified_ms[shard] for shard in shards) <= oldest_ms
        for shard in shards
    ]


MAX_DELAY_SECONDS = 15 * 60
"""The longest SQS delays a message; a longer wait is several messages."""


CANDIDATES_PER_MESSAGE = 1000


def candidates(
    table: Table, state: TableState, shards: Sequence[str], delay_seconds: int = 0
) -> list[OutboundMessage]:
    """Return the messages that name these shards as candidates."""
    bodies = (GarbageCandidates(table.id, state.generation, some) for some in together(shards))
    return [OutboundMessage("gc-candidates", body, delay_seconds) for body in bodies]


def together(shards: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield shards in the batches of one message each."""
    return grouped(shards, CANDIDATES_PER_MESSAGE)


def collect_garbage(services: Services, message: GarbageCandidates) -> list[OutboundMessage]:
    """Delete the candidates whose delay is over; return a delayed message of the others."""
    table = services.table(message.table_id)
    if table is None:
        return []
    if message.files:
        remove_ingested(services, table, message.files)
    if not message.shards:
        return []
    store = services.store(table)
    state = store.current()
    job_id = garbage_job_id(message.shards)
    if message.generation != state.generation:
        finalise(services, table.id, job_id)
        return []
    now_ms, delay_seconds = services.clock.now_ms(), table.properties.gc_delay_seconds
    due, waiting = collectable(state, message.shards, now_ms, delay_seconds)
    due = unpinned(store, state, due)
    free = unpublished(services, table, state, due)
    rest = sorted({*due}.difference(free))
    if not free:
        finalise(services, table.id, job_id)
    elif not _delete(services, table, state, job_id, free):
        return [OutboundMessage("gc-candidates", message)]
    if not waiting and not rest:
        return []
    seconds = [waiting_seconds(state, shard, now_ms, delay_seconds) for shard in waiting]
    seconds_left = MAX_DELAY_SECONDS if rest else max(seconds)
    again = GarbageCandidates(table.id, state.generation, (*waiting, *rest))
    return [OutboundMessage("gc-candidates", again, min(seconds_left, MAX_DELAY_SECONDS))]


def remove_ingested(services: Services, table: Table, files: Sequence[Source]) -> None:
    """Delete those of some files that a table with encrypted columns has ingested: they hold in
    plain what it does not.
    """
    fresh = {*look_up_sources(services, table, files).fresh(files)}
    for source in files:
        if table.schema.encrypted and source not in fresh:
            services.sources.remove(source)


def plain_files(services: Services, table: Table, job: IngestJob) -> list[OutboundMessage]:
    """Delete what was ingested of a job's files if the table has encrypted columns; on AWS, return
    the message that has it done: what reads files of others may not delete any.
    """
    if not table.schema.encrypted:
        return []
    if services.storage.is_remote:
        candidates = GarbageCandidates(table.id, job.generation, (), job.sources)
        return [OutboundMessage("gc-candidates", candidates)]
    remove_ingested(services, table, job.sources)
    return []


def garbage_job_id(shards: Sequence[str]) -> str:
    """Return the id of the job of a message, the same for each of its deliveries."""
    return f"garbage-{blake2b(' '.join(shards).encode(), digest_size=16).hexdigest()}"


def _delete(
    services: Services, table: Table, state: TableState, job_id: str, due: list[str]
) -> bool:
    """Delete shards and remove them from the state.

    Return False to retry, if another delivery removed some of them meanwhile.
    """
    job = TrackedJob(table.id, job_id, "garbage")
    start = Started(
        subject=f"{len(due)} shards",
        files=len(due),
        size_bytes=sum(state.shards[shard].size_bytes for shard in due),
    )
    with tracked(services, job, start):
        services.storage.delete([p for shard in due for p in paths_of_shard(table.id, shard)])
        deletion = DeleteShards(tuple(due))
        (outcome,) = services.store(table).commit(deletion, generation=state.generation)
        if isinstance(outcome, Rejected):
            return False
    record(services, job, Finished(files=len(due)))
    return True


# collect_garbage: delete the unreferenced shards whose delay is over, on request.


class GarbageWork(StoredWork, frozen=True, tag="garbage"):
    """Shards that are to be deleted."""

    generation: int
    shards: tuple[str, ...]

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the messages of shards that are not deleted yet."""
        state = services.store(table).current()
        shards = [shard for shard in self.shards if shard in state.unreferenced]
        return candidates(table, state, shards) if state.generation == self.generation else []

    def outcomes(self, check: JobCheck) -> Iterator[JobOutcome]:
        """Yield the outcome or progress of each batch of shards."""
        for job_id, shards in zip(self.ids, together(self.shards), strict=True):
            is_done = check.is_done(job_id)
            if not is_done and check.state.generation != self.generation:
                yield JobOutcome(self.kind, job_id, "failed", TABLE_RESET)
            elif not is_done and any(shard in check.state.shards for shard in shards):
                yield check.unfinished(self.kind, job_id, check.record(job_id))
            else:
                yield JobOutcome(self.kind, job_id, counts=Counts(finished=1, shards=len(shards)))


def request_collection(services: Services, table: Table, request: CollectGarbage) -> RequestResult:
    """Request the deletion of the shards whose delay is over, of a table online or offline."""
    store = services.store(table)
    state = store.current()
    due, _ = collectable(
        state, state.unreferenced, services.clock.now_ms(), table.properties.gc_delay_seconds
    )
    due = unpublished(services, table, state, unpinned(store, state, due))
    if not due:
        return RequestResult()
    size_bytes = sum(state.shards[shard].size_bytes for shard in due)
    ids = tuple(map(garbage_job_id, together(due)))
    work = GarbageWork(ids, state.generation, tuple(due))
    return RequestResult(candidates(table, state, due), work, Counts(size_bytes=size_bytes))


# Shards that have lasted for some days move to a cheaper storage class of S3.
#
# The daily audit marks them by a tag, and S3 moves what has the tag, by rules of the bucket. So a
# shard keeps its name, its bytes and its date, and no role may write over it. Shards are never put
# into a cheaper class at once: such a class charges for 30 or 90 days, and most shards are replaced
# before.


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
