"""purge_rows: one step of a purge: check shards, and assign jobs that rewrite those that match.

The rows are hidden since the request (`features.delete_rows`). A step checks shards that no step
has checked, assigns compaction jobs that rewrite matching shards without the rows to remove, and
sends the message of the next step. The step that finds no matching shard referenced, at one version
of the table, finishes the purge, and has the registry forbid that an earlier version is restored.

Shards never change, so the result for a shard stays valid. It is saved beside the table's shards,
and the redelivery of an interrupted step continues from there. Two concurrent steps may check a
shard twice, but the state lets only one job rewrite it. The sweep starts a new chain of steps from
time to time, in case a message was lost; so each chain ends after a while.
"""

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from dormouse import errors
from dormouse.arrow.order import fit_range
from dormouse.errors import InvalidRequestError
from dormouse.features import purge
from dormouse.features.garbage import abandoned_after_ms
from dormouse.features.planning import assign
from dormouse.features.publishing import READERS_MS, publish_again
from dormouse.features.purge import PurgeRequest
from dormouse.features.reset import is_for
from dormouse.features.versions import read_version
from dormouse.iceberg import avro
from dormouse.iceberg.avro import DATA
from dormouse.items.records import REFUSALS_KEPT_SECONDS
from dormouse.jobs import Progress, is_chain_expired, map_watched, new_run, record
from dormouse.keys import KeyRange
from dormouse.messages.stages import OutboundMessage, PurgeStep, TableChanged
from dormouse.ports import NoncurrentObject, Services, Storage, StoredObject
from dormouse.query.rows import QueryResources, count_slices
from dormouse.rows.merging import merge_slices
from dormouse.rows.predicates import Predicate, parse_stored_predicate
from dormouse.schema.evolution import is_same
from dormouse.schema.iceberg import named_keys
from dormouse.schema.schema import SEQUENCE, TOMBSTONE, Schema
from dormouse.shards.footer import read_footer
from dormouse.shards.reading import Slice
from dormouse.state.jobs import Failed, Finished, Started, TrackedJob
from dormouse.state.partitions import Shard
from dormouse.state.state import AssignJob, ForgetDeletions, TableState
from dormouse.state.versions import Pin
from dormouse.stored import paths
from dormouse.tables.row_rules import is_no_tombstone
from dormouse.tables.table import Table

COUNTED_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class RowMatcher:
    """Counts the rows of a table that a purge is to remove.

    Tombstones, which come in place of rows in a table that keeps the latest ones, have the keys
    alone: a condition on values does not match them.
    """

    request: PurgeRequest
    schema: Schema
    predicate: Predicate | None
    ranges: tuple[KeyRange, ...]

    @staticmethod
    def of(request: PurgeRequest, table: Table) -> "RowMatcher":
        """Return the matcher of a request for the table's present schema.
        Raises InvalidRequestError: the predicate does not fit the schema, or one of its column
        names now belongs to another column, or one of another type.
        """
        selection, schema, keep = request.selection, table.schema, table.properties.keep
        names = selection.tested_columns
        for name in sorted(names):
            now, then = schema.field_named(name), request.schema.field_named(name)
            if now.id != then.id or not is_same(now, then):
                raise InvalidRequestError(
                    f"column {name!r} is not the same column as when the purge was requested",
                    hint="request the purge again, with the present column names",
                )
        predicate = parse_stored_predicate(selection.where, schema) if selection.where else None
        spans = (fit_range(span, schema) for span in selection.ranges)
        ranges = tuple(span for span in spans if not span.is_empty())
        if predicate is None or keep == "all" or names <= {field.name for field in schema.row_keys}:
            return RowMatcher(request, schema, predicate, ranges)
        with_tombstones = schema.with_values(TOMBSTONE, SEQUENCE)
        rows = Predicate(predicate.condition.and_also(is_no_tombstone()), with_tombstones)
        return RowMatcher(request, with_tombstones, rows, ranges)

    def count(
        self, resources: QueryResources, table_id: str, slice: Slice, *, at_most: int | None = None
    ) -> int:
        """Count the rows of a slice that match, `COUNTED_AT_ONCE` slices at once; stop at
        `at_most`.

        Raises:
            NotFoundError: the shard was deleted.
            CorruptDataError: the shard is damaged.
        """
        rows = 0
        for span in self.ranges:
            part = span.intersection(slice.range)
            if part.is_empty() or not part.overlaps_span(slice.shard.low, slice.shard.high):
                continue
            matching = merge_slices(
                resources.storage,
                table_id,
                [Slice(slice.shard, part)],
                self.schema,
                columns=[self.schema.row_keys[0].name],
                where=self.predicate,
                scratch=resources.scratch,
                memory_bytes=resources.memory_bytes // COUNTED_AT_ONCE,
            )
            with closing(matching):
                for batch in matching:
                    rows += batch.num_rows
                    if at_most is not None and rows >= at_most:
                        return at_most
        return rows


