"""Decide what happens to a job whose attempts crash: out of time, out of memory, or by a bug.

A function that is cut off records nothing, and the tracker shows the attempt as still running.
After `CRASH_LIMIT` such attempts in a row, the same job is not tried again in the same place. An
instance with Spark gives it to Spark. Without Spark, `isolate_files` splits an ingest into one job
per file, and `compact_in_steps` cuts a compaction by key. What cannot be made smaller is set aside:
a dead letter says once what to do, and only a person starts the job again in that place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dormouse.jobs.tracking import record, tracked_job
from dormouse.messages.stages import CompactionJob, OutboundMessage, SparkJob
from dormouse.model.jobs.job_events import Assigned
from dormouse.ports.services import Services
from dormouse.stored.paths import job_notes_prefix, parse_job_note_path, set_aside_path

CRASH_LIMIT = 2
"""One crashed attempt may be bad luck. A message moves to the dead-letter queue after three
receives."""
CRASHED = f"{CRASH_LIMIT} attempts crashed, out of time or memory"
FUNCTION: Literal["function"] = "function"
SPARK: Literal["spark"] = "spark"
WHOLE: Literal["whole"] = "whole"
"""Not as a whole in one function; without Spark, steps may do it."""
Place = Literal["function", "spark", "whole"]


def has_crashed(services: Services, table_id: str, job_id: str) -> bool:
    """Return whether the newest attempts at a job crashed, so that another would be useless.

    An attempt that still runs counts as crashed if the job is delivered twice more meanwhile.
    """
    known = services.tracker.get(table_id, job_id)
    return known is not None and known.crashed_attempts >= CRASH_LIMIT


def hand_to_spark(services: Services, job: SparkJob, reason: str) -> list[OutboundMessage]:
    """Return the message that gives a job to Spark. Requires that the instance has Spark.

    A compaction whose attempts crashed is set aside as a whole, also if Spark fails it.
    """
    if isinstance(job, CompactionJob) and reason == CRASHED:
        set_aside(services, job.table_id, job.job_id, WHOLE)
    record(services, tracked_job(job), Assigned(f"handed to Spark: {reason}"))
    return [OutboundMessage("spark-jobs", job)]


def set_aside(services: Services, table_id: str, job_id: str, place: Place) -> None:
    """Mark that a job that stays assigned is not retried automatically in this place."""
    services.storage.put(set_aside_path(table_id, job_id, place), b"")


@dataclass(frozen=True, slots=True)
class JobNotes:
    """What is stored about a job: where it is set aside, when it last made progress, and the
    paths.
    """

    set_aside: frozenset[str] = frozenset()
    newest_ms: int = 0
    paths: tuple[str, ...] = ()


def job_notes(services: Services, table_id: str) -> Mapping[str, JobNotes]:
    """Return what is stored about a table's jobs that were too large for one function, by job
    id.
    """
    found: dict[str, JobNotes] = {}
    for stored in services.storage.list(job_notes_prefix(table_id)):
        job_id, name = parse_job_note_path(stored.path)
        before = found.get(job_id, JobNotes())
        place = name.removeprefix("set-aside-")
        aside = {place} - {name}  # a step's note names no place
        found[job_id] = JobNotes(
            before.set_aside | aside,
            max(before.newest_ms, stored.modified_ms),
            (*before.paths, stored.path),
        )
    return found
