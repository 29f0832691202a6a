"""What becomes of a run that ends without a word: of time, of memory, or of a crash.

A function that is cut off says nothing. The tracker shows such a run as one that still goes on.
When two in a row ended so, the same is not tried a third time in the same place: this module says
when that is, and gives the job to Spark where there is Spark. Where there is none, `ingest_apart`
takes files apart, `compact_apart` cuts keys, and what cannot be made smaller is set aside: people
are told once what to do, and nothing begins it again where it was but a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dormouse.jobs.tracking import record
from dormouse.messages import CompactionJob, OutboundMessage, SparkJob
from dormouse.ports import Services
from dormouse.stored.names import job_notes_prefix, parse_job_note_path, set_aside_path

CRASH_LIMIT = 2
"""One run that died may have been any function's bad luck. A message is given up after three."""
CRASHED = f"{CRASH_LIMIT} runs ended without a word, out of time or memory"
FUNCTION: Literal["function"] = "function"
SPARK: Literal["spark"] = "spark"
Place = Literal["function", "spark"]


def has_crashed(services: Services, table_id: str, job_id: str) -> bool:
    """Return whether the newest runs of a job ended without a word, so that more would be in vain.

    A run that still goes on is taken for one that ended, if the job comes twice more meanwhile.
    """
    known = services.tracker.get(table_id, job_id)
    return known is not None and known.crashed_attempts >= CRASH_LIMIT


def hand_to_spark(
    services: Services, job: SparkJob, kind: str, reason: str
) -> list[OutboundMessage]:
    """Return the message that gives a job to Spark; requires that the instance has Spark.

    A compaction whose runs crashed is noted as none for a function, also if Spark gives it up.
    """
    if isinstance(job, CompactionJob) and reason == CRASHED:
        set_aside(services, job.table_id, job.job_id, FUNCTION)
    told = f"it is given to Spark: {reason}"
    record(services, job.table_id, job.job_id, kind, "assigned", reason=told)
    return [OutboundMessage("spark-jobs", job)]


def set_aside(services: Services, table_id: str, job_id: str, place: Place) -> None:
    """Note that a job which stays assigned is not tried again by itself in this place."""
    services.storage.put(set_aside_path(table_id, job_id, place), b"")


@dataclass(frozen=True, slots=True)
class JobNotes:
    """What is kept of a job: where it is set aside, when it last got on, and the notes' paths."""

    set_aside: frozenset[str] = frozenset()
    newest_ms: int = 0
    paths: tuple[str, ...] = ()


def job_notes(services: Services, table_id: str) -> Mapping[str, JobNotes]:
    """Return what is kept of a table's jobs that were too much for one function, by job."""
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
