"""ingest: write a job's files as sorted shards, and commit them in one transaction.

Order of writes: shards, commit, messages. A crash before the commit leaves orphaned shards, which
``sweep`` deletes once they are old. A crash after it repeats the job, which then finds its sources
ingested. The sources are part of the commit, so no row is added twice.
"""

import errno
import stat
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from dormouse import jobs
from dormouse.errors import ContendedError, OutOfSpaceError, RefusedSourceError, UnavailableError
from dormouse.features.batch_files import look_up_sources, refuse
from dormouse.features.garbage import plain_files
from dormouse.files.change_data import Emptied
from dormouse.files.loader import (
    Begins,
    LocalRows,
    SourceLoader,
    ingested_schema,
    load_local,
    load_sources,
    loader_of,
    ruled_rows,
)
from dormouse.files.rejects import RejectedRows
from dormouse.keys import Key
from dormouse.messages.stages import IngestJob, OutboundMessage, TableChanged
from dormouse.ports import NO_TABLE, Services
from dormouse.rows.deletions import deletion_of_all, id_of_job
from dormouse.schema.evolution import may_lose_range
from dormouse.schema.types import Primitive
from dormouse.shards.writer import ShardContext, write_shards
from dormouse.state.jobs import (
    Failed,
    Finished,
    JobRecord,
    Progressed,
    Refused,
    Started,
    TrackedJob,
)
from dormouse.state.partitions import NewShard, Partition
from dormouse.state.rules import Outcome, Rejected, Rule, Violation
from dormouse.state.sources import Source, have_row_tags, job_id_of
from dormouse.state.state import AddShards, Deletion, TableState
from dormouse.state.versions import Lineage
from dormouse.stored.paths import dead_letter_queue, make_shard_id
from dormouse.system import OwnFolder
from dormouse.tables.indexing import shredded_paths, term_columns
from dormouse.tables.properties import bloom_columns
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

# Decide whether an ingest writes a shard for each leaf, or shards that span leaves.

MIN_LEAF_BYTES = 8 * 1024 * 1024
"""The size in memory from which the rows of a leaf, on average, are worth a shard of their own.

A shard costs a PUT request, about 10 milliseconds and 9 KB, however few rows it has. The request
alone costs as much as the time in which so many bytes of rows are sorted and written."""


def spans_leaves(strategy: str, size_bytes: int, leaves: int) -> bool:
    """Return whether rows of `size_bytes` in memory, which lie in so many leaves, share shards.

    `strategy` is the property ``ingest_file_strategy``.
    """
    if strategy == "auto":
        return size_bytes < leaves * MIN_LEAF_BYTES and leaves > 1
    return strategy == "one_reference_per_leaf"


def count_leaves_holding(keys: Iterable[Key], leaves: Sequence[Partition]) -> int:
    """Return in how many leaves the keys lie; `leaves` are all leaves, in key order.

    Keys may have more columns than the row keys: the sort keys after them do not change the leaf.
    """
    starts = [leaf.range.min for leaf in leaves]
    return len({bisect_right(starts, key) for key in keys})


SCRATCH_FULL = "the scratch space was full before all rows were sorted and written"
NAMED = 20
"""How many files of rejected rows a record names."""
ATTEMPTS = 5
"""How often a job is tried because other jobs ingest some of its sources at the same time."""

REPEAT_PREFIX = "repeated-"
"""The prefix of a record's id if the job was delivered once more after it had finished."""
_DELETED = "its table was deleted after the file was dropped"
_OF_A_TABLE = "drop it again for the table that is to have it"
RETRYABLE_RULES = {
    Rule.SOURCE_INGESTED,
    Rule.SOURCES_SEALED,
    Rule.DELETION_EXISTS,
    Rule.STALE_GENERATION,
    Rule.PARTITION_MISSING,
}
"""A commit that breaks one of these rules may succeed when it is retried with the newest state."""


