"""ingest: write a job's files as sorted shards, and commit them in one transaction.

Order of writes: shards, commit, messages. A crash before the commit leaves orphaned shards, which
``sweep`` deletes once they are old. A crash after it repeats the job, which then finds its sources
ingested. The sources are part of the commit, so no row is added twice.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from dormouse.engine.row_rules import apply_row_rules
from dormouse.errors import ContendedError, OutOfSpaceError, RefusedSourceError
from dormouse.features.ingest.known_sources import look_up_sources
from dormouse.features.ingest.placement import count_leaves_holding, spans_leaves
from dormouse.fold.rules import Rule, Violation
from dormouse.jobs.runs import new_run
from dormouse.jobs.tracking import (
    ALREADY_INGESTED,
    FILE_REFUSED,
    record,
    tracked,
    tracked_job,
)
from dormouse.messages.stages import IngestJob, OutboundMessage, TableChanged
from dormouse.model.jobs.job_events import Finished, Refused, Started, TrackedJob
from dormouse.model.shards import NewShard
from dormouse.model.sources import Source, job_id_of
from dormouse.model.state import TableState
from dormouse.model.transactions import AddShards
from dormouse.model.versions.provenance import Lineage
from dormouse.ports.services import NO_TABLE, Services
from dormouse.schema.types import Primitive
from dormouse.shards.writing.division import ShardContext, write_shards
from dormouse.sources.loader import Begins, SourceLoader, load_sources, loader_of
from dormouse.sources.rejects import RejectedRows
from dormouse.state_store import Outcome, Rejected
from dormouse.stored.paths import make_shard_id
from dormouse.tables.bloom_columns import bloom_columns
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

SCRATCH_FULL = "the scratch space was full before all rows were sorted and written"
NAMED = 20
"""How many files of rejected rows a record names."""
ATTEMPTS = 5
"""How often a job is tried because other jobs ingest some of its sources at the same time."""

REPEAT_PREFIX = "repeated-"
"""The prefix of a record's id if the job was delivered once more after it had finished."""
RETRYABLE_RULES = {
    Rule.SOURCE_INGESTED,
    Rule.SOURCES_SEALED,
    Rule.STALE_GENERATION,
    Rule.PARTITION_MISSING,
}
"""A commit that breaks one of these rules may succeed when it is retried with the newest state."""


@dataclass(frozen=True, slots=True)
class Written:
    """The accepted sources of a job, how many rows they have, and the shards written from them.

    The shards may have fewer rows: the table's filters drop some, and its aggregations merge some.
    `known` counts the sources that were ingested before; `rejected` are rows that were left out of
    accepted sources, and are not among `rows_read`.
    """

    accepted: tuple[Source, ...] = ()
    rows_read: int = 0
    shards: tuple[NewShard, ...] = ()
    known: int = 0
    rejected: tuple[RejectedRows, ...] = ()

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
) -> Written:
    """Write sources as shards in this process; `begins` is called as `Begins` says.

    A source that alone does not fit into the scratch space of a process is refused.

    Raises:
        OutOfSpaceError: the sources do not fit together; whether each alone does is not known.
        OSError: the scratch space is full, and others fill it too.
    """
    try:
        return _write_in_scratch(services, table, state, sources, begins)
    except OSError as error:
        if error.errno != errno.ENOSPC or not services.owns_scratch:
            raise
        if len(sources) > 1:
            raise OutOfSpaceError(SCRATCH_FULL, hint="ingest fewer files at once") from error
    too_large = RefusedSourceError(SCRATCH_FULL, hint="drop the rows in smaller files")
    refuse(services, table, sources[0], too_large)
    return Written()


