"""administer: carry out a request once, or refuse it with the reason.

A redelivery finishes a request that was interrupted. A request takes effect once, however often it
is delivered: the tracker records it by its id, under its table. Each verb is carried out by the
package of its feature, as its type in `requests` says.

If a request causes jobs, they are saved before their messages are sent.
`follow_request` records their outcome, and replies if a reply is wanted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import cast, get_args

import msgspec

from dormouse import errors
from dormouse.features import requests
from dormouse.features.batch_files import IngestWork
from dormouse.features.export import ExportWork
from dormouse.features.garbage import GarbageWork
from dormouse.features.planning import CompactionWork
from dormouse.features.purge import PurgeWork
from dormouse.features.requests import Kind
from dormouse.features.splitting import SplitWork
from dormouse.features.tables import new_table_id
from dormouse.jobs import SweepCheck, is_chain_expired, record_request
from dormouse.messages.requests import (
    AdminRequest,
    ClearAccess,
    Counts,
    CreateTable,
    DeleteTable,
    GrantAccess,
    Outcome,
    Redrive,
    Reply,
    ReplyJob,
    RevokeAccess,
    SetDefaults,
    decode_admin,
    is_request_id,
    reply_to,
    to_outbound,
    verb_of,
)
from dormouse.messages.stages import OutboundMessage, RequestStep, load
from dormouse.ports import NO_TABLE, Services
from dormouse.state.jobs import JobRecord
from dormouse.state.state import DAY_MS
from dormouse.stored.decoding import check_types, decode_json
from dormouse.stored.paths import REQUESTS
from dormouse.tables.table import RETAINED_REQUESTS, Table, can_be_name, table_not_found

# What is stored beside a table about requests with unfinished jobs.
#
# - The request with the work that it caused. It is put before the messages of that work are sent,
#   and deleted when the outcome is recorded and, if one is wanted, the final reply is sent.
# - A marker, if a delivery of the request wanted a reply.
# - The final reply. It stays after the request, for deliveries that come late.

AnyWork = CompactionWork | IngestWork | ExportWork | PurgeWork | SplitWork | GarbageWork
"""The work of any request, as it is stored; its tag is its kind."""

FIRST_CHECK_SECONDS = 2
MAX_AGE_MS = 30 * DAY_MS
"""How long anything is stored: longer than SQS keeps any message, including dead letters."""


class StoredRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request with jobs. Its outcome is recorded, and sent if wanted, when its `work` ends."""

    request_id: str
    verb: str
    subject: str
    requested_ms: int
    work: AnyWork
    counts: Counts = Counts()


_REQUEST = Kind(
    "a request with unfinished jobs",
    StoredRequest,
    "delete this object: no reply is sent then; the table's jobs show their outcomes",
)
_REPLY = Kind("a reply", Reply, "delete this object: the reply is then made again")


def load_request(services: Services, table_id: str, key: str) -> StoredRequest | None:
    """Return a request with unfinished jobs; None if none is stored.
    Raises CorruptDataError: the stored request is damaged.
    """
    return _REQUEST.get(services.storage, REQUESTS.path(table_id, key))


def mark_reply_wanted(services: Services, table_id: str, key: str) -> None:
    """Mark that a delivery of a request wanted a reply; another one may not have wanted it."""
    services.storage.put(requests.request_wanted_path(table_id, key), b"")


def save_reply(services: Services, table_id: str, key: str, reply: Reply) -> Reply:
    """Save the final reply to a request; return the one that was saved first, which counts."""
    return _REPLY.save(services.storage, requests.request_reply_path(table_id, key), reply)


def load_reply(services: Services, table_id: str, key: str) -> Reply | None:
    """Return the final reply to a request; None if none is stored.
    Raises CorruptDataError: the stored reply is damaged.
    """
    return _REPLY.get(services.storage, requests.request_reply_path(table_id, key))


def delete_request(services: Services, step: RequestStep) -> None:
    """Delete a request after its final reply was sent, or recorded if nobody wanted it."""
    paths = (requests.request_left_path, requests.request_wanted_path, REQUESTS.path)
    services.storage.delete([path(step.table_id, step.key) for path in paths])