@dataclass(frozen=True, slots=True)
class Written:
    """The accepted sources of a job, how many rows they have, and the shards written from them.

    The shards may have fewer rows: the table's filters drop some, and its aggregations merge some.
    `known` counts the sources that were ingested before; `rejected` are rows that were left out of
    accepted sources, and are not among `rows_read`. `emptied` is as `SourceLoader` has it.
    """

    accepted: tuple[Source, ...] = ()
    rows_read: int = 0
    shards: tuple[NewShard, ...] = ()
    known: int = 0
    rejected: tuple[RejectedRows, ...] = ()
    emptied: Emptied | None = None

    @property
    def rows_rejected(self) -> int:
        """How many rows were left out."""
        return sum(each.rows for each in self.rejected)

    @property
    def rows(self) -> int:
        """The rows of the shards."""
        return sum(new.shard.rows for new in self.shards)


Write = Callable[[Services, Table, TableState, Sequence[Source]], Written]
"""Write sources as shards, in this process or elsewhere, and record the malformed ones as refused.
"""


def write_in_process(
    services: Services,
    table: Table,
    state: TableState,
    sources: Sequence[Source],
    begins: Begins | None = None,
    local: LocalRows | None = None,
) -> Written:
    """Write sources as shards in this process; `begins` is called as `Begins` says. Without a
    download, if the only one is `local`.

    A source that alone does not fit into the scratch space of a process is refused.

    Raises:
        OutOfSpaceError: the sources do not fit together; whether each alone does is not known.
        OSError: the scratch space is full, and others fill it too.
    """
    try:
        return _write_in_scratch(services, table, state, sources, begins, local)
    except OSError as error:
        if error.errno != errno.ENOSPC or not services.owns_scratch:
            raise
        if len(sources) > 1:
            raise OutOfSpaceError(SCRATCH_FULL, hint="ingest fewer files at once") from error
    too_large = RefusedSourceError(SCRATCH_FULL, hint="drop the rows in smaller files")
    refuse(services, table.id, sources[0], too_large)
    return Written()


def _write_in_scratch(
    services: Services,
    table: Table,
    state: TableState,
    sources: Sequence[Source],
    begins: Begins | None,
    local: LocalRows | None,
) -> Written:
    with _scratch(services, local) as folder:
        loader = loader_of(
            table,
            services.storage,
            Path(folder),
            memory_bytes=services.memory_bytes,
            tagged=have_row_tags(sources),
            keys=services.keys,
        )
        if local is None:
            loaded = load_sources(services.sources, loader, sources, Path(folder), begins)
        else:
            loaded = load_local(loader, sources[0], local)
        accepted = []
        with closing(loaded):
            for source, refusal in loaded:
                if refusal is None:
                    accepted.append(source)
                else:
                    refuse(services, table.id, source, refusal)
        if not accepted:
            return Written()
        shards = _write(services, table, state, loader, accepted, Path(folder))
    counts = tuple(accepted), loader.sorter.rows, tuple(shards)
    return Written(*counts, rejected=tuple(loader.rejected), emptied=loader.emptied)


def _scratch(services: Services, local: LocalRows | None) -> AbstractContextManager[str | Path]:
    """Make a folder for what is spilled and written, unless the rows are few, and in memory: the
    files of their shards are removed by what writes them. Where others write, they would see them.
    """
    is_shared = services.scratch.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if local is None or isinstance(local, Path) or is_shared:
        return OwnFolder(dir=services.scratch)
    return nullcontext(services.scratch)


def ingest(
    services: Services, job: IngestJob, write: Write = write_in_process
) -> list[OutboundMessage]:
    """Ingest those sources of `job` that are not ingested yet; refuse malformed ones one by one.

    Raises:
        ContendedError: other jobs kept ingesting the same sources; the message should be retried.
        OutOfSpaceError: the files do not fit into the scratch space together.
    """
    table = services.table(job.table_id)
    if table is None:
        for source in job.sources:
            refuse(services, NO_TABLE, source, RefusedSourceError(_DELETED, hint=_OF_A_TABLE))
        return []
    changed = [OutboundMessage("table-changes", TableChanged(table.id))]
    if is_ingested(services, table, job):
        _record_known(services, table, job)
        # an earlier run may have crashed between its commit and these messages
        return [*changed, *plain_files(services, table, job)]
    ingesting = jobs.tracked_job(job)
    with jobs.tracked(services, ingesting, Started(**_facts(job))):
        result = _ingest(services, table, job, write)
    _record_end(services, table, job, result)
    # planning finishes a reset if the state is behind the registry
    return [*changed, *plain_files(services, table, job)]


