"""A table's jobs, from the tracker and from the table's state."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dormouse.client.contents import files_that_wait
from dormouse.client.listing import listed_jobs
from dormouse.features.administration import request_by_now
from dormouse.features.batch_files import look_up_source_ids
from dormouse.jobs import FILE_REFUSED
from dormouse.ports import NO_TABLE, Services
from dormouse.showing import Listing
from dormouse.state.jobs import JobRecord
from dormouse.state.sources import Source
from dormouse.state.state import TableState
from dormouse.tables.table import Table

SINCE_INGESTED = "it was refused at first; dropped again, it was ingested"


def jobs_of(services: Services, table: Table, *, reads_requests: bool = True) -> Listing[JobRecord]:
    """Return a table's jobs, also those not yet run, files that wait to be taken up by one, and
    files dropped before the table existed. Requests are shown as they are now, or unless this
    process may read them, as they were when they were last looked at.
    """
    tracker = services.tracker
    records = {record.job_id: record for record in tracker.records(table.id)}
    if reads_requests:
        records = {job: request_by_now(services, table, records[job]) for job in records}
    refusals = [
        job
        for job, record in records.items()
        if (record.kind, record.state) == ("ingest", "refused")
    ]
    lookup = look_up_source_ids(services, table, refusals)
    for job in lookup.ids:
        records[job] = replace(records[job], state="finished", reason=SINCE_INGESTED)
    for source in files_that_wait(services, table)[1]:
        # A file that was refused and dropped again waits.
        if source.id not in records or records[source.id].state == "refused":
            records[source.id] = _waiting(table, source)
    own = _without_jobs_of_refused(records)
    assigned = (r for r in _assigned(table, lookup.state) if r.job_id not in records)
    folder = f"{table.name}/"
    before = (
        record
        for record in tracker.records(NO_TABLE)
        if record.kind == "ingest"
        and record.subject.startswith(folder)
        and record.job_id not in records
    )
    return listed_jobs([*own, *assigned, *before])


def _without_jobs_of_refused(records: Mapping[str, JobRecord]) -> list[JobRecord]:
    """Return the records without those of jobs that only refused their file: it has its own."""
    refusals = {(r.subject, r.reason) for r in records.values() if r.state == "refused"}
    files = {subject for subject, _ in refusals}
    return [
        record
        for record in records.values()
        if (record.kind, record.files) != ("ingest", 1)
        or not (record.state == "failed" and (record.subject, record.reason) in refusals)
        and not (record.reason == FILE_REFUSED and record.subject in files)
    ]


def _waiting(table: Table, source: Source) -> JobRecord:
    return JobRecord(
        table.id,
        source.id,
        "ingest",
        "waiting",
        subject=source.key,
        updated_ms=source.dropped_ms,
        files=1,
        size_bytes=source.size_bytes,
    )


def _assigned(table: Table, state: TableState) -> Iterator[JobRecord]:
    for job in state.jobs.values():
        references = (state.reference(job.partition, shard) for shard in job.inputs)
        yield JobRecord(
            table.id,
            job.id,
            "compaction",
            "assigned",
            subject=job.partition,
            updated_ms=job.assigned_ms,
            files=len(job.inputs),
            size_bytes=sum(state.shards[shard].size_bytes for shard in job.inputs),
            rows_read=sum(reference.rows for reference in references if reference is not None),
            purge_id=job.purge_id or "",
        )
