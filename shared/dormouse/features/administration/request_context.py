"""One request: its table, what earlier deliveries of it did, and the replies to it.

A request is recorded under its table, as the table's jobs are. A request that is about no table,
or about one that does not exist, is recorded under `NO_TABLE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from dormouse.errors import InvalidRequestError
from dormouse.features.administration.stored_requests import (
    AnyWork,
    StoredRequest,
    first_step,
    load_reply,
    load_request,
    mark_reply_wanted,
    save_request,
)
from dormouse.features.requests.resolve_table import request_key, resolve_table_id
from dormouse.features.requests.work import RequestResult, reply_jobs
from dormouse.features.tables.changing.create_table import new_table_id
from dormouse.jobs.tracking import record_request
from dormouse.messages.replies import Counts, Outcome, Reply, ReplyJob, reply_to, to_outbound
from dormouse.messages.requests import (
    AdminRequest,
    ClearAccess,
    CreateTable,
    GrantAccess,
    Redrive,
    RevokeAccess,
    SetDefaults,
    verb_of,
)
from dormouse.messages.stages import OutboundMessage
from dormouse.ports.services import NO_TABLE, JobRecord, Services

INSTANCE_NAME = "(instance)"
"""The subject of a request about no table."""
_OUTCOMES: Mapping[str, Outcome] = {
    "accepted": "accepted",
    "finished": "finished",
    "failed": "failed",
}
"""The outcome in a reply, by the state of the record of a request that was carried out."""
ATTEMPTS_FAILED = "every attempt failed"
"""The beginning of the reason in the record of a request whose message became a dead letter."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """A request, the table that it is about, and the key under which it is stored there."""

    services: Services
    request: AdminRequest
    table_id: str
    subject: str
    key: str = ""

    @staticmethod
    def of(services: Services, request: AdminRequest) -> RequestContext:
        """Resolve the table that a request is about; the first delivery binds it to that table."""
        match request:
            case Redrive():
                return RequestContext(services, request, NO_TABLE, request.queue)
            case SetDefaults() | GrantAccess() | RevokeAccess() | ClearAccess():
                return RequestContext(services, request, NO_TABLE, INSTANCE_NAME)
            case CreateTable():
                return RequestContext(services, request, new_table_id(request), request.name)
        table_id = resolve_table_id(services, request)
        return RequestContext(services, request, table_id, request.name, request_key(request))

    @property
    def verb(self) -> str:
        """The type of the request, as in its message."""
        return verb_of(self.request)

    def final_reply(self) -> Reply | None:
        """Return the stored reply to a request whose jobs have ended, even if it wants none."""
        if not self._may_have_jobs:
            return None
        return load_reply(self.services, self.table_id, self.key)

    def stored(self) -> StoredRequest | None:
        """Return the stored form of a request with unfinished jobs; None if none is stored."""
        if not self._may_have_jobs:
            return None
        return load_request(self.services, self.table_id, self.key)

    @property
    def _may_have_jobs(self) -> bool:
        return self.request.causes_jobs and self.table_id != NO_TABLE

    def earlier_record(self) -> JobRecord | None:
        """Return the record of an earlier delivery that carried the request out.

        None if there was none, or if it was refused, or became a dead letter.

        Raises:
            InvalidRequestError: the id belongs to another request or job of the table.
        """
        get = self.services.tracker.get
        found = get(self.table_id, self.request.request_id)
        if self.table_id != NO_TABLE and found is not None and found.state != "refused":
            self.check_verb(found.kind)
            if isinstance(self.request, CreateTable):
                self._check_name(found)
        if found is None:  # the deletion of a table is recorded under no table
            found = get(NO_TABLE, self.request.request_id)
        if (
            found is None
            or found.state not in _OUTCOMES
            or found.reason.startswith(ATTEMPTS_FAILED)
        ):
            return None
        return found if (found.kind, found.subject) == (self.verb, self.subject) else None

    def _check_name(self, found: JobRecord) -> None:
        if found.kind == self.verb and found.subject != self.subject:
            raise InvalidRequestError(
                f"request_id {self.request.request_id!r} belongs to the request that created "
                f"table {found.subject!r}",
                hint="send the request with another request_id",
            )

    def check_verb(self, verb: str) -> None:
        """Check that a record found under the id of the request has the same verb.

        Raises:
            InvalidRequestError: the record is that of another request or job.
        """
        if verb != self.verb:
            raise InvalidRequestError(
                f"request_id {self.request.request_id!r} belongs to a {verb} of this table",
                hint="send the request with another request_id",
            )

    def repeat_reply(self, earlier: JobRecord) -> list[OutboundMessage]:
        """Return the reply to a request that an earlier delivery carried out, if one is wanted."""
        if not self.request.reply:
            return []
        counts = Counts(rows=earlier.rows, files=earlier.files, size_bytes=earlier.size_bytes)
        outcome = _OUTCOMES[earlier.state]
        return [to_outbound(self.reply(outcome, reason=earlier.reason, counts=counts))]

    def record_result(self, result: RequestResult) -> list[OutboundMessage]:
        """Record the result of a request; return the reply, and the step that follows its jobs.

        The work is saved before its messages are returned, and so before any can be sent.
        """
        if result.work is None:
            reply = self.reply("finished", counts=result.counts)
            self.record(reply)
            return [to_outbound(reply)] if self.request.reply else []
        counts = result.counts + Counts(jobs=len(result.work.job_ids))
        now_ms = self.services.clock.now_ms()
        work = cast(AnyWork, result.work)  # it has all kinds of work
        stored = StoredRequest(
            self.request.request_id, self.verb, self.subject, now_ms, work, counts
        )
        if self.request.reply:
            mark_reply_wanted(self.services, self.table_id, self.key)
        stored = save_request(self.services, self.table_id, self.key, stored)
        self.record(self.accepted_reply(stored))
        return self.follow(stored)

    def follow(self, stored: StoredRequest) -> list[OutboundMessage]:
        """Return the reply that the request is accepted, and the step that follows its jobs.

        Both only if a reply is wanted; otherwise a sweep checks later whether the jobs have ended.
        """
        if not self.request.reply:
            return []
        mark_reply_wanted(self.services, self.table_id, self.key)
        step = first_step(self.table_id, self.key, stored)
        return [to_outbound(self.accepted_reply(stored)), step]

    def accepted_reply(self, stored: StoredRequest) -> Reply:
        """Return the reply that lists the jobs which the request caused."""
        return self.reply("accepted", counts=stored.counts, jobs=reply_jobs(stored.work))

    def reply(
        self,
        outcome: Outcome,
        *,
        reason: str = "",
        is_last_attempt: bool = False,
        counts: Counts | None = None,
        jobs: Sequence[ReplyJob] = (),
    ) -> Reply:
        """Return a reply to the request."""
        return reply_to(
            self.request.request_id,
            self.verb,
            outcome,
            table_id="" if self.table_id == NO_TABLE else self.table_id,
            reason=reason,
            counts=counts,
            jobs=jobs,
            is_last_attempt=is_last_attempt,
        )

    def record(self, reply: Reply) -> None:
        """Record what a reply says, under the table if it exists."""
        exists = self.table_id != NO_TABLE and self.services.tables.get(self.table_id) is not None
        table_id = self.table_id if exists else NO_TABLE
        record_request(self.services, table_id, reply, self.subject)
