"""In-memory adapters of the ports, behaving as the real ones do, with the time as an argument."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from pathlib import Path

from dormouse.access import AccessRules
from dormouse.errors import (
    AlreadyExistsError,
    CorruptDataError,
    DamagedEntryError,
    NotFoundError,
    RefusedSourceError,
    UnavailableError,
)
from dormouse.log.engine import StateStore
from dormouse.messages.stages import OutboundMessage
from dormouse.ports import Arrived, DeadLetter, SparkRun, SparkRunState
from dormouse.schema.schema import ROW_IDS_PER_MS
from dormouse.state.jobs import JobEvent, JobRecord, Metric, Tracked, fold_event
from dormouse.state.rules import Outcome
from dormouse.state.sources import Source, is_file_below
from dormouse.state.state import TableState, Transaction
from dormouse.tables.table import Table, Tombstone, with_applied_request


@dataclass
class FakeClock:
    """Stands still until it is moved."""

    ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def advance(self, *, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@dataclass
class CountingIds:
    """Ids that count up, after the clock's time as the real ones do."""

    clock: FakeClock
    count: int = 0

    def new(self) -> str:
        self.count += 1
        return f"{self.clock.now_ms():012x}{self.count:020x}"


@dataclass
class MemoryTables:
    """The registry as a dict; tables are kept as they are without the instance's properties."""

    by_id: dict[str, Table] = field(default_factory=dict)
    settings: dict[str, int | str] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    buried: dict[str, Tombstone] = field(default_factory=dict)
    rules: AccessRules = None

    def get(self, table_id: str) -> Table | None:
        if table_id in self.damaged:
            kept = self.by_id.get(table_id)
            raise DamagedEntryError(
                f"the registry's item of {table_id!r} cannot be read",
                name=kept.name if kept else "",
                table_id=table_id,
                hint=f"dormouse rebuild {table_id}",
            )
        kept = self.by_id.get(table_id)
        return None if kept is None else kept.with_settings(kept.settings, self.settings)

    def named(self, name: str) -> Table | None:
        named = (table.id for table in self.by_id.values() if table.name == name)
        table_id = next(named, None)
        return None if table_id is None else self.get(table_id)

    def all(self) -> list[Table]:
        tables, damaged = self.list_readable()
        if damaged:
            raise damaged[0]
        return tables

    def repair(self, which: str = "") -> list[str]:
        called = {t.id: t.name for t in self.by_id.values() if which in ("", t.id, t.name)}
        repaired = sorted(self.damaged & called.keys())
        self.damaged -= set(repaired)
        return [f"the entry of table {called[table_id]!r}" for table_id in repaired]

    def list_readable(self) -> tuple[list[Table], list[DamagedEntryError]]:
        tables, damaged = [], []
        for table in sorted(self.by_id.values(), key=lambda t: t.name):
            try:
                tables.append(self.get(table.id) or table)
            except DamagedEntryError as error:
                damaged.append(error)
        return tables, damaged

    def create(self, table: Table) -> None:
        taken = self.named(table.name)
        if taken != self.get(table.id) or table.id in self.buried:
            raise AlreadyExistsError(f"there is a table {table.name!r} already")
        self.by_id.setdefault(table.id, table)

    def change(
        self, table_id: str, change: Callable[[Table], Table], *, request_id: str = ""
    ) -> Table:
        before, kept = self.by_id.get(table_id), self.get(table_id)
        if kept is None:
            raise NotFoundError(f"there is no table {table_id!r}")
        if request_id and request_id in kept.applied_requests:
            return kept
        wanted = with_applied_request(change(kept), request_id)
        if self.by_id.get(table_id) is not before:  # others were quicker while it was made
            return self.change(table_id, change, request_id=request_id)
        if kept.deleting and not wanted.deleting:
            raise NotFoundError(f"table {kept.name!r} is being deleted")
        other = self.named(wanted.name)
        if other is not None and other.id != table_id:
            raise AlreadyExistsError(f"there is a table {wanted.name!r} already")
        self.by_id[table_id] = wanted
        return wanted

    def put_tombstone(self, tombstone: Tombstone) -> Tombstone | None:
        kept = self.by_id.get(tombstone.table_id)
        if kept is None or kept.deleting:
            self.buried.setdefault(tombstone.table_id, tombstone)
        return self.buried.get(tombstone.table_id)

    def tombstone(self, table_id: str) -> Tombstone | None:
        return self.buried.get(table_id)

    def tombstones(self, since_ms: int) -> tuple[list[Tombstone], list[CorruptDataError]]:
        found = sorted(self.buried.values(), key=lambda each: each.deleted_ms)
        return [each for each in found if each.deleted_ms >= since_ms], []

    def delete(self, table: Table) -> None:
        self.by_id.pop(table.id, None)

    def defaults(self) -> dict[str, int | str]:
        return dict(self.settings)

    def change_defaults(
        self, change: Callable[[dict[str, int | str]], dict[str, int | str]]
    ) -> dict[str, int | str]:
        self.settings = change(dict(self.settings))
        return self.settings

    def access_rules(self) -> AccessRules:
        return self.rules

    def change_access_rules(self, change: Callable[[AccessRules], AccessRules]) -> AccessRules:
        self.rules = change(self.rules)
        return self.rules


