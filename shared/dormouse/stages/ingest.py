"""ingest: a job's files → sorted shards, one commit.

Order of writes: shards, then the commit, then the messages. A crash before the commit leaves
shards nobody references (``sweep`` deletes them when they are old), a crash after it repeats the
job, which finds its sources ingested. The sources are part of the commit, so no rows come twice.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dormouse.errors import ContendedError, RefusedSourceError
from dormouse.messages import IngestJob, Outgoing, TableChanged
from dormouse.model.names import shard_id_in, shard_path
from dormouse.model.origins import Lineage
from dormouse.model.row_rules import row_rules
from dormouse.model.rules import Rule
from dormouse.model.shards import NewShard
from dormouse.model.sources import Source, job_id_of
from dormouse.model.state import TableState
from dormouse.model.tables import Table
from dormouse.model.transactions import AddShards
from dormouse.policy.placement import leaves_holding, spans_leaves
from dormouse.ports import NO_TABLE, Services
from dormouse.shards.intake import Intake
from dormouse.shards.refining import refined
from dormouse.shards.writing import ShardContext, write_shards
from dormouse.stages.tracking import record, tracked
from dormouse.statestore.protocol import Rejected

ATTEMPTS = 5
"""How often a job starts over because others ingested some of its sources meanwhile."""


def ingest(services: Services, job: IngestJob) -> list[Outgoing]:
    """Ingest those sources of `job` which are not ingested yet; refuse bad ones, file by file.

    Raises:
        ContendedError: others kept ingesting the same sources; the message should come again.
    """
    table = services.table(job.table_id)
    if table is None:
        _refuse_all(services, job)
        return []
    changed = [Outgoing("table-changes", TableChanged(table.id))]
    with tracked(
        services,
        table.id,
        job.job_id,
        "ingest",
        subject=job.sources[0].key if len(job.sources) == 1 else f"{len(job.sources)} files",
        files=len(job.sources),
        size_bytes=sum(source.size_bytes for source in job.sources),
    ):
        for _ in range(ATTEMPTS):
            state = services.store(table).current()
            if job.generation < state.generation:
                reason = "the table was emptied since the files were dropped"
                record(services, table.id, job.job_id, "ingest", "refused", reason=reason)
                return []
            if job.generation > state.generation:
                raise ContendedError(f"table {table.name!r} is about to be emptied")
            now_ms = services.clock.now_ms()
            fresh = [s for s in job.sources if not state.has_ingested(s.id, now_ms)]
            done = _attempt(services, table, state, fresh) if fresh else _Done()
            if done is not None:
                record(
                    services,
                    table.id,
                    job.job_id,
                    "ingest",
                    "finished",
                    rows=done.rows,
                    rows_read=done.rows_read,
                )
                return changed
        raise ContendedError(f"ingest job {job.job_id} lost {ATTEMPTS} times to other jobs")


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


@dataclass(frozen=True, slots=True)
class _Done:
    """Rows of good files, and how many came of them: the table's rules may drop or join some."""

    rows_read: int = 0
    rows: int = 0


def _attempt(
    services: Services, table: Table, state: TableState, sources: Sequence[Source]
) -> _Done | None:
    """Write and commit what is good of `sources`; give None to try again."""
    with tempfile.TemporaryDirectory(dir=services.scratch) as folder:
        intake = Intake(table.schema, Path(folder), memory_bytes=services.memory_bytes)
        accepted = tuple(s for s in sources if _take(services, table, intake, s, Path(folder)))
        if not accepted:
            return _Done()
        shards = _write(services, table, state, intake, accepted, Path(folder))
    addition = AddShards(job_id_of(accepted), tuple(s.id for s in accepted), tuple(shards))
    (outcome,) = services.store(table).commit(addition, generation=state.generation)
    if not isinstance(outcome, Rejected):
        return _Done(intake.rows, sum(new.shard.rows for new in shards))
    # Known not to have landed, and its names are this attempt's own: nobody can need the shards.
    # The last goes first: a run without it is never taken for one that was committed.
    paths = [shard_path(table.id, new.shard.id) for new in shards]
    services.storage.delete(paths[-1:])
    services.storage.delete(paths[:-1])
    broken = {violation.rule for violation in outcome.violations}
    if broken <= {Rule.SOURCE_INGESTED, Rule.STALE_GENERATION, Rule.PARTITION_MISSING}:
        return None
    raise ContendedError(f"the ingest was rejected: {outcome}")


def _take(services: Services, table: Table, intake: Intake, source: Source, folder: Path) -> bool:
    """Download a source and take in its rows; record it as refused if it is no good."""
    local = folder / source.id
    try:
        services.sources.download(source, local)
        intake.add(local, source.key)
    except RefusedSourceError as error:
        record(
            services,
            table.id,
            source.id,
            "ingest",
            "refused",
            subject=source.key,
            reason=error.explanation,
        )
        return False
    finally:
        local.unlink(missing_ok=True)
    return True


def _write(
    services: Services,
    table: Table,
    state: TableState,
    intake: Intake,
    sources: Sequence[Source],
    folder: Path,
) -> list[NewShard]:
    attempt = services.ids.new()
    rules = row_rules(table.schema, table.properties)
    context = ShardContext(
        table_id=table.id,
        schema=table.schema,
        job=job_id_of(tuple(sources)),
        tree=state.partitions,
        written_ms=services.clock.now_ms(),
        generation=state.generation,
        lineage=Lineage(sources=tuple(s.id for s in sources)),
    )
    leaves = list(state.partitions.leaves())
    holding = leaves_holding(intake.sampled_keys(), leaves)
    strategy = table.properties.ingest_file_strategy
    return write_shards(
        services.storage,
        refined(intake.sorted_rows(), table.schema, rules, context.written_ms),
        context,
        leaves,
        lambda n: shard_id_in(attempt, n),
        scratch=folder,
        target_bytes=table.properties.shard_target_bytes,
        spanning=spans_leaves(strategy, intake.size_bytes, holding),
    )