# One request: its table, what earlier deliveries of it did, and the replies to it.
#
# A request is recorded under its table, as the table's jobs are. A request that is about no table,
# or about one that does not exist, is recorded under `NO_TABLE`.

INSTANCE_NAME = "(instance)"
"""The subject of a request about no table."""
_OUTCOMES: Mapping[str, Outcome] = {
    "accepted": "accepted",
    "finished": "finished",
    "failed": "failed",
}
"""The outcome in a reply, by the state of the record of a request that was carried out."""
ANOTHER_ID = "send the request with another request_id"
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
    named: Table | None = None
    """The table that has the name now."""
    once: bool = False
    """Whether its id is new, and no queue has it: then there is no other delivery."""
    since: str | None = None
    """The last request that the table had applied at the first delivery, if there may be others."""

    @staticmethod
    def of(services: Services, request: AdminRequest, *, once: bool = False) -> "RequestContext":
        """Resolve the table that a request is about.

        A name can be reused, so at a late redelivery it may be that of another table. So the first
        delivery, unless there is but one, binds the request to the table that has the name then,
        before anything is done, and all later deliveries use that table.
        Raises InvalidRequestError: as `_bind` does.
        """
        table_id, key, table = NO_TABLE, "", None
        match request:
            case Redrive():
                subject = request.queue
            case SetDefaults() | GrantAccess() | RevokeAccess() | ClearAccess():
                subject = INSTANCE_NAME
            case CreateTable():
                table_id, subject = new_table_id(request.request_id), request.name
            case _:
                key, subject = requests.request_key(request), request.name
                if table := services.tables.named(subject):
                    table_id = table.id
        if once:
            return RequestContext(services, request, table_id, subject, key, table, once=True)
        since = "".join(table.applied_requests[-1:]) if table else ""
        bound = key or requests.key_of_request(request.request_id, subject)
        table_id, since = _bind(services, request, bound, table_id, since)
        return RequestContext(services, request, table_id, subject, key, table, since=since)

    def carry_out(self) -> requests.RequestResult:
        """Carry the request out, unless its table is deleted, or in deletion, as it asks for.
        Raises NotFoundError: there is no such table, or it is deleted or in deletion.
        """
        services, request, function = self.services, self.request, load(self.request.path)
        if not self.key:
            result = function(services, request)
        else:
            table, is_deletion = self._table(), isinstance(request, DeleteTable)
            if table is None and is_deletion:
                return requests.RequestResult()
            if table is None:
                what = "was deleted after the request was first made"
                raise errors.NotFoundError(f"table {self.subject!r} {what}")
            if table.deleting and not is_deletion:
                if request.request_id in table.applied_requests:
                    return requests.RequestResult()  # what it changed goes with the table
                raise errors.NotFoundError(f"table {self.subject!r} is being deleted")
            if self._is_forgotten(table):
                raise errors.InvalidRequestError(
                    f"other requests have changed table {self.subject!r} since this one was first "
                    "made, and whether it was carried out is not known any more",
                    hint=ANOTHER_ID,
                )
            result = function(services, table, request)
        return (
            result
            if isinstance(result, requests.RequestResult)
            else requests.RequestResult(result or [])
        )

    def _is_forgotten(self, table: Table) -> bool:
        """Return whether the table may have applied the request and forgotten it since."""
        applied = table.applied_requests
        is_kept = {self.request.request_id, self.since}.intersection(applied)
        return (
            self.since is not None
            and not self.request.causes_jobs
            and len(applied) == RETAINED_REQUESTS
            and not is_kept
        )

    @property
    def _is_there(self) -> bool:
        return self.named is not None and self.named.id == self.table_id

    def _table(self) -> Table | None:
        """Return the table of the request, which may be in deletion; None if it is deleted."""
        if self._is_there:
            return self.named
        if self.table_id != NO_TABLE:
            return self.services.tables.get(self.table_id)
        if self.named is None:
            raise table_not_found(self.subject, *self.services.tables.list_readable())
        raise errors.NotFoundError(
            f"no table was named {self.subject!r} when this request was first made", hint=ANOTHER_ID
        )

    @property
    def verb(self) -> str:
        """The type of the request, as in its message."""
        return verb_of(self.request)

    def stored(self) -> Reply | StoredRequest | None:
        """Return what is stored of a request with jobs: its final reply, else itself, or None."""
        if self.once or not self.request.causes_jobs or self.table_id == NO_TABLE:
            return None
        place = self.services, self.table_id, self.key
        return load_reply(*place) or load_request(*place)

    def earlier_record(self) -> JobRecord | None:
        """Return the record of an earlier delivery that carried the request out.

        None if there was none, or if it was refused, or became a dead letter.
        Raises InvalidRequestError: the id belongs to another request or job of the table.
        """
        if self.once:
            return None
        get = self.services.tracker.get
        record = get(self.table_id, self.request.request_id)
        if self.table_id != NO_TABLE and record is not None and record.state != "refused":
            self.check_verb(record.kind)
            if isinstance(self.request, CreateTable) and record.subject != self.subject:
                raise errors.InvalidRequestError(
                    f"request_id {self.request.request_id!r} belongs to the request that created "
                    f"table {record.subject!r}",
                    hint=ANOTHER_ID,
                )
        # The deletion of a table is recorded under no table, as what came too late for it is.
        if record is None and not self._is_there:
            record = get(NO_TABLE, self.request.request_id)
        if (
            record is None
            or record.state not in _OUTCOMES
            or record.reason.startswith(ATTEMPTS_FAILED)
        ):
            return None
        return record if (record.kind, record.subject) == (self.verb, self.subject) else None

    def check_verb(self, verb: str) -> None:
        """Check that a record found under the id of the request has the same verb.
        Raises InvalidRequestError: the record is that of another request or job.
        """
        if verb != self.verb:
            raise errors.InvalidRequestError(
                f"request_id {self.request.request_id!r} belongs to a {verb} of this table",
                hint=ANOTHER_ID,
            )

    def record_result(self, result: requests.RequestResult) -> list[OutboundMessage]:
        """Record the result of a request; return the reply, and the step that follows its jobs.

        The work is saved before its messages are returned, and so before any can be sent.
        """
        if result.work is None:
            reply = self.reply("finished", counts=result.counts)
            self.record(reply)
            return [to_outbound(reply)] if self.request.reply else []
        counts = result.counts + Counts(jobs=len(result.work.ids))
        now_ms = self.services.clock.now_ms()
        work = cast(AnyWork, result.work)  # it has all kinds of work
        entry = StoredRequest(
            self.request.request_id, self.verb, self.subject, now_ms, work, counts
        )
        if self.request.reply:
            mark_reply_wanted(self.services, self.table_id, self.key)
        path = REQUESTS.path(self.table_id, self.key)
        entry = _REQUEST.save(self.services.storage, path, entry)  # the first that was saved
        self.record(self.accepted_reply(entry))
        return self.follow(entry)

    def follow(self, entry: StoredRequest) -> list[OutboundMessage]:
        """Return the reply that the request is accepted, and the step that follows its jobs.

        Both only if a reply is wanted; otherwise a sweep checks later whether the jobs have ended.
        """
        if not self.request.reply:
            return []
        mark_reply_wanted(self.services, self.table_id, self.key)
        step = RequestStep(self.table_id, self.key, entry.request_id, entry.verb)
        first = OutboundMessage("admin", step, FIRST_CHECK_SECONDS)
        return [to_outbound(self.accepted_reply(entry)), first]

    def accepted_reply(self, entry: StoredRequest) -> Reply:
        """Return the reply that lists the jobs which the request caused."""
        jobs = [ReplyJob(entry.work.kind, job_id) for job_id in entry.work.ids]
        return self.reply("accepted", counts=entry.counts, jobs=jobs)

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