STEP_SECONDS = 240
"""For how long a step begins to check more shards; well below its function's time-out."""
_RESET = "the table was reset since"
_RESTORED = (
    "the table was reset to an earlier version since, which may have the rows: purge them again"
)
LEAST_WAIT_SECONDS, MOST_WAIT_SECONDS = 1, 120
WAITS_PER_AGE = 8
"""The next step waits for this fraction of the purge's age: short purges end soon, long ones poll
rarely."""


def purge_rows(services: Services, message: PurgeStep) -> Iterator[OutboundMessage]:
    """Run one step of a purge, unless it is finished; yield the jobs and the next step.
    Raises CorruptDataError: a shard is damaged, so its rows are unknown; jobs for the other shards
    are assigned. Or the stored request of the purge is damaged.
    """
    table = services.table(message.table_id)
    request = purge.load_purge(services, table.id, message.purge_id) if table is not None else None
    if table is None or request is None:
        return
    job = TrackedJob(table.id, request.id, "purge")
    last = services.tracker.get(table.id, request.id)
    if last is not None and last.state == "finished":  # matching rows that came later stay
        purge.delete_purge(services, table.id, request.id)
        return
    state = services.store(table).current()
    if not is_for(request.generation, table, state):
        _end(services, job, _end_by_reset(table))
        return
    try:
        matcher = RowMatcher.of(request, table)
    except errors.InvalidRequestError as error:
        _end(services, job, Failed(error.explanation))
        return
    if last is None or last.state != "running":
        record(services, job, Started())
    try:
        done = yield from _step(services, table, state, matcher, message)
    except errors.DormouseError as error:
        record(services, job, Failed(error.explanation))
        raise
    if done is not None:  # outside the block above: an error from here on must not record a failure
        newest = _forbid_earlier(services, table, state)
        _forget(services, table, state, request)
        if publish_again(services, table.id, "purged"):  # what was published names the rows' keys
            yield OutboundMessage("iceberg-changes", TableChanged(table.id))
        is_same = newest.generation == state.generation
        _end(services, job, done if is_same else _end_by_reset(newest))


def _end_by_reset(table: Table) -> Finished | Failed:
    """Return how a purge ends if its table was reset or restored since."""
    return Failed(_RESTORED) if table.restored else Finished(_RESET)


def _forget(
    services: Services, table: Table, state: TableState, request: purge.PurgeRequest
) -> None:
    """Forget the deletions that hid the rows until now; they name what is to be forgotten."""
    store = services.store(table)
    hidden = (each for each in store.current().deletions if each.purge_id == request.id)
    if numbers := tuple(each.number for each in hidden):
        store.commit(ForgetDeletions(numbers, is_proved=True), generation=state.generation)


def _forbid_earlier(services: Services, table: Table, state: TableState) -> Table:
    """Have the registry keep that versions before a state have purged rows; return the table.

    A restore of one is refused from then on. One that was registered before is in the table, which
    is then of another generation, and otherwise unchanged.
    """

    def purged(newest: Table) -> Table:
        if newest.generation != state.generation:
            return newest
        return replace(newest, purged_version=max(newest.purged_version, state.version))

    return services.tables.change(table.id, purged)


