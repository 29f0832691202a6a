"""batch_files: objects dropped into the ingest bucket → ingest jobs, table by table.

A notification is deleted from its queue only when the job that covers it was sent, so a crash
repeats jobs and never loses one; a job whose sources are ingested already does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from dormouse.errors import RefusedSourceError
from dormouse.messages import IngestJob, Outgoing
from dormouse.model.sources import Source, job_id_of, table_name_of
from dormouse.model.tables import Table
from dormouse.policy.batching import batches
from dormouse.ports import NO_TABLE, Services
from dormouse.stages.tracking import record


def batch_files(services: Services, sources: Sequence[Source]) -> list[Outgoing]:
    """Give the ingest jobs of `sources`; what belongs to no table is recorded as refused."""
    by_table: dict[Table, dict[str, Source]] = {}
    tables: dict[str, Table | None] = {}
    for source in sources:
        try:
            table = _table_of(services, source, tables)
        except RefusedSourceError as error:
            record(
                services,
                NO_TABLE,
                source.id,
                "ingest",
                "refused",
                subject=source.key,
                reason=error.explanation,
            )
        else:
            by_table.setdefault(table, {})[source.id] = source
    return [
        Outgoing("ingest-jobs", IngestJob(table.id, table.generation, job_id_of(job), job))
        for table, found in by_table.items()
        for job in batches(tuple(found.values()))
    ]


def _table_of(services: Services, source: Source, seen: dict[str, Table | None]) -> Table:
    name = table_name_of(source.key)
    if name not in seen:
        seen[name] = services.tables.named(name)
    table = seen[name]
    if table is None or table.deleting:
        raise RefusedSourceError(
            f"there is no table {name!r}", hint="create the table, then drop the file again"
        )
    return table
