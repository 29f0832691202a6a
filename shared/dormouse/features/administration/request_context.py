"""One request: its table, what earlier deliveries did, and the replies to it.

Requests are recorded under their table, like its jobs; those about no table, or about one that does
not exist, under none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from dormouse.errors import InvalidRequestError
from dormouse.features.administration.stored_requests import (
    Asked,
    first_step,
    keep_asked,
    kept_asked,
    kept_reply,
    want_reply,
)
from dormouse.features.administration.verbs import VERBS, AnyWork
from dormouse.features.requests.resolve_table import binding_key, bound_id
from dormouse.features.requests.work import Begun
from dormouse.features.tables.create_table import new_table_id
from dormouse.jobs.tracking import record_request
from dormouse.messages import OutboundMessage
from dormouse.ports import NO_TABLE, JobRecord, Services
from dormouse.replies import Counts, Outcome, Reply, reply_to, to_outbound
from dormouse.requests import (
    AdminRequest,
    CreateTable,
    Redrive,
    SetDefaults,
    verb_of,
)

INSTANCE_NAME = "(instance)"
"""The subject of a request about no table."""
_OUTCOMES: Mapping[str, Outcome] = {
    "accepted": "accepted",
    "finished": "finished",
    "failed": "failed",
}
"""The outcome in a reply, by the state in the record of a request that was done or has begun."""
ATTEMPTS_FAILED = "every attempt failed"
"""How the reason begins in the record of a request whose message became a dead letter."""


@dataclass(frozen=True, slots=True)
class About:
    """A request, its table, if it is about one, and the key by which it is kept there."""

    services: Services
    request: AdminRequest
    table_id: str
    subject: str
    key: str = ""

    @staticmethod
    def of(services: Services, request: AdminRequest) -> About:
        """Find the table that a request is about: the first delivery binds it to that one."""
        match request:
            case Redrive():
                return About(services, request, NO_TABLE, request.queue)
            case SetDefaults():
                return About(services, request, NO_TABLE, INSTANCE_NAME)
            case CreateTable():
                return About(services, request, new_table_id(request), request.name)
        table_id = bound_id(services, request)
        return About(services, request, table_id, request.name, binding_key(request))

    @property
    def verb(self) -> str:
        """What the request is called."""
        return verb_of(self.request)

    def last_reply(self) -> Reply | None:
        """Return the last reply to a request whose jobs have ended, even if it asks for none."""
        if not self._may_have_jobs:
            return None
        return kept_reply(self.services, self.table_id, self.key)

    def asked(self) -> Asked | None:
        """Return the stored form of a request whose jobs have begun."""
        if not self._may_have_jobs:
            return None
        return kept_asked(self.services, self.table_id, self.key)

    @property
    def _may_have_jobs(self) -> bool:
        return VERBS[type(self.request)].causes_jobs and self.table_id != NO_TABLE

    def earlier(self) -> JobRecord | None:
        """Return the record of an earlier delivery; None if it was refused, or failed for good.

        Raises:
            InvalidRequestError: its id belongs to another request or job of the table.
        """
        get = self.services.tracker.get
        found = get(self.table_id, self.request.request_id)
        if self.table_id != NO_TABLE and found is not None and found.state != "refused":
            self.check_verb(found.kind)
            if isinstance(self.request, CreateTable):
                self._check_name(found)
        if found is None:  # the deletion of a table is recorded under none
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
                f"{self.request.request_id!r} is the id of the request for table {found.subject!r}",
                hint="ask under another request_id",
            )

    def check_verb(self, verb: str) -> None:
        """Check that what was found under the id of the request is the request.

        Raises:
            InvalidRequestError: it is something else.
        """
        if verb != self.verb:
            raise InvalidRequestError(
                f"{self.request.request_id!r} is the id of a {verb} of this table already",
                hint="ask under another request_id",
            )

    def repeated(self, earlier: JobRecord) -> list[OutboundMessage]:
        """Return the reply to a request that was done before."""
        if not self.request.reply:
            return []
        counts = Counts(rows=earlier.rows, files=earlier.files, size_bytes=earlier.size_bytes)
        outcome = _OUTCOMES[earlier.state]
        return [to_outbound(self.reply(outcome, reason=earlier.reason, counts=counts))]

    def begin(self, begun: Begun) -> list[OutboundMessage]:
        """Record what a request has begun; return the reply, and the step that waits for its jobs.

        What is to be waited for is kept before anybody can send a message.
        """
        if begun.work is None:
            reply = self.reply("finished", counts=begun.counts)
            self.record(reply)
            return [to_outbound(reply)] if self.request.reply else []
        counts = begun.counts + Counts(jobs=len(begun.work.jobs))
        now_ms = self.services.clock.now_ms()
        work = cast(AnyWork, begun.work)  # the registry has all kinds that requests cause
        asked = Asked(self.request.request_id, self.verb, self.subject, now_ms, work, counts)
        if self.request.reply:
            want_reply(self.services, self.table_id, self.key)
        asked = keep_asked(self.services, self.table_id, self.key, asked)
        self.record(self.accepted(asked))
        return self.follow(asked)

    def follow(self, asked: Asked) -> list[OutboundMessage]:
        """Return the reply that the jobs have begun, and the step that waits for them.

        Where nobody wants a reply, a sweep sees some time whether they have ended.
        """
        if not self.request.reply:
            return []
        want_reply(self.services, self.table_id, self.key)
        return [to_outbound(self.accepted(asked)), first_step(self.table_id, self.key, asked)]

    def accepted(self, asked: Asked) -> Reply:
        """Return the reply that names the jobs which the request caused."""
        return self.reply("accepted", counts=asked.counts, asked=asked)

    def reply(
        self,
        outcome: Outcome,
        *,
        reason: str = "",
        is_last_attempt: bool = False,
        counts: Counts | None = None,
        asked: Asked | None = None,
    ) -> Reply:
        """Return a reply to the request."""
        return reply_to(
            self.request.request_id,
            self.verb,
            outcome,
            table_id="" if self.table_id == NO_TABLE else self.table_id,
            reason=reason,
            counts=counts,
            jobs=asked.work.jobs if asked is not None else (),
            is_last_attempt=is_last_attempt,
        )

    def record(self, reply: Reply) -> None:
        """Record what a reply says, under the table if it is there."""
        is_there = self.table_id != NO_TABLE and self.services.tables.get(self.table_id) is not None
        table_id = self.table_id if is_there else NO_TABLE
        record_request(self.services, table_id, reply, self.subject)
