"""Spark jobs that have not ended in time, which a sweep continues."""

from __future__ import annotations

from collections.abc import Iterator

from dormouse.features.spark.jobs import QUEUE
from dormouse.jobs.sweep_check import SweepCheck
from dormouse.messages.stages import OutboundMessage, SparkJobStep


def overdue_spark_jobs(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield a step for each Spark job that is due: the event that its run ended may be lost."""
    for job_id, requested_ms in check.spark_jobs.items():
        if check.is_due(requested_ms):
            yield OutboundMessage(QUEUE, SparkJobStep(check.table.id, job_id))