@dataclass
class MemoryTracker:
    """The tracker as a dict."""

    kept: dict[tuple[str, str], JobRecord] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    row_ids: dict[str, int] = field(default_factory=dict)

    def record(self, job: Tracked, event: JobEvent, at_ms: int) -> None:
        wanted = fold_event(self.get(job.table_id, job.id), job, event, at_ms)
        if wanted is not None:
            self.kept[job.table_id, job.id] = wanted

    def get(self, table_id: str, job_id: str) -> JobRecord | None:
        return self.kept.get((table_id, job_id))

    def records(self, table_id: str) -> Iterator[JobRecord]:
        yield from (self.kept[key] for key in sorted(self.kept) if key[0] == table_id)

    def bind(self, request: str, about: str, now_ms: int, instead_of: str = "") -> str:
        if self.bound.get(request, instead_of) == instead_of:
            self.bound[request] = about
        return self.bound[request]

    def reserve_row_ids(self, table_id: str, count: int, now_ms: int) -> int:
        first = max(now_ms * ROW_IDS_PER_MS, self.row_ids.get(table_id, 0))
        self.row_ids[table_id] = first + count
        return first


@dataclass
class MemorySources:
    """The ingest bucket as a dict of key to content and time, to the second.

    The ETag is the content's MD5, as on S3.
    """

    clock: FakeClock
    bucket: str = "ingest"
    objects: dict[str, tuple[bytes, int]] = field(default_factory=dict)

    def drop(self, key: str, body: bytes) -> Source:
        """Put an object, as a user would; returns the source its notification names."""
        now_ms = self.clock.now_ms()
        self.objects[key] = (body, now_ms - now_ms % 1000)
        return self.source(key)

    def download(self, source: Source, local: Path, arrived: Arrived | None = None) -> None:
        if source.bucket != self.bucket:
            raise RefusedSourceError(f"{source.key!r} is not in the ingest bucket")
        if source.key not in self.objects:
            raise RefusedSourceError(f"{source.key!r} is gone")
        if self.source(source.key).etag != source.etag:
            raise RefusedSourceError(f"{source.key!r} was overwritten before it was ingested")
        local.write_bytes(self.objects[source.key][0])

    def list(self, prefix: str, *, since_ms: int) -> Iterator[Source]:
        for key, (_, dropped_ms) in sorted(self.objects.items()):
            is_late = dropped_ms >= since_ms - since_ms % 1000
            if key.startswith(prefix) and is_file_below(prefix, key) and is_late:
                yield self.source(key)

    def remove(self, source: Source) -> None:
        if source.key in self.objects and self.source(source.key).etag == source.etag:
            del self.objects[source.key]

    def source(self, key: str) -> Source:
        """Return the source that an object is."""
        body, _ = self.objects[key]
        etag = md5(body, usedforsecurity=False).hexdigest()
        return Source(self.bucket, key, etag, len(body))


