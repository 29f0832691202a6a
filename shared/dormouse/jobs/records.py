"""What a tracker keeps of a job: which of two records of it, what of it, and for how long.

All trackers share these rules, wherever they keep the records.
"""

from __future__ import annotations

from dormouse.model.jobs.job_records import JobRecord

RECORDS_KEPT_SECONDS = 7 * 24 * 60 * 60
REFUSALS_KEPT_SECONDS = 35 * 24 * 60 * 60
"""Longer than audits look at a dropped file: one that was refused is not judged again by itself."""
BOUND_KEPT_SECONDS = 30 * 24 * 60 * 60
"""Twice as long as SQS keeps any message, a dead letter too."""


def seconds_kept(record: JobRecord) -> int:
    """Return how long a record is kept after its last change."""
    is_file = (record.kind, record.state) == ("ingest", "refused")  # requests may quote rows
    return REFUSALS_KEPT_SECONDS if is_file else RECORDS_KEPT_SECONDS
