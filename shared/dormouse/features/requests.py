"""The work that a request causes: its stored form, its messages, and its outcomes.

Each feature has its own kind of work. The stored form only names the jobs; their outcomes are read
from the table's state and the tracker. So it is put once, never changes, and is correct however
late a message is delivered.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.jobs import MAX_RECEIVES, OUTCOME_UNKNOWN
from dormouse.messages.requests import Counts, JobState, TableRequest
from dormouse.messages.stages import OutboundMessage, SelectionMessage
from dormouse.ports import Services, Storage
from dormouse.state.jobs import JobRecord
from dormouse.state.state import TableState
from dormouse.stored import checksums, decoding
from dormouse.stored.paths import REQUESTS
from dormouse.tables.table import Table

FORMAT = 1
_Form = TypeVar("_Form", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Kind(Generic[_Form]):
    """A kind of stored object: its name in messages, its form, and what to do about a damaged
    one.
    """

    name: str
    form: type[_Form]
    hint: str = ""

    def encode(self, body: _Form, path: str) -> bytes:
        """Return the stored form of an object, for `path`."""
        return decoding.encode_stored(self.name, FORMAT, path, body)

    def decode(self, content: bytes, path: str) -> _Form:
        """Parse the result of `encode`.
        Raises CorruptDataError: the object at `path` is damaged, or is of another kind.
        """
        with decoding.raise_corrupt(f"{path} is not {self.name}", hint=self.hint):
            return decoding.decode_stored(self.name, FORMAT, path, content, self.form)

    def put(self, storage: Storage, path: str, body: _Form) -> bool:
        """Put the object; return False if there is one already, which stays."""
        return storage.put(path, self.encode(body, path))

    def save(self, storage: Storage, path: str, body: _Form) -> _Form:
        """Put the object; return the one that was put first. If that is gone by now, return this
        one: the job has ended.
        Raises CorruptDataError: the one that was put first is damaged.
        """
        return body if self.put(storage, path, body) else self.get(storage, path) or body

    def get(self, storage: Storage, path: str) -> _Form | None:
        """Return the object at a path; None if there is none.
        Raises CorruptDataError: the object is damaged.
        """
        try:
            return self.decode(storage.get(path), path)
        except NotFoundError:
            return None


class _Sealed(msgspec.Struct, frozen=True):
    v: int


class ManifestKind(Kind[_Form]):
    """A kind of object that others read too: the fields of its form as JSON, then the number of the
    format, and a checksum of all other bytes.
    """

    def encode(self, body: _Form, path: str) -> bytes:
        """Return the stored form of a manifest, which is the same for each path."""
        fields = msgspec.json.encode(body)
        end = msgspec.json.encode({"v": FORMAT, "checksum": checksums.BLANK})
        return checksums.with_checksum(msgspec.json.format(fields[:-1] + b"," + end[1:], indent=2))

    def decode(self, content: bytes, path: str) -> _Form:
        """Parse the result of `encode`.
        Raises CorruptDataError: the object at `path` is damaged, or is no manifest.
        """
        with decoding.raise_corrupt(f"{path} is not {self.name}", hint=self.hint):
            checksums.verify(content)
            decoding.check_format(decoding.decode_json(content, _Sealed).v, FORMAT)
            return decoding.decode_json(content, self.form)


class ResultFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of rows that a manifest lists; `name` is relative to the manifest."""

    name: str
    rows: int
    size_bytes: int


def list_jobs(
    storage: Storage, prefix: str, before_ms: float = float("inf")
) -> tuple[dict[str, int], list[str]]:
    """Return when the jobs that are stored below a prefix were requested, by their ids, and the
    paths of leftovers: parts, from up to a time, of jobs that have ended, or never began.

    The request of a job is ``<prefix><id>.json``, its parts are below ``<prefix><id>/``.
    """
    requests: dict[str, int] = {}
    parts: list[tuple[str, str]] = []
    for item in storage.list(prefix):
        job_id, slash, _ = item.path.removeprefix(prefix).partition("/")
        if not slash:
            requests[job_id.removesuffix(".json")] = item.modified_ms
        elif item.modified_ms <= before_ms:
            parts.append((job_id, item.path))
    return requests, [path for job_id, path in parts if job_id not in requests]


def delete_below(storage: Storage, prefix: str) -> None:
    """Delete all objects of the parts of a job."""
    storage.delete([item.path for item in storage.list(prefix)])


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

    def is_done(self, job_id: str) -> bool:
        """Return whether a job was done since the request, whatever became of the table then."""
        record = self.record_since_request(job_id)
        return record is not None and (record.state, record.reason) == ("finished", "")

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