def _bind(
    services: Services, request: AdminRequest, key: str, table_id: str, since: str
) -> tuple[str, str]:
    """Return which table the first delivery of a request was about, and the last request that this
    had applied then: by default those given.
    Raises InvalidRequestError: it had another content, and was not refused.
    """
    message = msgspec.structs.replace(request, reply=False)
    # members of objects have no order; one that is empty may be of a later form
    text = repr(decode_admin(msgspec.json.encode(message, order="deterministic")))
    content = blake2b(text.encode(), digest_size=16).hexdigest()
    tracker, now_ms = services.tracker, services.clock.now_ms()
    about = f"{table_id} {content} {since}"
    first = tracker.bind(key, about, now_ms)
    first_id, known, first_since = (*first.split(" "), "", "")[:3]
    if known in ("", content):  # an earlier release bound a request to its table alone
        return first_id, first_since
    records = [tracker.get(place, request.request_id) for place in {first_id, NO_TABLE}]
    was_refused = {record.state for record in records if record} == {"refused"}
    if was_refused and tracker.bind(key, about, now_ms, instead_of=first) == about:
        return table_id, since
    raise errors.InvalidRequestError(
        f"request_id {request.request_id!r} belongs to another request", hint=ANOTHER_ID
    )


def administer(
    services: Services, request: AdminRequest, *, once: bool = False
) -> list[OutboundMessage]:
    """Carry out a request, or record why it is refused; return the messages that follow. With
    `once`, no queue has the request: who made it, under a new id, calls this, and nobody again.

    Raises:
        InvalidRequestError: the request is invalid, or does not fit the table; or its id belongs to
            another request about that table.
        AlreadyExistsError: the object that the request would create exists.
        NotFoundError: no table has that name.
    """
    context = RequestContext.of(services, check_types(request), once=once)
    if (messages := _resume(services, context)) is not None:
        return messages
    if (earlier := context.earlier_record()) is not None:
        counts = Counts(rows=earlier.rows, files=earlier.files, size_bytes=earlier.size_bytes)
        reply = context.reply(_OUTCOMES[earlier.state], reason=earlier.reason, counts=counts)
        return [to_outbound(reply)] if request.reply else []
    try:
        result = context.carry_out()
    except (errors.InvalidRequestError, errors.AlreadyExistsError, errors.NotFoundError) as error:
        if (messages := _resume(services, context)) is not None:
            return messages
        context.record(context.reply("refused", reason=error.explanation))
        raise
    if (messages := _resume(services, context)) is not None:
        return [*result.messages, *messages]
    return [*result.messages, *context.record_result(result)]


