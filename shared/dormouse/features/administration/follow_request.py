"""follow_request: have the jobs that a request caused ended? Then it is recorded and answered.

Order: the reply is kept, the request's record is written, the reply is sent, and then the request
is forgotten. So the last reply says the same however often it is sent, and it is sent
at least once: a step that comes again finds it, and the sweep begins a chain of steps of its own
for a request whose chain was lost, or that nobody wants a reply to: that one is just recorded.
"""

from __future__ import annotations

from dormouse.features.administration.stored_requests import (
    Asked,
    forget_answered,
    is_reply_wanted,
    keep_reply,
    kept_asked,
    kept_reply,
)
from dormouse.features.requests.ends import End, Look
from dormouse.jobs.retry_policy import is_chain_expired
from dormouse.jobs.tracking import record_request
from dormouse.messages import OutboundMessage, RequestStep
from dormouse.model.state import DAY_MS
from dormouse.ports import NO_TABLE, Services
from dormouse.replies import Reply, ReplyJob, reply_to, to_outbound
from dormouse.tables.table import Table

LEAST_WAIT_SECONDS, MOST_WAIT_SECONDS = 2, 300
WAITS_PER_AGE = 4
"""A request waits by this part of its age: what ends soon is answered soon."""
PATIENCE_MS = 3 * DAY_MS
"""What has not ended by then is called unfinished: somebody waits for an answer."""
GONE = "the table was deleted before it was known that all was done"


def follow_request(services: Services, step: RequestStep) -> list[OutboundMessage]:
    """Look at the jobs of a request; return its last reply, or the step that looks again.

    Where nobody wants a reply, its end is recorded only, and the next sweep looks again.

    Raises:
        CorruptDataError: what is kept of the request, or of its jobs, is damaged.
    """
    table = services.table(step.table_id)
    if table is None or table.deleting:
        return _gone(services, step)
    is_wanted = is_reply_wanted(services, table.id, step.key)
    asked = kept_asked(services, table.id, step.key)
    reply = kept_reply(services, table.id, step.key)
    if reply is None and asked is not None:
        reply = _last(services, table, step.key, asked)
        if reply is None:
            return _next_step(services, table, step, asked) if is_wanted else []
        if is_wanted:
            reply = keep_reply(services, table.id, step.key, reply)
    if reply is None:
        return []
    if asked is not None:  # the record may be that of a delivery which came meanwhile
        record_request(services, table.id, reply, asked.subject)
    if is_wanted:
        return [to_outbound(reply)]
    forget_answered(services, step)
    return []


def _next_step(
    services: Services, table: Table, step: RequestStep, asked: Asked
) -> list[OutboundMessage]:
    now_ms = services.clock.now_ms()
    retry_ms = table.properties.job_retry_seconds * 1000
    if is_chain_expired(step.begun_ms or asked.asked_ms, asked.asked_ms, now_ms, retry_ms):
        return []
    age_seconds = (now_ms - asked.asked_ms) // 1000
    wait = min(max(age_seconds // WAITS_PER_AGE, LEAST_WAIT_SECONDS), MOST_WAIT_SECONDS)
    return [OutboundMessage("admin", step, wait)]


def _last(services: Services, table: Table, key: str, asked: Asked) -> Reply | None:
    """Return the last reply to a request; None if there is still something to wait for."""
    found = _ended(services, table, key, asked)
    if found is None:
        return None
    undone = [ReplyJob(e.kind, e.id, e.state, e.reason) for e in found if e.state is not None]
    return reply_to(
        asked.request_id,
        asked.request,
        "failed" if undone else "finished",
        table_id=table.id,
        reason=_summary(undone),
        counts=sum((end.total for end in found), asked.counts),
        jobs=undone,
    )


def _ended(services: Services, table: Table, key: str, asked: Asked) -> list[End] | None:
    """Return how all jobs ended; None while one is worth waiting for."""
    now_ms = services.clock.now_ms()
    retry_ms = PATIENCE_MS + asked.work.extra_patience_ms(table)
    is_late = now_ms - asked.asked_ms > retry_ms
    look = Look(services, table, key, asked.asked_ms, now_ms)
    found = []
    for end in asked.work.ends(look):
        if end.is_pending and not is_late:
            return None
        found.append(end)
    return found


def _gone(services: Services, step: RequestStep) -> list[OutboundMessage]:
    """Return the last reply to a request about a table that is gone, unless it was made before."""
    reply = kept_reply(services, step.table_id, step.key)
    if reply is not None:
        return [to_outbound(reply)]
    if not step.request_id or not step.request:
        return []
    told = services.tracker.get(step.table_id, step.request_id)
    if told is not None and told.is_finished:
        return []
    reply = reply_to(step.request_id, step.request, "failed", table_id=step.table_id, reason=GONE)
    record_request(services, NO_TABLE, reply, told.subject if told is not None else "")
    return [to_outbound(reply)]


def _summary(undone: list[ReplyJob]) -> str:
    if not undone:
        return ""
    files = sum(job.kind == "file" for job in undone)
    jobs = len(undone) - files
    parts = [f"{files} files"] if files else []
    parts += [f"{jobs} jobs"] if jobs else []
    return f"not done: {' and '.join(parts)}, first {undone[0].id}: {undone[0].reason}"