def _step(
    services: Services, table: Table, state: TableState, matcher: RowMatcher, message: PurgeStep
) -> Generator[OutboundMessage, None, Finished | None]:
    """Run a step; return the end of the purge if it is the last."""
    request = matcher.request
    matches = purge.load_matches(services, table.id, request.id)
    unchecked = purge.unchecked_shards(state, request, matches)
    new, damaged = _check_shards(services, table, matcher, unchecked)
    if len(new):
        purge.save_matches(services, table.id, request.id, new)
        matches |= new
    references = purge.references_to(state, matches.matching)
    rest = len(unchecked) - len(new)
    if not references and not rest:
        # For people only: records of crashed runs are missing, and rows that the table's filters
        # and aggregation removed in the same jobs are included.
        rows = sum(
            job.rows_read - job.rows
            for job in services.tracker.records(table.id)
            if job.purge_id == request.id and job.state == "finished"
        )
        reason = f"checked {len(matches)} shards, rewrote {len(matches.matching)}"
        return Finished(reason, rows=rows)
    most_bytes = inf if request.spark else purge.MAX_JOB_BYTES
    jobs = [  # after a crash the sweep sends the messages of those that were assigned
        AssignJob(new_run(services, table), partition, inputs, purge_id=request.id)
        for partition, inputs in purge.rewrite_jobs(state, references, most_bytes)
    ]
    yield from assign(services, table, state.generation, jobs, request.spark)
    if damaged is not None:
        raise damaged
    now_ms = services.clock.now_ms()
    retry_ms = table.properties.job_retry_seconds * 1000
    if is_chain_expired(
        message.begun_ms or request.requested_ms, request.requested_ms, now_ms, retry_ms
    ):
        return None
    age_seconds = (now_ms - request.requested_ms) // 1000
    wait = min(max(age_seconds // WAITS_PER_AGE, LEAST_WAIT_SECONDS), MOST_WAIT_SECONDS)
    yield OutboundMessage("purges", message, 0 if rest else wait)
    return None


def _check_shards(
    services: Services, table: Table, matcher: RowMatcher, shards: list[Shard]
) -> tuple[purge.ShardMatches, errors.CorruptDataError | None]:
    """Check shards for `STEP_SECONDS`, at least a few; return the results, and one damage if any.

    A shard is checked as a whole, whichever partitions refer to it, since its object is what must
    be deleted.
    """
    end_ms = services.clock.now_ms() + STEP_SECONDS * 1000

    def matches(shard: Shard) -> bool | errors.CorruptDataError | None:
        try:
            return bool(matcher.count(services, table.id, Slice(shard, KeyRange()), at_most=1))
        except errors.NotFoundError:  # compacted and collected meanwhile
            return None
        except errors.CorruptDataError as error:
            return error

    matching, clean = set[str](), set[str]()
    damaged: errors.CorruptDataError | None = None
    with ThreadPoolExecutor(COUNTED_AT_ONCE) as threads:
        for start in range(0, len(shards), COUNTED_AT_ONCE):
            if start and services.clock.now_ms() >= end_ms:
                break
            some = shards[start : start + COUNTED_AT_ONCE]
            for shard, result in zip(some, threads.map(matches, some), strict=True):
                if isinstance(result, errors.CorruptDataError):
                    damaged = result
                elif result is not None:
                    (matching if result else clean).add(shard.id)
    return purge.ShardMatches(frozenset(matching), frozenset(clean)), damaged


def _end(services: Services, request: TrackedJob, end: Finished | Failed) -> None:
    """Record the end of a purge, then delete its stored state.

    After a crash in between, the redelivery records it again.
    """
    record(services, request, end)
    purge.delete_purge(services, request.table_id, request.id)


# Look for the keys of removed rows in what is published for readers of Iceberg.
#
# Manifests name the least and greatest key of each shard that they list. (Metadata and lists name
# no keys, and files of dead rows only positions.) A shard whose object was checked for matching
# rows, and has none, names no key of a removed row. Of one that is gone, the keys are looked for in
# the table: one that no row has any more may be that of a removed row, if it is among those to
# remove.

Entry = Mapping[str, Any]


_PUBLISHED = "it names keys of removed rows, or may, and readers of Iceberg may have found it"
_METADATA_KEPT = (
    "it names keys of removed rows, or may; it was deleted, and the bucket keeps earlier versions"
)
_BOUNDS = ("lower_bounds", "upper_bounds")


@dataclass(frozen=True, slots=True)
class PublishedProof:
    """What a proof knows when it looks at what is published: the shards that it has checked and
    that hold no matching row are `clean`, those that hold some, or may, `holding`.
    """

    services: Services
    table: Table
    state: TableState
    matcher: RowMatcher
    clean: Collection[str]
    holding: Collection[str]

    def check(self, item: StoredObject | NoncurrentObject) -> purge.RemainingObject | None:
        """Return what is wrong with an object; None if it names no key of a removed row."""
        if isinstance(item, NoncurrentObject):
            return self._check(item.stored, item.storage, _METADATA_KEPT, item.until_ms)
        kept_ms = self.table.properties.gc_delay_seconds * 1000 + READERS_MS
        return self._check(item, self.services.storage, _PUBLISHED, item.modified_ms + kept_ms)

    def _check(
        self, item: StoredObject, storage: Storage, reason: str, until_ms: int | None
    ) -> purge.RemainingObject | None:
        if not item.path.endswith(paths.MANIFEST_SUFFIX):
            return None
        try:
            entries = avro.read_container(storage.get(item.path))[1]
            files = (entry["data_file"] for entry in entries if "data_file" in entry)  # no list has
            if any(self._names_removed(file) for file in files if file["content"] == DATA):
                return purge.RemainingObject(item.path, 0, reason, until_ms)
        except errors.NotFoundError:  # collected since it was listed
            pass
        except errors.CorruptDataError as error:
            return purge.RemainingObject(item.path, None, f"it cannot be read: {error.explanation}")
        return None

    def _names_removed(self, file: Entry) -> bool:
        """Return whether an entry may name the key of a removed row."""
        shard = paths.shard_id_of(file["file_path"])
        if shard in self.clean or shard in self.holding:
            return shard in self.holding
        keys = named_keys(
            self.table.schema,
            *({each["key"]: each["value"] for each in file.get(b) or ()} for b in _BOUNDS),
        )
        if keys is None:  # of another schema: what it names cannot be compared
            return True
        return any(self._is_removed(key) for key in keys)

    def _is_removed(self, key: KeyRange) -> bool:
        if not any(span.overlaps(key) for span in self.matcher.ranges):
            return False
        slices = [
            Slice(self.state.shards[reference.shard], part)
            for span, references in self.state.partitions_to_read(key)
            for reference in references
            if not (part := span.intersection(key)).is_empty()
        ]
        counts = count_slices(self.services.storage, self.table, slices, self.services.cache)
        return not any(counts)


# prove_purge: count the matching rows in the table and in every object of it.
#
# It relies on no record of a purge. It lists all objects, referenced or not, and the noncurrent
# versions that a versioned bucket keeps of deleted ones, and reads each that can hold matching
# rows. What was sent of an unfinished upload cannot be read, so it is reported as if it held such
# rows. Then it looks for keys of removed rows in what is published for readers of Iceberg.

EARLIER_SCHEMA = "its rows are of an earlier schema, and are not checked"

UNFINISHED = "its upload is not finished, or was broken off; the daily audit deletes what was sent"
REJECTED = "rows of files that could not be read; the daily audit deletes it, or you"
_INDEX_ALONE = "it is the index of a shard that is gone; the daily audit deletes it"
_REPLACED = "it was replaced, and is kept for queries that began before"
_SHARD_KEPT = "it was deleted, and the bucket keeps earlier versions"


def prove_purge(
    services: Services, table: Table, request: purge.PurgeRequest, watch: Progress | None = None
) -> purge.Proof:
    """Check every object; nothing is changed.

    A condition on the present schema cannot be evaluated on an object of an earlier one, so such an
    object is reported as if it held matching rows.

    Raises:
        InvalidRequestError: as `RowMatcher.of`.
        ContendedError: the table got another schema meanwhile.
        UnavailableError: storage or state cannot be read at the moment; there is no result.
    """
    matcher = RowMatcher.of(request, table)
    newest, state = read_version(services, table)
    if newest.schema_generation != table.schema_generation:
        raise errors.ContendedError(
            f"table {table.name!r} was reset just now, and got another schema",
            hint="select the rows by the columns that it has now",
        )
    storage, prefix = services.storage, paths.iceberg_prefix(table.id)
    published: list[StoredObject | NoncurrentObject] = [*storage.list(prefix)]
    published += storage.list_noncurrent(prefix)
    # Listed after the state is read, so all objects that the state refers to exist by then. What
    # changes between the listings is found at least once: an upload that is completed meanwhile as
    # an object, an object that is deleted as noncurrent.
    prefix = paths.data_prefix(table.id)
    uploads = list(storage.list_uploads(prefix))
    objects = list(storage.list(prefix))
    earlier = list(storage.list_noncurrent(prefix))
    objects, earlier, remains = _without_indexes(table, objects, earlier)

    def check(item: StoredObject | NoncurrentObject) -> purge.RemainingObject | None:
        if isinstance(item, NoncurrentObject):
            return _check_noncurrent(services, table, matcher, item)
        return _check_object(services, table, state, matcher, item)

    for each in uploads:
        until_ms = each.started_ms + abandoned_after_ms(table)
        remains.append(purge.RemainingObject(each.path, None, UNFINISHED, until_ms))
    checked: list[StoredObject | NoncurrentObject] = [*objects, *earlier]
    remains += filter(None, map_watched(check, checked, COUNTED_AT_ONCE, watch))
    holding = {shard for each in remains if (shard := paths.shard_id_of(each.path))}
    with_rows = {paths.shard_id_of(each.path) for each in remains if each.rows}
    referenced = {shard for shard in holding & with_rows if state.reference_counts.get(shard)}
    rows = _rows_of_table(services, table, state, matcher, referenced)
    there = {each.path for each in storage.list(prefix)}  # those whose objects were not deleted
    names = (each.path for each in objects if each.path in there)
    clean = {shard for path in names if (shard := paths.shard_id_of(path))}
    proof = PublishedProof(services, table, state, matcher, clean - holding, holding)
    remains += filter(None, map(proof.check, published))
    rejected = list(storage.list(paths.REJECTED.prefix(table.id)))
    kept_ms = REFUSALS_KEPT_SECONDS * 1000  # then the daily audit deletes rejected rows
    remains += [
        purge.RemainingObject(each.path, None, REJECTED, each.modified_ms + kept_ms)
        for each in rejected
    ]
    remains = list(_with_pins(services, table, remains))
    counted = len(checked) + len(uploads) + len(published) + len(rejected)
    return purge.Proof(state.version, rows, counted, len(referenced), tuple(remains))


def _with_pins(
    services: Services, table: Table, remains: Iterable[purge.RemainingObject]
) -> Iterator[purge.RemainingObject]:
    """Yield what remains, with the pinned version that holds a replaced shard beyond its delay: a
    tag, a query or an export, also one that a killed process has not confirmed.
    """
    pinned: list[tuple[Pin, TableState]] | None = None
    for item in remains:
        if item.reason == _REPLACED and pinned is None:
            pinned = list(services.store(table).pins.held())
        shard = paths.shard_id_of(item.path) or ""
        holding = [pin for pin, state in pinned or () if state.reference_counts.get(shard, 0)]
        if item.reason != _REPLACED or not holding:
            yield item
            continue
        pin = max(holding, key=lambda each: (each.expires_ms is None, each.expires_ms or 0))
        reason = f"it was replaced, and version {pin.version} needs it, which {pin.owner.key} pins"
        ends_ms = None if pin.expires_ms is None else max(pin.expires_ms, item.until_ms or 0)
        yield replace(item, reason=reason, until_ms=ends_ms)


def _without_indexes(
    table: Table, objects: Sequence[StoredObject], earlier: Sequence[NoncurrentObject]
) -> tuple[list[StoredObject], list[NoncurrentObject], list[purge.RemainingObject]]:
    """Return all objects but index objects, and which of these remain without their shard: the
    others have what their shards have, and are deleted with these.
    """
    indexes: list[tuple[str, int | None]] = [
        (o.path, _audited_ms(table, o)) for o in objects if paths.is_index_object(o.path)
    ]
    indexes += [
        (e.stored.path, e.until_ms) for e in earlier if paths.is_index_object(e.stored.path)
    ]
    shards = [each for each in objects if not paths.is_index_object(each.path)]
    earlier_shards = [each for each in earlier if not paths.is_index_object(each.stored.path)]
    there = {each.path for each in (*shards, *(one.stored for one in earlier_shards))}
    alone = [
        purge.RemainingObject(path, None, _INDEX_ALONE, until_ms)
        for path, until_ms in indexes
        if paths.shard_path(table.id, paths.shard_id_of(path) or "") not in there
    ]
    return shards, earlier_shards, alone


def _check_object(
    services: Services, table: Table, state: TableState, matcher: RowMatcher, item: StoredObject
) -> purge.RemainingObject | None:
    try:
        shard = _shard(services, table, state, item)
        if shard is None:
            return purge.RemainingObject(item.path, None, EARLIER_SCHEMA, _audited_ms(table, item))
        rows = 0
        if matcher.request.can_match(shard):
            rows = matcher.count(services, table.id, Slice(shard, KeyRange()))
    except errors.NotFoundError:  # collected since it was listed
        return None
    except errors.CorruptDataError as error:
        return purge.RemainingObject(item.path, None, f"it cannot be read: {error.explanation}")
    if not rows:
        return None
    reason, until_ms = _why(table, state, shard.id, item)
    return purge.RemainingObject(item.path, rows, reason, until_ms)


def _check_noncurrent(
    services: Services, table: Table, matcher: RowMatcher, earlier: NoncurrentObject
) -> purge.RemainingObject | None:
    """Check a noncurrent version of a deleted object."""
    there = replace(services, storage=earlier.storage)
    remaining = _check_object(there, table, TableState(), matcher, earlier.stored)
    if remaining is None:
        return None
    reason = _SHARD_KEPT if remaining.rows is not None else f"{_SHARD_KEPT}; {remaining.reason}"
    return purge.RemainingObject(remaining.path, remaining.rows, reason, earlier.until_ms)


def _shard(services: Services, table: Table, state: TableState, item: StoredObject) -> Shard | None:
    """Return the shard in an object, from the state or else from its footer.

    None if its rows are of an earlier schema.
    """
    shard_id = paths.shard_id_of(item.path)
    shard = state.shards.get(shard_id) if shard_id is not None else None
    if shard is not None:
        return shard
    footer = read_footer(services.storage, item.path, item.size_bytes)
    if item.path != paths.shard_path(table.id, footer.shard_id):
        raise errors.CorruptDataError(f"its footer has the id of shard {footer.shard_id!r}")
    if footer.provenance.generation < table.schema_generation:
        return None
    return footer.shard(item.size_bytes)


def _why(table: Table, state: TableState, shard: str, item: StoredObject) -> tuple[str, int | None]:
    """Return why an object exists, and from when on it can be deleted."""
    if state.reference_counts.get(shard, 0):
        return "it is part of the table", None
    if shard in state.disputed:
        return "it is disputed, and kept until the dispute is resolved", None
    since_ms = state.unreferenced.get(shard)
    if since_ms is not None:
        until_ms = since_ms + table.properties.gc_delay_seconds * 1000
        return _REPLACED, until_ms
    if paths.run_of_shard(shard)[0] in state.jobs:
        return "a job that is not finished wrote it", None
    return "no commit refers to it; the daily audit deletes it", _audited_ms(table, item)


def _audited_ms(table: Table, item: StoredObject) -> int:
    """Return from when on the daily audit deletes an unreferenced object."""
    return item.modified_ms + table.properties.orphan_age_seconds * 1000


def _rows_of_table(
    services: Services, table: Table, state: TableState, matcher: RowMatcher, shards: set[str]
) -> int:
    """Count the matching rows that a query of this version reads."""
    return sum(
        matcher.count(services, table.id, Slice(state.shards[reference.shard], span))
        for span, references in state.partitions_to_read(KeyRange())
        for reference in references
        if reference.shard in shards
    )
