"""The work that a request causes: its stored form, its messages, and its outcomes.

Each feature has its own kind of work. The stored form only names the jobs; their outcomes are read
from the table's state and the tracker. So it is put once, never changes, and is correct however
late a message is delivered.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.jobs import MAX_RECEIVES, OUTCOME_UNKNOWN
from dormouse.messages.requests import Counts, JobState, TableRequest
from dormouse.messages.stages import OutboundMessage, SelectionMessage
from dormouse.ports import Services
from dormouse.state.jobs import JobRecord
from dormouse.state.state import TableState
from dormouse.stored.paths import REQUESTS
from dormouse.tables.table import Table

# The outcomes of a request's jobs: which have ended, and how.
#
# The state of the table decides. A tracker record may be lost, or be that of an earlier run, so it
# is used only for what the state does not say. An unknown outcome is never reported as success. A
# job that failed and will be retried has not ended. A job that is no longer retried is unfinished,
# not failed, since a person may redrive it.

MAX_RUN_MS = 12 * 60 * 60 * 1000
"""No run takes longer, even on Spark. A run without a newer record after this time crashed."""
RECORDING_MS = 20 * 60 * 1000
"""After this time, a run that committed has recorded its outcome, or crashed before it could."""
REDELIVERY_MS = 2 * 60 * 60 * 1000
"""After this time, the message of a crashed run was redelivered, and its work finished."""
TABLE_RESET = "the table was reset meanwhile"
UNKNOWN_OUTCOME = "the job has ended, and its outcome is unknown"


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """The outcome of a job, or of one of its files. `state` is None if all of it was done.

    While `is_pending`, the outcome may still change, so it is worth waiting for.
    """

    kind: str
    id: str
    state: JobState | None = None
    reason: str = ""
    is_pending: bool = False
    counts: Counts = Counts()

    @property
    def total(self) -> Counts:
        """Its share of the counts of its request; a file of a job is not counted as a job."""
        if self.kind == "file":
            return self.counts
        failed, unfinished = int(self.state == "failed"), int(self.state == "unfinished")
        return self.counts + Counts(failed=failed, unfinished=unfinished)


@dataclass(frozen=True)
class JobCheck:
    """One check of the jobs of the request stored under `key`; it reads the state once."""

    services: Services
    table: Table
    key: str
    requested_ms: int
    now_ms: int

    @cached_property
    def state(self) -> TableState:
        """The state of the table, read at its first use."""
        return self.services.store(self.table).current()

    def record(self, job_id: str) -> JobRecord | None:
        """Return the newest record of a job."""
        return self.services.tracker.get(self.table.id, job_id)

    def record_since_request(self, job_id: str) -> JobRecord | None:
        """Return the newest record of a job if it is newer than the request.

        An earlier job may have had the same id.
        """
        record = self.record(job_id)
        return record if record is not None and record.updated_ms >= self.requested_ms else None

    def unfinished(self, kind: str, job_id: str, record: JobRecord | None) -> JobOutcome:
        """Return that a job is not done; it is pending while its message may be redelivered."""
        is_pending = record is None or not self._is_dead_letter(record)
        return JobOutcome(kind, job_id, "unfinished", _not_yet(record), is_pending)

    def _is_dead_letter(self, record: JobRecord) -> bool:
        """Return whether the job's message has probably been received for the last time."""
        if record.attempts < MAX_RECEIVES:
            return False
        silent_ms = self.now_ms - record.updated_ms
        return record.state == "failed" or (record.state == "running" and silent_ms > MAX_RUN_MS)

    def ended(self, done: JobOutcome, record: JobRecord | None) -> JobOutcome:
        """Return the outcome of a job that the state no longer has: `done` if its record says so.

        Without a final record, the job may still be finished by a redelivery; after
        `REDELIVERY_MS`, its outcome remains unknown.
        """
        if record is not None and record.state == "finished" and record.reason != OUTCOME_UNKNOWN:
            return done
        if record is not None and record.state == "failed":
            return JobOutcome(done.kind, done.id, "failed", record.reason)
        since_ms = record.updated_ms if record is not None else self.requested_ms
        if self.now_ms - since_ms < REDELIVERY_MS:
            return self.unrecorded(done.kind, done.id, record)
        return JobOutcome(done.kind, done.id, "failed", UNKNOWN_OUTCOME)

    def may_record(self, record: JobRecord | None) -> bool:
        """Return whether the run that committed may still record its outcome."""
        if record is None or record.state != "running":
            return False
        return self.now_ms - record.updated_ms < RECORDING_MS

    def unrecorded(self, kind: str, job_id: str, record: JobRecord | None) -> JobOutcome:
        """Return that a job may be done, but that its outcome is not recorded yet."""
        return JobOutcome(kind, job_id, "unfinished", _not_yet(record), is_pending=True)