def _write_in_scratch(
    services: Services,
    table: Table,
    state: TableState,
    sources: Sequence[Source],
    begins: Begins | None,
) -> Written:
    with tempfile.TemporaryDirectory(dir=services.scratch) as folder:
        loader = loader_of(
            table, services.storage, Path(folder), memory_bytes=services.memory_bytes
        )
        accepted = tuple(_load(services, table, loader, sources, Path(folder), begins))
        if not accepted:
            return Written()
        shards = _write(services, table, state, loader, accepted, Path(folder))
    return Written(accepted, loader.rows, tuple(shards), rejected=tuple(loader.rejected))


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
        _refuse_all(services, job)
        return []
    changed = [OutboundMessage("table-changes", TableChanged(table.id))]
    if is_ingested(services, table, job):
        _record_known(services, table, job)
        return changed  # an earlier run may have crashed between its commit and this message
    ingesting = tracked_job(job)
    started = Started(
        subject=subject_of(job),
        files=len(job.sources),
        size_bytes=sum(source.size_bytes for source in job.sources),
    )
    with tracked(services, ingesting, started):
        written = _ingest(services, table, job, write)
    if written is None:
        reason = "the table was reset since the files were dropped"
        is_one = len(job.sources) == 1  # then the record of the file says all
        record(services, ingesting, Finished(FILE_REFUSED) if is_one else Refused(reason))
        gone = RefusedSourceError(reason, hint="drop them again for the table as it is now")
        for source in look_up_sources(services, table, job.sources).fresh(job.sources):
            refuse(services, table, source, gone)  # who waits for a file looks for its own record
        return changed  # planning finishes the reset if the state is behind the registry
    if written.known == len(job.sources):
        _record_known(services, table, job)  # another run ingested them meanwhile
        return changed
    said = (_reason(written, job), _left_out(services, written), _dropped(written, table))
    read = written.rows_read + written.rows_rejected
    reason = "; ".join(filter(None, said))
    record(services, ingesting, Finished(reason, rows=written.rows, rows_read=read))
    return changed


def _ingest(services: Services, table: Table, job: IngestJob, write: Write) -> Written | None:
    """Write and commit the sources not ingested yet; None if the table was reset since."""
    for _ in range(ATTEMPTS):
        known = look_up_sources(services, table, job.sources)
        state = known.state
        if job.generation < max(state.generation, table.generation):
            return None
        if job.generation > state.generation:
            raise ContendedError(f"table {table.name!r} is about to be reset")
        fresh = known.fresh(job.sources)
        written = write(services, table, state, fresh) if fresh else Written()
        if _commit(services, table, state, written):
            return replace(written, known=len(known.ids))
    raise ContendedError(
        f"other jobs ingested sources of ingest job {job.job_id} during all {ATTEMPTS} attempts"
    )


def is_ingested(services: Services, table: Table, job: IngestJob) -> bool:
    """Return whether all sources of a job were ingested before."""
    known = look_up_sources(services, table, job.sources)
    return job.generation == known.state.generation and not known.fresh(job.sources)


def _record_known(services: Services, table: Table, job: IngestJob) -> None:
    """Record that a job added no rows.

    If the record of the run that added them exists, it stays, and this one gets an id of its own.
    If this run began over a record that was finished, that is as it was again.
    """
    earlier = services.tracker.get(table.id, job.job_id)
    if earlier is not None and earlier.rows and not earlier.is_finished:
        was = Finished(rows=earlier.rows, rows_read=earlier.rows_read)
        services.tracker.record(tracked_job(job), was, services.clock.now_ms())
        return
    is_recorded = (
        earlier is not None and earlier.state == "finished" and earlier.reason != ALREADY_INGESTED
    )
    repeat_id = f"{REPEAT_PREFIX}{job.job_id}" if is_recorded else job.job_id
    known = Finished(
        ALREADY_INGESTED,
        subject=subject_of(job),
        files=len(job.sources),
        size_bytes=sum(source.size_bytes for source in job.sources),
    )
    record(services, TrackedJob(table.id, repeat_id, "ingest"), known)


def subject_of(job: IngestJob) -> str:
    """Return the subject of a job's record: its file, or how many files it has."""
    first = job.sources[0]
    files = first.key if len(job.sources) == 1 else f"{len(job.sources)} files"
    return f"{files}, again" if first.repeat_request else files