def ingest_at_once(
    services: Services, table: Table, job: IngestJob, local: LocalRows
) -> Written | None:
    """Ingest the only source of a job, which is `local`, for a caller that waits; None if the table
    was reset since.

    No message has the job, so nobody takes it up after a crash: only its end is recorded, and the
    caller knows no more than that it may have landed.
    Raises as `ingest`.
    """
    result = _ingest(services, table, job, partial(write_in_process, local=local))
    if result is not None:
        with suppress(UnavailableError):  # such as of a full disk: the rows have landed
            _record_end(services, table, job, result)
    return result


def _record_end(services: Services, table: Table, job: IngestJob, written: Written | None) -> None:
    """Record what a job has written, or that the table was reset since."""
    ingesting = jobs.tracked_job(job)
    if written is None:
        reason = "the table was reset since the files were dropped"
        is_one = len(job.sources) == 1  # then the record of the file says all
        jobs.record(services, ingesting, Finished(jobs.FILE_REFUSED) if is_one else Refused(reason))
        error = RefusedSourceError(reason, hint="drop them again for the table as it is now")
        for source in look_up_sources(services, table, job.sources).fresh(job.sources):
            refuse(services, table.id, source, error)  # who waits for a file looks for its record
        return
    if written.known and not written.accepted:
        _record_known(services, table, job)  # an earlier run, or another meanwhile, ingested them
        return
    remarks = (_reason(written, job), _left_out(services, written), _dropped(written, table))
    rows_read = written.rows_read + written.rows_rejected
    reason = "; ".join(filter(None, remarks))
    end = Finished(reason, **_facts(job), rows=written.rows, rows_read=rows_read)
    jobs.record(services, ingesting, end)


def _ingest(services: Services, table: Table, job: IngestJob, write: Write) -> Written | None:
    """Write and commit the sources not ingested yet; None if the table was reset since."""
    for _ in range(ATTEMPTS):
        lookup = look_up_sources(services, table, job.sources)
        state = lookup.state
        if job.generation < max(state.generation, table.generation):
            return None
        if job.generation > state.generation:
            raise ContendedError(f"table {table.name!r} is about to be reset")
        fresh = lookup.fresh(job.sources)
        table = with_times(services, table)
        written = write(services, table, state, fresh) if fresh else Written()
        if _commit(services, table, state, written):
            return replace(written, known=len(lookup.ids))
    raise ContendedError(
        f"other jobs ingested sources of ingest job {job.job_id} during all {ATTEMPTS} attempts"
    )


MOST_SKEW_MS = 60 * 1000
"""By how much the clocks of two processes differ at most."""


def with_times(services: Services, table: Table) -> Table:
    """Return a table with the types that its times have now, after sources were searched for.
    Raises ContendedError: it is being looked up whether they can become finer.
    """
    if not any(map(may_lose_range, table.schema.values)):
        return table
    newest = services.table(table.id)
    if newest is None or newest.schema_generation != table.schema_generation:
        return table
    if services.clock.now_ms() < newest.finer_until_ms + MOST_SKEW_MS:
        raise ContendedError(f"the times of table {table.name!r} are about to become nanoseconds")
    return replace(table, schema=newest.schema)


def is_ingested(services: Services, table: Table, job: IngestJob) -> bool:
    """Return whether all sources of a job were ingested before."""
    lookup = look_up_sources(services, table, job.sources)
    return job.generation == lookup.state.generation and not lookup.fresh(job.sources)


def _record_known(services: Services, table: Table, job: IngestJob) -> None:
    """Record that a job added no rows.

    If the record of the run that added them exists, it stays, and this one gets an id of its own.
    If this run began over a record that was finished, that is as it was again.
    """
    earlier = services.tracker.get(table.id, job.job_id)
    if earlier is not None and earlier.rows and not earlier.is_finished:
        was = Finished(earlier.reason, rows=earlier.rows, rows_read=earlier.rows_read)
        services.tracker.record(jobs.tracked_job(job), was, services.clock.now_ms())
        return
    is_recorded = (
        earlier is not None
        and earlier.state == "finished"
        and earlier.reason != jobs.ALREADY_INGESTED
    )
    repeat_id = f"{REPEAT_PREFIX}{job.job_id}" if is_recorded else job.job_id
    end = Finished(jobs.ALREADY_INGESTED, **_facts(job))
    jobs.record(services, TrackedJob(table.id, repeat_id, "ingest"), end)


