"""ingest: a job's files → sorted shards, one commit.

Order of writes: shards, then the commit, then the messages. A crash before the commit leaves
shards nobody references (``sweep`` deletes them when they are old), a crash after it repeats the
job, which finds its sources ingested. The sources are part of the commit, so no rows come twice.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dormouse.engine.row_rules import apply_row_rules
from dormouse.errors import ContendedError, OutOfSpaceError, RefusedSourceError
from dormouse.features.ingest.known_sources import look_up
from dormouse.features.ingest.placement import leaves_holding, spans_leaves
from dormouse.fold.rules import Rule, Violation
from dormouse.jobs.tracking import ALREADY_INGESTED, record, tracked
from dormouse.messages import IngestJob, OutboundMessage, TableChanged
from dormouse.model.provenance import Lineage
from dormouse.model.shards import NewShard
from dormouse.model.sources import Source, job_id_of
from dormouse.model.state import TableState
from dormouse.model.transactions import AddShards
from dormouse.ports import NO_TABLE, Services
from dormouse.shards.writing import ShardContext, write_shards
from dormouse.sources.loader import SourceLoader, load_source
from dormouse.state_store import Outcome, Rejected
from dormouse.stored.paths import make_shard_id
from dormouse.tables.csv_dialect import csv_dialect
from dormouse.tables.row_rules import row_rules
from dormouse.tables.table import Table

FULL = "the scratch space was full before all rows were sorted and written"
ATTEMPTS = 5
"""How often a job starts over because others ingested some of its sources meanwhile."""

REPEATED = "repeated-"
"""What the id of a record begins with that a job came once more after it was done."""
PASSING = {
    Rule.SOURCE_INGESTED,
    Rule.SOURCES_SEALED,
    Rule.STALE_GENERATION,
    Rule.PARTITION_MISSING,
}
"""What a commit breaks that another attempt, with the newest state, need not."""


@dataclass(frozen=True, slots=True)
class Written:
    """What is good of a job's sources, how many rows these have, and the shards made of them.

    There may be fewer rows in the shards: the table's rules drop or join some. `known` counts the
    sources that were ingested before.
    """

    accepted: tuple[Source, ...] = ()
    rows_read: int = 0
    shards: tuple[NewShard, ...] = ()
    known: int = 0

    @property
    def rows(self) -> int:
        """The rows of the shards."""
        return sum(new.shard.rows for new in self.shards)


Write = Callable[[Services, Table, TableState, Sequence[Source]], Written]
"""Makes shards of sources, wherever that is done, and refuses and records bad ones."""


def write_here(
    services: Services, table: Table, state: TableState, sources: Sequence[Source]
) -> Written:
    """Make shards of sources in this process.

    A source that does not fit into the scratch space alone is refused.

    Raises:
        OutOfSpaceError: the sources do not fit together; whether each does, is not known.
    """
    try:
        return _write_in_scratch(services, table, state, sources)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        if len(sources) > 1:
            raise OutOfSpaceError(FULL, hint="ingest fewer files at once") from error
    too_large = RefusedSourceError(FULL, hint="drop the rows in smaller files")
    refuse(services, table, sources[0], too_large)
    return Written()


def _write_in_scratch(
    services: Services, table: Table, state: TableState, sources: Sequence[Source]
) -> Written:
    with tempfile.TemporaryDirectory(dir=services.scratch) as folder:
        intake = SourceLoader(
            table.schema,
            Path(folder),
            memory_bytes=services.memory_bytes,
            dialect=csv_dialect(table.properties),
        )
        accepted = tuple(s for s in sources if _take(services, table, intake, s, Path(folder)))
        if not accepted:
            return Written()
        shards = _write(services, table, state, intake, accepted, Path(folder))
    return Written(accepted, intake.rows, tuple(shards))


def ingest(services: Services, job: IngestJob, write: Write = write_here) -> list[OutboundMessage]:
    """Ingest those sources of `job` which are not ingested yet; refuse bad ones, file by file.

    Raises:
        ContendedError: others kept ingesting the same sources; the message should come again.
        OutOfSpaceError: the files do not fit into the scratch space together.
    """
    table = services.table(job.table_id)
    if table is None:
        _refuse_all(services, job)
        return []
    changed = [OutboundMessage("table-changes", TableChanged(table.id))]
    if is_known(services, table, job):
        _record_known(services, table, job)
        return changed  # that it changed may not have been told
    with tracked(
        services,
        table.id,
        job.job_id,
        "ingest",
        subject=_subject(job),
        files=len(job.sources),
        size_bytes=sum(source.size_bytes for source in job.sources),
    ):
        written = _ingest(services, table, job, write)
    if written is None:
        reason = "the table was emptied since the files were dropped"
        record(services, table.id, job.job_id, "ingest", "refused", reason=reason)
        return changed  # if the state is behind, the planning lets it begin
    record(
        services,
        table.id,
        job.job_id,
        "ingest",
        "finished",
        reason=_why_fewer(written, job),
        rows=written.rows,
        rows_read=written.rows_read,
    )
    return changed


def _ingest(services: Services, table: Table, job: IngestJob, write: Write) -> Written | None:
    """Write and commit what is not ingested yet; None if the table was emptied since."""
    for _ in range(ATTEMPTS):
        known = look_up(services, table, job.sources)
        state = known.state
        if job.generation < max(state.generation, table.generation):
            return None
        if job.generation > state.generation:
            raise ContendedError(f"table {table.name!r} is about to be emptied")
        fresh = known.fresh(job.sources)
        written = write(services, table, state, fresh) if fresh else Written()
        if _commit(services, table, state, written):
            return replace(written, known=len(known.ids))
    raise ContendedError(f"ingest job {job.job_id} lost {ATTEMPTS} times to other jobs")


def is_known(services: Services, table: Table, job: IngestJob) -> bool:
    """Return whether all of a job was ingested before, so that there is nothing to do."""
    known = look_up(services, table, job.sources)
    return job.generation == known.state.generation and not known.fresh(job.sources)


def _record_known(services: Services, table: Table, job: IngestJob) -> None:
    """Record that a job added nothing, and keep what is recorded of the run that did."""
    earlier = services.tracker.get(table.id, job.job_id)
    is_told = (
        earlier is not None and earlier.state == "finished" and earlier.reason != ALREADY_INGESTED
    )
    record(
        services,
        table.id,
        f"{REPEATED}{job.job_id}" if is_told else job.job_id,
        "ingest",
        "finished",
        subject=_subject(job),
        reason=ALREADY_INGESTED,
        files=len(job.sources),
        size_bytes=sum(source.size_bytes for source in job.sources),
    )


def _subject(job: IngestJob) -> str:
    """Return what a job is about, as its record shows it."""
    first = job.sources[0]
    what = first.key if len(job.sources) == 1 else f"{len(job.sources)} files"
    return f"{what}, again" if first.again else what


def _why_fewer(written: Written, job: IngestJob) -> str:
    if not written.known:
        return ""
    if written.known == len(job.sources):
        return ALREADY_INGESTED
    return f"{written.known} of {len(job.sources)} files were already ingested"


def _refuse_all(services: Services, job: IngestJob) -> None:
    """Tell people of files that came too late for their table."""
    for source in job.sources:
        reason = "its table was deleted after the file was dropped"
        record(
            services,
            NO_TABLE,
            source.id,
            "ingest",
            "refused",
            subject=source.key,
            reason=f"{reason}; drop it again for the table that is to have it",
        )


def _commit(services: Services, table: Table, state: TableState, written: Written) -> bool:
    """Commit what was written for `state`; False to try again: others had some of the sources."""
    if not written.accepted:
        return True
    outcome = _commit_looking(services, table, state, written)
    if not isinstance(outcome, Rejected):
        return True
    # Nobody can need the shards: the audit deletes them, for who reads foreign bytes deletes none.
    broken = {violation.rule for violation in outcome.violations}
    if broken <= PASSING:
        return False
    raise ContendedError(f"the ingest was rejected: {outcome}")


def _commit_looking(
    services: Services, table: Table, state: TableState, written: Written
) -> Outcome:
    """Commit what was written; look the sources up again each time some were sealed meanwhile.

    What is written stays good then, however long it took to write. Sources which others had by now
    break a rule, as those do that are not sealed yet.
    """
    job, sources = job_id_of(written.accepted), tuple(s.id for s in written.accepted)
    looked_up_to, looks = state.sealed_to, 1
    while True:
        addition = AddShards(job, sources, written.shards, looked_up_to)
        (outcome,) = services.store(table).commit(addition, generation=state.generation)
        if looks == ATTEMPTS or not isinstance(outcome, Rejected) or not _was_sealed(outcome):
            return outcome
        known, looks = look_up(services, table, written.accepted), looks + 1
        if known.ids:
            return Rejected(tuple(Violation(Rule.SOURCE_INGESTED, s) for s in sorted(known.ids)))
        looked_up_to = known.state.sealed_to


def _was_sealed(outcome: Rejected) -> bool:
    """Return whether nothing is wrong but that sources were sealed since they were looked up."""
    return {violation.rule for violation in outcome.violations} == {Rule.SOURCES_SEALED}


def refuse(services: Services, table: Table, source: Source, error: RefusedSourceError) -> None:
    """Record for people that a file is no good, and why."""
    record(
        services,
        table.id,
        source.id,
        "ingest",
        "refused",
        subject=source.key,
        reason=error.explanation,
    )


def _take(
    services: Services, table: Table, intake: SourceLoader, source: Source, folder: Path
) -> bool:
    """Take in the rows of a source; record it as refused if it is no good."""
    try:
        load_source(services.sources, intake, source, folder)
    except RefusedSourceError as error:
        refuse(services, table, source, error)
        return False
    return True


def _write(
    services: Services,
    table: Table,
    state: TableState,
    intake: SourceLoader,
    sources: Sequence[Source],
    folder: Path,
) -> list[NewShard]:
    attempt = services.ids.new()
    rules = row_rules(table.schema, table.properties)
    context = ShardContext(
        table_id=table.id,
        schema=table.schema,
        job=job_id_of(tuple(sources)),
        written_ms=services.clock.now_ms(),
        generation=state.generation,
        lineage=Lineage(sources=tuple(s.id for s in sources)),
    )
    leaves = list(state.partitions.leaves())
    holding = leaves_holding(intake.sampled_keys(), leaves)
    strategy = table.properties.ingest_file_strategy
    return write_shards(
        services.storage,
        apply_row_rules(intake.sorted_rows(), table.schema, rules, context.written_ms),
        context,
        leaves,
        lambda n: make_shard_id(attempt, n),
        scratch=folder,
        target_bytes=table.properties.shard_target_bytes,
        spanning=spans_leaves(strategy, intake.size_bytes, holding),
    )