def _reason(written: Written, job: IngestJob) -> str:
    """Return what is remarkable about a job that ended; empty if nothing is."""
    if not written.known:
        return FILE_REFUSED if len(job.sources) == 1 and not written.accepted else ""
    return f"{written.known} of {len(job.sources)} files were already ingested"


def _left_out(services: Services, written: Written) -> str:
    """Return how many rows were rejected, and where they are; empty if none were."""
    if not written.rejected:
        return ""
    left, kept = written.rows_rejected, written.rows_read
    where = ", ".join(f"{services.storage.uri}/{each.path}" for each in written.rejected[:NAMED])
    more = len(written.rejected) - NAMED
    where += f" and {more} more files there" if more > 0 else ""
    return f"{left + kept:,} rows read, {kept:,} ingested, {left:,} rejected: see {where}"


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


def _refuse_all(services: Services, job: IngestJob) -> None:
    """Record the files of a deleted table as refused."""
    for source in job.sources:
        reason = "its table was deleted after the file was dropped"
        record(
            services,
            TrackedJob(NO_TABLE, source.id, "ingest"),
            Refused(
                f"{reason}; drop it again for the table that is to have it", subject=source.key
            ),
        )


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
    looked_up_to, lookups = state.sealed_to, 1
    while True:
        addition = AddShards(job, sources, written.shards, looked_up_to)
        (outcome,) = services.store(table).commit(addition, generation=state.generation)
        if lookups == ATTEMPTS or not isinstance(outcome, Rejected) or not _was_sealed(outcome):
            return outcome
        known, lookups = look_up_sources(services, table, written.accepted), lookups + 1
        if known.ids:
            return Rejected(tuple(Violation(Rule.SOURCE_INGESTED, s) for s in sorted(known.ids)))
        looked_up_to = known.state.sealed_to


def _was_sealed(outcome: Rejected) -> bool:
    """Return whether a commit was rejected only because sources were sealed since the look-up."""
    return {violation.rule for violation in outcome.violations} == {Rule.SOURCES_SEALED}


def refuse(services: Services, table: Table, source: Source, error: RefusedSourceError) -> None:
    """Record a file as refused, with the reason and what to do."""
    record(
        services,
        TrackedJob(table.id, source.id, "ingest"),
        Refused(error.explanation, subject=source.key),
    )


def _load(
    services: Services,
    table: Table,
    loader: SourceLoader,
    sources: Sequence[Source],
    folder: Path,
    begins: Begins | None,
) -> Iterator[Source]:
    """Load the rows of sources, and yield those that are accepted; record the others as refused."""
    with closing(load_sources(services.sources, loader, sources, folder, begins)) as loaded:
        for source, refusal in loaded:
            if refusal is None:
                yield source
            else:
                refuse(services, table, source, refusal)


def _write(
    services: Services,
    table: Table,
    state: TableState,
    loader: SourceLoader,
    sources: Sequence[Source],
    folder: Path,
) -> list[NewShard]:
    attempt = new_run(services, table)
    rules = row_rules(table.schema, table.properties)
    context = ShardContext(
        table_id=table.id,
        schema=table.schema,
        job=job_id_of(tuple(sources)),
        written_ms=services.clock.now_ms(),
        generation=state.generation,
        bloom_columns=bloom_columns(table.schema, table.properties),
        lineage=Lineage(sources=tuple(s.remembered_id for s in sources)),
    )
    leaves = list(state.partitions.leaves())
    holding = count_leaves_holding(loader.sampled_keys(), leaves)
    strategy = table.properties.ingest_file_strategy
    return write_shards(
        services.storage,
        apply_row_rules(loader.sorted_rows(), table.schema, rules, context.written_ms),
        context,
        leaves,
        lambda n: make_shard_id(attempt, n),
        scratch=folder,
        target_bytes=table.properties.shard_target_bytes,
        spanning=spans_leaves(strategy, loader.size_bytes, holding),
    )