def subject_of(job: IngestJob) -> str:
    """Return the subject of a job's record: its file, or how many files it has."""
    first = job.sources[0]
    files = first.key if len(job.sources) == 1 else f"{len(job.sources)} files"
    return f"{files}, again" if first.repeat_request else files


def _facts(job: IngestJob) -> dict[str, Any]:
    """Return what the records of a job say of its files."""
    size_bytes = sum(source.size_bytes for source in job.sources)
    return {"subject": subject_of(job), "files": len(job.sources), "size_bytes": size_bytes}


def _reason(written: Written, job: IngestJob) -> str:
    """Return what is remarkable about a job that ended; empty if nothing is."""
    if not written.known:
        return jobs.FILE_REFUSED if len(job.sources) == 1 and not written.accepted else ""
    return f"{written.known} of {len(job.sources)} files were already ingested"


def _left_out(services: Services, written: Written) -> str:
    """Return how many rows were rejected, and where they are; empty if none were."""
    if not written.rejected:
        return ""
    rejected, ingested = written.rows_rejected, written.rows_read
    where = ", ".join(f"{services.storage.uri}/{each.path}" for each in written.rejected[:NAMED])
    more = len(written.rejected) - NAMED
    where += f" and {more} more files there" if more > 0 else ""
    return (
        f"{rejected + ingested:,} rows read, {ingested:,} ingested, {rejected:,} rejected: see "
        f"{where}"
    )


def _dropped(written: Written, table: Table) -> str:
    """Return what became of rows that the table's filters dropped; empty if they dropped none."""
    rules = row_rules(table.schema, table.properties)
    if written.rows == written.rows_read or not (rules.age_off or rules.where):
        return ""
    whys = ["fail the condition of where"] if rules.where else []
    if age := rules.age_off:
        numbers = f", and so are the numbers in {age.column.name!r}, since 1970"
        whys.append(
            f"are older than ageOff: {age.age_ms:,} are milliseconds ({age.age_ms / 1000:,g} s)"
            + (numbers if age.column.type is Primitive.LONG else "")
        )
    whys += ["were combined with others of their keys"] if rules.aggregation else []
    count = f"{written.rows_read:,} row{'s'[: written.rows_read != 1]} read, {written.rows:,} kept"
    return f"{count}: those left out {' or '.join(whys)}"


def _commit(services: Services, table: Table, state: TableState, written: Written) -> bool:
    """Commit what was written for `state`.

    Return False if the job should be retried with the newest state.
    """
    if not written.accepted:
        return True
    outcome = _commit_with_lookups(services, table, state, written)
    if not isinstance(outcome, Rejected):
        return True
    # The audit deletes the shards as orphans. This process read bytes that others chose, so its
    # role may not delete objects.
    broken = {violation.rule for violation in outcome.violations}
    if broken <= RETRYABLE_RULES:
        return False
    raise ContendedError(f"the ingest was rejected: {outcome}")


def _commit_with_lookups(
    services: Services, table: Table, state: TableState, written: Written
) -> Outcome:
    """Commit what was written; look the sources up again whenever sources were sealed meanwhile.

    The fold checks a commit's sources against those that the state still holds, so it rejects a
    commit whose look-up is older than the last sealing. Another look-up is enough then, and the
    shards need not be written again. Sources that other jobs have ingested by then are returned as
    the violations that the fold reports for sources not sealed yet.
    """
    job, sources = job_id_of(written.accepted), tuple(s.remembered_id for s in written.accepted)
    deletion, known_deletions = None, {each.id for each in state.deletions}
    if written.emptied is not None and id_of_job(job, state.generation) not in known_deletions:
        is_known = bool(written.shards or table.properties.latest_by)
        unheld = () if is_known else sources
        deletion = _deletion(table, state, written.emptied, job, unheld)
    looked_up_to, lookups = state.sealed_to, 1
    while True:
        addition = AddShards(job, sources, written.shards, looked_up_to, deletion)
        (outcome,) = services.store(table).commit(addition, generation=state.generation)
        rules = {v.rule for v in outcome.violations} if isinstance(outcome, Rejected) else ()
        if lookups == ATTEMPTS or rules != {Rule.SOURCES_SEALED}:
            return outcome
        lookup, lookups = look_up_sources(services, table, written.accepted), lookups + 1
        if with_times(services, table).schema != table.schema:
            return outcome  # it is written again, with these
        if lookup.ids:
            return Rejected(tuple(Violation(Rule.SOURCE_INGESTED, s) for s in sorted(lookup.ids)))
        looked_up_to = lookup.state.sealed_to