def _resume(services: Services, context: RequestContext) -> list[OutboundMessage] | None:
    """Return the messages of a request that another delivery has carried out; None if none has.

    It is called again after this delivery has carried the request out or refused it, since another
    delivery may have been faster: its result counts then. For example, this delivery may find no
    shards to compact, because the other one has assigned them all.
    """
    match context.stored():
        case Reply() as reply:
            context.check_verb(reply.request)
            return [to_outbound(reply)] if context.request.reply else []
        case StoredRequest() as stored:
            context.check_verb(stored.verb)
            table = services.table(context.table_id)
            context.record(context.accepted_reply(stored))
            # again, since those sent before may be lost
            messages = stored.work.unfinished_messages(services, table) if table else []
            return [*messages, *context.follow(stored)]
    return None


# follow_request: check whether the jobs of a request have ended; then record and send the outcome.
#
# Order: the final reply is saved, the record of the request is written, the reply is sent, and then
# the stored request is deleted. So the final reply is the same however often it is sent, and it is
# sent at least once: a redelivered step finds it. The sweep starts a new chain of steps for a
# request whose chain was lost, or to which nobody wants a reply; the latter is only recorded.

MIN_WAIT_SECONDS, MAX_WAIT_SECONDS = 2, 300
WAITS_PER_AGE = 4
"""The wait between checks is this part of the request's age, so short work is answered soon."""
GIVE_UP_MS = 3 * DAY_MS
"""After this time, jobs that have not ended are reported as unfinished."""
TABLE_DELETED = "the table was deleted before the outcome of the request was known"


