"""Assigned compactions that make no progress, which a sweep sends again."""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.features.spark.jobs import QUEUE as SPARK_QUEUE
from dormouse.jobs.crashes import FUNCTION, SPARK, JobNotes, job_notes
from dormouse.jobs.sweep_check import SweepCheck
from dormouse.messages.stages import CompactionJob, OutboundMessage
from dormouse.model.jobs.spark_threshold import compaction_queue


def overdue_compactions(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield messages of assigned jobs that make no progress.

    Jobs that Spark runs are left out, and jobs that are set aside where they would run.
    """
    services, table, state = check.services, check.table, check.state
    notes = job_notes(services, table.id) if len(state.jobs) else {}
    here = SPARK if services.has_spark else FUNCTION
    for job in sorted(state.jobs.values(), key=lambda job: job.id):
        note = notes.get(job.id, JobNotes())
        if job.id in check.with_spark or here in note.set_aside:
            continue
        is_due = check.is_due(max(job.assigned_ms, note.newest_ms))
        if not is_due and not check.is_lost(job.id):
            continue
        message = CompactionJob(table.id, state.generation, job.id)
        if note.set_aside and services.has_spark:  # it was too large for functions
            yield OutboundMessage(SPARK_QUEUE, message)
        else:
            yield OutboundMessage(compaction_queue(state, job, table.properties), message)