def _deletion(
    table: Table, state: TableState, emptied: Emptied, job: str, sources: tuple[str, ...]
) -> Deletion:
    """Return the deletion of what was there when the source of a job's files emptied its table. A
    rebuild finds the job's shards by its id; without any, it finds in it `sources` that must not
    come again.
    """
    by = table.properties.latest_by
    deletion = deletion_of_all(id_of_job(job, state.generation), table.schema, by, emptied.position)
    return structs.replace(deletion, sources=sources)


def _write(
    services: Services,
    table: Table,
    state: TableState,
    loader: SourceLoader,
    sources: Sequence[Source],
    folder: Path,
) -> list[NewShard]:
    attempt = jobs.new_run(services, table)
    schema, tags = ingested_schema(table, sources)
    context = ShardContext(
        table_id=table.id,
        schema=schema,
        job=job_id_of(tuple(sources)),
        written_ms=services.clock.now_ms(),
        generation=state.generation,
        bloom_columns=bloom_columns(table.schema, table.properties),
        term_columns=term_columns(table.schema, table.properties),
        paths=shredded_paths(table.schema, table.properties),
        lineage=Lineage(sources=tuple(s.remembered_id for s in sources)),
        tags=tags,
    )
    leaves = list(state.partitions.leaves())
    holding = len(leaves)  # as little as this shares shards, in however few leaves it lies
    if loader.sorter.size_bytes >= MIN_LEAF_BYTES:
        holding = count_leaves_holding(loader.sorter.sampled_keys(), leaves)
    strategy = table.properties.ingest_file_strategy
    return write_shards(
        services.storage.with_commits(),
        ruled_rows(
            loader.sorter.sorted_rows(),
            table,
            context.written_ms,
            loader.columns,
            schema,
            loader.emptied,
            lambda n: services.tracker.reserve_row_ids(table.id, n, context.written_ms),
        ),
        context,
        leaves,
        lambda n: make_shard_id(attempt, n),
        scratch=folder,
        target_bytes=table.properties.shard_target_bytes,
        spanning=spans_leaves(strategy, loader.sorter.size_bytes, holding),
    )


# Run ingest jobs in functions, and isolate a file that crashes them from the others of its job.
#
# An attempt at a job is recorded before a file of it is read. So a reader that ends its process
# (out of memory, time-out, a fault of a library) is known to the next one. The second attempt also
# records each file before it reads it. After two attempts in a row crashed, the next one splits the
# job into one job per file: the other files are ingested, and the one at which the second crashed
# is not read again. It is handed to Spark. Without Spark it is refused, so that no audit sends it
# again, and its message moves to the dead-letter queue, from where a person can redrive it; nothing
# else has it read again, also if it is dropped again. If the second crashed elsewhere, the runs of
# each file alone decide. Files that do not fit into the scratch space together are split at once.

ISOLATED_AFTER_CRASHES = f"{jobs.CRASHED}: {jobs.ISOLATED}"
ENDS_ITS_READER = (
    f"{jobs.CRASH_LIMIT} attempts ended with their process while they worked on it: out of memory "
    "or time, or by a fault of a library that reads it"
)
WHAT_TO_DO = (
    "drop its rows in smaller files, or deploy with a larger RowsMemory or with Spark=yes, and "
    "then: dormouse dlq redrive ingest-jobs"
)
ISOLATED_FOR_SPACE = f"the files do not fit into the scratch space together: {jobs.ISOLATED}"


def ingest_or_isolate(services: Services, job: IngestJob) -> list[OutboundMessage]:
    """Ingest a job; if that is too much for a function, return smaller jobs or one for Spark.
    Raises ContendedError: other jobs kept ingesting the same sources, or another attempt at this
    one may still live; the message should be retried.
    """
    record = services.tracker.get(job.table_id, job.job_id)
    _check_alone(services, job, record)
    if len(job.sources) == 1:
        return _ingest_single(services, job)
    if reason := _isolation_reason(record):
        return _isolate(services, job, reason, _suspect(job, record))
    try:
        return ingest(services, job, _marking(services, job, record))
    except OutOfSpaceError:
        return _isolate(services, job, ISOLATED_FOR_SPACE)


