"""follow_request: check whether the jobs of a request have ended; then record and send the outcome.

Order: the final reply is saved, the record of the request is written, the reply is sent, and then
the stored request is deleted. So the final reply is the same however often it is sent, and it is
sent at least once: a redelivered step finds it. The sweep starts a new chain of steps for a request
whose chain was lost, or to which nobody wants a reply; the latter is only recorded.
"""

from __future__ import annotations

from dataclasses import replace

from dormouse.errors import CorruptDataError, UnavailableError
from dormouse.features.administration.stored_requests import (
    StoredRequest,
    delete_request,
    is_reply_wanted,
    load_reply,
    load_request,
    save_reply,
)
from dormouse.features.purge.request import PurgeWork
from dormouse.features.requests.outcomes import JobCheck, JobOutcome
from dormouse.features.requests.resolve_table import key_of_request
from dormouse.jobs.retry_policy import is_chain_expired
from dormouse.jobs.tracking import record_request
from dormouse.messages.replies import Reply, ReplyJob, reply_to, to_outbound
from dormouse.messages.stages import OutboundMessage, RequestStep
from dormouse.model.state import DAY_MS
from dormouse.ports.services import NO_TABLE, JobRecord, Services
from dormouse.tables.table import Table

MIN_WAIT_SECONDS, MAX_WAIT_SECONDS = 2, 300
WAITS_PER_AGE = 4
"""The wait between checks is this part of the request's age, so short work is answered soon."""
GIVE_UP_MS = 3 * DAY_MS
"""After this time, jobs that have not ended are reported as unfinished."""
TABLE_DELETED = "the table was deleted before the outcome of the request was known"


def follow_request(services: Services, step: RequestStep) -> list[OutboundMessage]:
    """Check the jobs of a request; return its final reply, or the step that checks again.

    If nobody wants a reply, only the outcome is recorded, and the next sweep checks again.

    Raises:
        CorruptDataError: the stored request, or what is stored about its jobs, is damaged.
    """
    table = services.table(step.table_id)
    if table is None:
        return _reply_of_deleted_table(services, step)
    is_wanted = is_reply_wanted(services, table.id, step.key)
    request = load_request(services, table.id, step.key)
    reply = load_reply(services, table.id, step.key)
    if reply is None and request is not None:
        reply = _final_reply(services, table, step.key, request)
        if reply is None:
            return _next_step(services, table, step, request) if is_wanted else []
        if is_wanted:
            reply = save_reply(services, table.id, step.key, reply)
    if reply is None:
        return []
    if request is not None:  # a delivery that came meanwhile may have recorded it as accepted
        record_request(services, table.id, reply, request.subject)
    if is_wanted:
        return [to_outbound(reply)]
    delete_request(services, step)
    return []


def request_by_now(services: Services, table: Table, known: JobRecord) -> JobRecord:
    """Return the record of an accepted request as the next sweep will write it, if its jobs have
    ended since; any other record as it is.

    The rows of a purge are gone only once all objects with them are, which the sweep looks for. A
    caller who may not read requests sees what is recorded.
    """
    if known.state != "accepted":
        return known
    key = key_of_request(known.job_id, known.subject)
    try:
        request = load_request(services, table.id, key)
        if request is None or isinstance(request.work, PurgeWork):
            return known
        reply = _final_reply(services, table, key, request)
    except CorruptDataError as error:  # it keeps no other record from being listed
        return replace(known, reason=error.explanation)
    except UnavailableError:
        return known
    if reply is None:
        return known
    counts = reply.counts
    return replace(
        known,
        state=reply.outcome,
        reason=reply.reason,
        files=counts.files or known.files,
        size_bytes=counts.size_bytes or known.size_bytes,
        rows=counts.rows or counts.removed,
    )


def _next_step(
    services: Services, table: Table, step: RequestStep, request: StoredRequest
) -> list[OutboundMessage]:
    now_ms = services.clock.now_ms()
    retry_ms = table.properties.job_retry_seconds * 1000
    begun_ms = step.begun_ms or request.requested_ms
    if is_chain_expired(begun_ms, request.requested_ms, now_ms, retry_ms):
        return []
    age_seconds = (now_ms - request.requested_ms) // 1000
    wait_seconds = min(max(age_seconds // WAITS_PER_AGE, MIN_WAIT_SECONDS), MAX_WAIT_SECONDS)
    return [OutboundMessage("admin", step, wait_seconds)]


def _final_reply(
    services: Services, table: Table, key: str, request: StoredRequest
) -> Reply | None:
    """Return the final reply to a request; None while its jobs have not ended."""
    found = _outcomes(services, table, key, request)
    if found is None:
        return None
    undone = [ReplyJob(o.kind, o.id, o.state, o.reason) for o in found if o.state is not None]
    return reply_to(
        request.request_id,
        request.verb,
        "failed" if undone else "finished",
        table_id=table.id,
        reason=_summary(undone),
        counts=sum((outcome.total for outcome in found), request.counts),
        jobs=undone,
    )


def _outcomes(
    services: Services, table: Table, key: str, request: StoredRequest
) -> list[JobOutcome] | None:
    """Return the outcomes of all jobs; None while one may change and there is time to wait."""
    now_ms = services.clock.now_ms()
    wait_ms = GIVE_UP_MS + request.work.extra_wait_ms(table)
    is_late = now_ms - request.requested_ms > wait_ms
    check = JobCheck(services, table, key, request.requested_ms, now_ms)
    found = []
    for outcome in request.work.outcomes(check):
        if outcome.is_pending and not is_late:
            return None
        found.append(outcome)
    return found


def _reply_of_deleted_table(services: Services, step: RequestStep) -> list[OutboundMessage]:
    """Return the final reply to a request about a deleted table; none if it was sent before."""
    reply = load_reply(services, step.table_id, step.key)
    if reply is not None:
        return [to_outbound(reply)]
    if not step.request_id or not step.request:
        return []
    known = services.tracker.get(step.table_id, step.request_id)
    if known is not None and known.is_finished:
        return []
    reply = reply_to(
        step.request_id, step.request, "failed", table_id=step.table_id, reason=TABLE_DELETED
    )
    record_request(services, NO_TABLE, reply, known.subject if known is not None else "")
    return [to_outbound(reply)]


def _summary(undone: list[ReplyJob]) -> str:
    if not undone:
        return ""
    files = sum(job.kind == "file" for job in undone)
    jobs = len(undone) - files
    parts = [f"{files} files"] if files else []
    parts += [f"{jobs} jobs"] if jobs else []
    return f"not done: {' and '.join(parts)}, first {undone[0].id}: {undone[0].reason}"
