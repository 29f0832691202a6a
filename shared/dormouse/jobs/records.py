"""What a tracker keeps of a job: which of two records of it, what of it, and for how long.

All trackers share these rules, wherever they keep the records.
"""

from __future__ import annotations

from dataclasses import replace

from dormouse.model.job_records import JobRecord

RECORDS_KEPT_SECONDS = 7 * 24 * 60 * 60
REFUSALS_KEPT_SECONDS = 35 * 24 * 60 * 60
"""Longer than audits look at a dropped file: one that was refused is not judged again by itself."""
BOUND_KEPT_SECONDS = 30 * 24 * 60 * 60
"""Twice as long as SQS keeps any message, a dead letter too."""
MAX_REASON_CHARACTERS = 10_000
"""Items of DynamoDB end at 400 KB, and people read on no further anyway."""
MAX_SUBJECT_CHARACTERS = 1024  # as many as a key of S3 has


def following(kept: JobRecord | None, record: JobRecord) -> JobRecord | None:
    """Return what is kept of a job after a record of it; None if what is kept stays.

    The rules are those of `ports.Tracker.record`.
    """
    if kept is not None and kept.updated_ms > record.updated_ms:
        return None
    if kept is not None and (kept.state, record.state) == ("finished", "assigned"):
        return None
    before = kept or JobRecord(record.table_id, record.job_id, record.kind, "")
    begun = record.state == "running"
    ended_ms = record.updated_ms if record.is_finished else 0
    return replace(
        record,
        reason=record.reason[:MAX_REASON_CHARACTERS],
        subject=record.subject[:MAX_SUBJECT_CHARACTERS] or before.subject,
        files=record.files or before.files,
        size_bytes=record.size_bytes or before.size_bytes,
        started_ms=record.updated_ms if begun else before.started_ms,
        finished_ms=0 if begun else ended_ms or before.finished_ms,
        attempts=before.attempts + begun,
        crashed_attempts=0 if record.is_finished else before.crashed_attempts + begun,
    )


def seconds_kept(record: JobRecord) -> int:
    """Return how long a record is kept after its last change."""
    is_file = (record.kind, record.state) == ("ingest", "refused")  # requests may quote rows
    return REFUSALS_KEPT_SECONDS if is_file else RECORDS_KEPT_SECONDS