def _not_yet(record: JobRecord | None) -> str:
    """Return the reason why a job is not done."""
    if record is None or not record.attempts:
        return "not finished yet; it has not started, and may still be done"
    times = f"not finished yet after {record.attempts} attempts, and may still be done"
    return f"{times}: {record.reason}" if record.reason else times


class StoredWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """The base of the stored forms of work, whose tag is the kind of its jobs; `ids` are theirs,
    under which the tracker shows them.
    """

    ids: tuple[str, ...]

    @property
    def kind(self) -> str:
        """The kind of the jobs, in the tracker and in replies."""
        return str(type(self).__struct_config__.tag)

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the messages of the unfinished jobs, since those sent first may be lost."""
        raise NotImplementedError

    def outcomes(self, check: JobCheck) -> Iterator[JobOutcome]:
        """Yield the outcome of each job; those that the state shows as pending come first."""
        raise NotImplementedError

    def extra_wait_ms(self, table: Table) -> int:
        """Return how many more milliseconds than other work this may take."""
        return 0


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The result of carrying out a request: messages to send, and the `work` to wait for, if any.

    `counts` are those that are known at once.
    """

    messages: list[OutboundMessage] = field(default_factory=list)
    work: StoredWork | None = None
    counts: Counts = Counts()


def request_key(request: TableRequest) -> str:
    """Return the key under which a request is bound and stored.

    It is made from the request's id and table name: the same id with another name is another
    request.
    """
    return key_of_request(request.request_id, request.name)


def key_of_request(request_id: str, name: str) -> str:
    """Return the `request_key` of the request of this id about the table of this name."""
    text = f"{request_id}\n{name}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def check_only_rows(selection: SelectionMessage, verb: str) -> None:
    """Check that a request names rows by a condition or by keys, and nothing else.
    Raises InvalidRequestError: it does not; the message has the `verb` of what is to become of
    them.
    """
    others = (
        selection.ranges
        or selection.columns
        or selection.limit is not None
        or selection.as_of is not None
    )
    if others or bool(selection.where.strip()) == bool(selection.keys):
        raise InvalidRequestError(
            f"say which rows to {verb}: either by a condition or by keys, and nothing else",
            hint="a condition can name key columns too; `true` is one for all rows",
        )


def request_reply_path(table_id: str, request_key: str) -> str:
    """Return the path of the last reply to a request, which is the same each time it is sent."""
    return f"{REQUESTS.parts(table_id, request_key)}reply.json"


def request_wanted_path(table_id: str, request_key: str) -> str:
    """Return the path of the empty object that marks that a delivery wanted a reply."""
    return f"{REQUESTS.parts(table_id, request_key)}reply-wanted"


def request_left_path(table_id: str, request_key: str) -> str:
    """Return the path of the list of a purge's remaining objects."""
    return f"{REQUESTS.parts(table_id, request_key)}left.json"


def request_in(path: str) -> tuple[str, bool]:
    """Return the request key in a path, and whether it is the path of the request itself."""
    _, _, rest = path.partition("/requests/")
    request_key, slash, _ = rest.partition("/")
    return (request_key, False) if slash else (rest.removesuffix(".json"), True)