class HookedStore(StateStore):
    """A store which runs the first of `hooks`, once, before a commit, and of `late` after it."""

    def __init__(
        self, store: StateStore, hooks: list[Callable[[], object]], late: list[Callable[[], object]]
    ) -> None:
        super().__init__(store.reader, store._clock, store._ids, store._options)
        self.hooks, self.late = hooks, late

    def commit(self, *transactions: Transaction, generation: int) -> tuple[Outcome, ...]:
        if self.hooks:
            self.hooks.pop(0)()
        outcomes = super().commit(*transactions, generation=generation)
        if self.late:
            self.late.pop(0)()
        return outcomes

    def restore(self, earlier: TableState, *, generation: int) -> Outcome:
        if self.hooks:
            self.hooks.pop(0)()
        outcome = super().restore(earlier, generation=generation)
        if self.late:
            self.late.pop(0)()
        return outcome

    def begin(self, state: TableState) -> None:
        if self.hooks:
            self.hooks.pop(0)()
        super().begin(state)
        if self.late:
            self.late.pop(0)()


@dataclass
class MemoryDeadLetters:
    """Dead letters as lists; `sent` has the queue and the body of each redriven one.

    Letters in `stuck` cannot be deleted, those in `refused` cannot be sent.
    """

    clock: FakeClock
    letters: dict[str, list[DeadLetter]] = field(default_factory=dict)
    sent: list[tuple[str, str]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    stuck: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    before_delete: list[Callable[[], object]] = field(default_factory=list)

    def add(self, queue: str, body: str, reason: str = "") -> DeadLetter:
        kept = self.letters.setdefault(queue, [])
        number = sum(map(len, self.letters.values()))
        kept.append(DeadLetter(f"letter-{number}", body, reason, 1, self.clock.now_ms()))
        return kept[-1]

    def receive(self, queue: str, most: int) -> list[DeadLetter]:
        free = [each for each in self.letters.get(queue, []) if each.id not in self.taken][:most]
        self.taken |= {each.id for each in free}
        return free

    def release(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        self.taken -= {each.id for each in letters}

    def redrive(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        landed = [each for each in letters if each.id not in self.refused]
        self.sent += [(queue, each.body) for each in landed]
        return landed

    def delete(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        if self.before_delete:
            self.before_delete.pop(0)()
        gone = {each.id for each in letters} - self.stuck
        self.letters[queue] = [e for e in self.letters.get(queue, []) if e.id not in gone]
        return [each for each in letters if each.id not in gone]


@dataclass
class MemorySpark:
    """Keeps the runs it was asked for, by their ids; `ended` says how runs ended.

    While there are `refusals`, each start raises the first of them.
    """

    package: Path
    runs: dict[str, SparkRun] = field(default_factory=dict)
    ended: dict[str, tuple[str, str]] = field(default_factory=dict)
    refusals: list[Exception] = field(default_factory=list)
    silent: bool = False

    def start(self, run: SparkRun) -> str:
        if self.refusals:
            raise self.refusals.pop(0)
        for run_id, earlier in self.runs.items():
            if earlier.token == run.token:
                if earlier != run:
                    raise UnavailableError("the token is of another request")
                return run_id
        run_id = f"run{len(self.runs) + 1}"
        self.runs[run_id] = run
        return run_id

    def describe(self, run_id: str) -> SparkRunState | None:
        if self.silent:
            raise UnavailableError("Spark does not answer")
        if run_id not in self.runs:
            return None
        run, (outcome, reason) = self.runs[run_id], self.ended.get(run_id, ("", ""))
        return SparkRunState(run.table_id, run.job_id, run.attempt, outcome, reason)


@dataclass
class MemoryMetrics:
    """Keeps what was emitted: the table's name, and the values."""

    emitted: list[tuple[str, dict[Metric, float]]] = field(default_factory=list)

    def emit(self, table_name: str, values: Mapping[Metric, float]) -> None:
        self.emitted.append((table_name, dict(values)))

    def total(self, measure: Metric) -> float:
        """Add up what was counted."""
        return sum(values.get(measure, 0) for _, values in self.emitted)


@dataclass
class MemoryOutbox:
    """Keeps what was sent."""

    sent: list[OutboundMessage] = field(default_factory=list)

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        self.sent += messages

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        return dict.fromkeys(queues, 0)