def _check_alone(services: Services, job: IngestJob, record: JobRecord | None) -> None:
    """Check that no other attempt at a job lives: one that does has not crashed.
    Raises ContendedError: one may.
    """
    if record is None or record.state != "running":
        return
    if services.clock.now_ms() - record.started_ms < services.attempt_ms:
        raise ContendedError(f"another attempt at ingest job {job.job_id} may still be running")


def _marking(services: Services, job: IngestJob, record: JobRecord | None) -> Write:
    """Return what writes a job; after a crash, it records which file it is about to read."""
    if record is None or not record.crashed_attempts:
        return write_in_process

    def begins(source: Source | None) -> None:
        subject = subject_of(job) if source is None else source.key
        jobs.record(services, jobs.tracked_job(job), Progressed(subject=subject))

    return partial(write_in_process, begins=begins)


def _suspect(job: IngestJob, record: JobRecord | None) -> Source | None:
    """Return the file that the last attempt began to read; None if it had not begun, or had read
    all of them: see `_marking`.
    """
    subject = "" if record is None else record.subject
    return next((source for source in job.sources if source.key == subject), None)


def _ingest_single(services: Services, job: IngestJob) -> list[OutboundMessage]:
    """Ingest the only file of a job; give it up if its runs crashed."""
    table = services.table(job.table_id)
    refusal = _set_aside(services, job)
    if table is None or not (refusal or jobs.has_crashed(services, job.table_id, job.job_id)):
        return ingest(services, job)
    if is_ingested(services, table, job):  # its last run died after the commit
        return ingest(services, job)
    if refusal:
        refuse(services, table.id, job.sources[0], RefusedSourceError(refusal))  # who waits looks
        return []
    return _give_up(services, job)


def _set_aside(services: Services, job: IngestJob) -> str:
    """Return why the only file of a job was set aside; empty if it was not, or if a person wants it
    read after all. There may be other messages about it: it may have been dropped after each death.
    """
    record = services.tracker.get(job.table_id, job.sources[0].id)
    if job.after_all or record is None or record.state != "refused":
        return ""
    return record.reason if record.reason.startswith(ENDS_ITS_READER) else ""


def _give_up(services: Services, job: IngestJob) -> list[OutboundMessage]:
    """Hand the only file of a job to Spark, or refuse it."""
    if services.has_spark:
        return jobs.hand_to_spark(services, job, jobs.CRASHED)
    (source,) = job.sources
    error = RefusedSourceError(ENDS_ITS_READER, hint=WHAT_TO_DO)
    if (table := services.table(job.table_id)) is not None:
        refuse(services, table.id, source, error)
    jobs.record(
        services, jobs.tracked_job(job), Failed(error.explanation, subject=source.key, files=1)
    )
    letter = structs.replace(job, after_all=True)
    return [OutboundMessage(dead_letter_queue("ingest-jobs"), letter, reason=error.explanation)]


def _isolate(
    services: Services, job: IngestJob, reason: str, suspect: Source | None = None
) -> list[OutboundMessage]:
    """Return a job for each file of a job; give the one up that is suspected."""
    jobs.record(services, jobs.tracked_job(job), Finished(reason=reason))
    messages: list[OutboundMessage] = []
    for source in job.sources:
        one = (source,)
        alone = IngestJob(job.table_id, job.generation, job_id_of(one, job.generation), one)
        if source == suspect:
            messages += _give_up(services, alone)
        else:
            messages.append(OutboundMessage("ingest-jobs", alone))
    return messages


def _isolation_reason(record: JobRecord | None) -> str:
    """Return why a job is to be split into one job per file; empty if it is not.

    A job that was split before is split again: an earlier run may have crashed between its record
    and its messages.
    """
    if record is None:
        return ""
    if jobs.is_isolated(record):
        return record.reason
    return ISOLATED_AFTER_CRASHES if record.crashed_attempts >= jobs.CRASH_LIMIT else ""