def follow_request(services: Services, step: RequestStep) -> list[OutboundMessage]:
    """Check the jobs of a request; return its final reply, or the step that checks again.

    If nobody wants a reply, only the outcome is recorded, and the next sweep checks again.
    Raises CorruptDataError: the stored request, or what is stored about its jobs, is damaged.
    """
    table = services.table(step.table_id)
    if table is None:
        return _reply_of_deleted_table(services, step)
    is_wanted = any(services.storage.list(requests.request_wanted_path(table.id, step.key)))
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


def request_by_now(services: Services, table: Table, record: JobRecord) -> JobRecord:
    """Return the record of an accepted request as the next sweep will write it, if its jobs have
    ended since; any other record as it is.

    The rows of a purge are gone only once all objects with them are, which the sweep looks for. A
    caller who may not read requests sees what is recorded.
    """
    if record.state != "accepted":
        return record
    key = requests.key_of_request(record.job_id, record.subject)
    try:
        request = load_request(services, table.id, key)
        if request is None or isinstance(request.work, PurgeWork):
            return record
        reply = _final_reply(services, table, key, request)
    except errors.CorruptDataError as error:  # it keeps no other record from being listed
        return replace(record, reason=error.explanation)
    except errors.UnavailableError:
        return record
    if reply is None:
        return record
    counts = reply.counts
    return replace(
        record,
        state=reply.outcome,
        reason=reply.reason,
        files=counts.files or record.files,
        size_bytes=counts.size_bytes or record.size_bytes,
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
    outcomes = _outcomes(services, table, key, request)
    if outcomes is None:
        return None
    undone = [ReplyJob(o.kind, o.id, o.state, o.reason) for o in outcomes if o.state is not None]
    return reply_to(
        request.request_id,
        request.verb,
        "failed" if undone else "finished",
        table_id=table.id,
        reason=_summary(undone),
        counts=sum((outcome.total for outcome in outcomes), request.counts),
        jobs=undone,
    )


def _outcomes(
    services: Services, table: Table, key: str, request: StoredRequest
) -> list[requests.JobOutcome] | None:
    """Return the outcomes of all jobs; None while one may change and there is time to wait."""
    now_ms = services.clock.now_ms()
    wait_ms = GIVE_UP_MS + request.work.extra_wait_ms(table)
    is_late = now_ms - request.requested_ms > wait_ms
    check = requests.JobCheck(services, table, key, request.requested_ms, now_ms)
    outcomes = []
    for outcome in request.work.outcomes(check):
        if outcome.is_pending and not is_late:
            return None
        outcomes.append(outcome)
    return outcomes


def _reply_of_deleted_table(services: Services, step: RequestStep) -> list[OutboundMessage]:
    """Return the final reply to a request about a deleted table; none if it was sent before."""
    reply = load_reply(services, step.table_id, step.key)
    if reply is not None:
        return [to_outbound(reply)]
    if not step.request_id or not step.request:
        return []
    record = services.tracker.get(step.table_id, step.request_id)
    if record is not None and record.is_finished:
        return []
    reply = reply_to(
        step.request_id, step.request, "failed", table_id=step.table_id, reason=TABLE_DELETED
    )
    record_request(services, NO_TABLE, reply, record.subject if record is not None else "")
    return [to_outbound(reply)]


def _summary(undone: list[ReplyJob]) -> str:
    if not undone:
        return ""
    files = sum(job.kind == "file" for job in undone)
    jobs = len(undone) - files
    parts = [f"{n} {kind}{'s'[: n != 1]}" for n, kind in ((files, "file"), (jobs, "job")) if n]
    return f"not done: {' and '.join(parts)}, first {undone[0].id}: {undone[0].reason}"


# Reply to requests whose last delivery failed, so that they become dead letters.
#
# The reply is ``failed``, and says that a person may redrive the message; the request is then
# carried out after all. A request whose jobs have been saved does not fail: its jobs go on, and the
# reply follows when they have ended. A process that crashes in its last attempt sends no reply.

DEAD_LETTER = (
    "its message is in the dead-letter queue of admin: redrive it to carry the request out after "
    "all, or discard it"
)
MAY_HAVE_JOBS = (
    "if an earlier delivery has started its jobs, they go on, and a reply follows when they end"
)
OUTCOME_UNREADABLE = "its jobs go on; a reply follows once their outcome can be read"


def fail_request(
    services: Services, request: AdminRequest, error: Exception
) -> list[OutboundMessage]:
    """Record that a request failed for the last time; return the reply, if one is wanted.

    If its table, or the stored request, cannot be read, nothing is recorded.
    """
    reason = f"{ATTEMPTS_FAILED}: {_reason(error)}; {DEAD_LETTER}"
    try:
        context = RequestContext.of(services, request)
        if context.stored() is not None or context.earlier_record() is not None:
            return []
        reply = context.reply("failed", reason=reason, is_last_attempt=True)
        context.record(reply)
    except errors.DormouseError:
        reply = reply_to(
            request.request_id,
            verb_of(request),
            "failed",
            reason=f"{reason}; {MAY_HAVE_JOBS}",
            is_last_attempt=True,
        )
    return [to_outbound(reply)] if request.reply else []


def fail_step(step: RequestStep, error: Exception) -> list[OutboundMessage]:
    """Return the reply that the outcome of a request cannot be read.

    Empty for a step that a sweep started: it does not name the request.
    """
    if not step.request_id or not step.request:
        return []
    reply = reply_to(
        step.request_id,
        step.request,
        "failed",
        table_id=step.table_id,
        reason=f"{OUTCOME_UNREADABLE}: {_reason(error)}",
        is_last_attempt=True,
    )
    return [to_outbound(reply)]


def _reason(error: Exception) -> str:
    """Return why an attempt failed. The text of a foreign error is left out: it may quote rows."""
    if isinstance(error, errors.DormouseError):
        return error.explanation
    return f"an unexpected {type(error).__name__}; the function's log has the details"


# Refuse messages that are not valid requests, with a reply if one is wanted.
#
# Of such a message, only its id and its wish for a reply are used, and, for the record, its verb
# and the name of its table.

VERBS = {str(kind.__struct_config__.tag) for kind in get_args(AdminRequest)}
UNKNOWN_VERB = "request"


def refuse_malformed(services: Services, body: str, reason: str) -> list[OutboundMessage]:
    """Record that a message is not a valid request, and return the reply.

    Empty if no reply is wanted, or the message has no valid id.
    """
    try:
        fields = decode_json(body, dict[str, object])
    except ValueError:
        return []
    request_id, verb = fields.get("request_id"), fields.get("type")
    if fields.get("reply") is not True or not isinstance(request_id, str):
        return []
    if not is_request_id(request_id):
        return []
    verb_name = verb if isinstance(verb, str) and verb in VERBS else UNKNOWN_VERB
    reply = reply_to(request_id, verb_name, "refused", reason=reason)
    _record(services, reply, fields.get("name"))
    return [to_outbound(reply)]


def _record(services: Services, reply: Reply, name: object) -> None:
    """Record a refusal under the table named, unless the id has a record of another outcome."""
    table_id, subject = NO_TABLE, ""
    if isinstance(name, str) and can_be_name(name):
        table = services.tables.named(name)
        table_id, subject = (table.id if table is not None else NO_TABLE), name
    record = services.tracker.get(table_id, reply.request_id)
    if record is None or record.state == "refused":
        record_request(services, table_id, reply, subject)


def overdue_requests(check: SweepCheck) -> Iterator[OutboundMessage]:
    """Yield a step for each request without a reply that is due; delete what is older than any
    delivery that can still come.
    """
    now_ms, storage = check.services.clock.now_ms(), check.services.storage
    stored_ms: dict[str, int] = {}
    expired = []
    for item in storage.list(REQUESTS.prefix(check.table.id)):
        key, is_request = requests.request_in(item.path)
        if now_ms - item.modified_ms > MAX_AGE_MS:
            expired.append(item.path)
        elif is_request:
            stored_ms[key] = item.modified_ms
    storage.delete(expired)
    for key, time_ms in sorted(stored_ms.items()):
        if check.is_due(time_ms):
            yield OutboundMessage("admin", RequestStep(check.table.id, key, begun_ms=now_ms))
