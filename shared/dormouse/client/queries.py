"""Queries over messages: asked, followed to their end, read back, listed, cancelled.

The instance answers them, so the caller needs no right to read its tables: only to send to the
queue of queries, to read records of jobs, and to read objects below ``queries/`` in the results
bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, inf, isfinite
from numbers import Integral
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec import structs

from dormouse import errors
from dormouse.client.waiting import WAIT_SECONDS, Awaited, Polling, Queues, TaskProgress
from dormouse.features.queries import QUERIES, QueryEnd, load_end, question
from dormouse.messages.stages import AnswerQuery, CancelQuery, OutboundMessage, QueryLimits
from dormouse.ports import Services
from dormouse.shards.reading import ReadCounters
from dormouse.showing import Listing
from dormouse.state.jobs import JobRecord
from dormouse.stored.decoding import check_types
from dormouse.stored.paths import query_prefix

if TYPE_CHECKING:
    import pyarrow as pa

    from dormouse.query.result import QueryResult


QUEUE = "queries"
RUNS = ("here", "remote")
"""Where a query can run: in this process, or in the instance, by messages."""


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """A query that was asked. The instance answers it, whether anybody waits or not."""

    id: str
    services: Services
    queues: Queues
    polling: Polling
    asked: AnswerQuery | None = None

    @property
    def uri(self) -> str:
        """Where the result is, with the bucket."""
        return f"{self.services.results.uri}/{query_prefix(self.id)}"

    def record(self) -> JobRecord:
        """Return what is recorded of the query: its state, rows, bytes, sub-queries.
        Raises NotFoundError: nothing is recorded yet, or any more.
        """
        entry = self.services.tracker.get(QUERIES, self.id)
        if entry is None:
            raise errors.NotFoundError(
                f"there is no query {self.id!r}", hint="records live for seven days"
            )
        return entry

    def progress(self) -> TaskProgress | None:
        """Return the progress; None once the query has ended."""
        record = self.services.tracker.get(QUERIES, self.id)
        if record is None:
            return TaskProgress()
        return None if record.is_finished else TaskProgress(record.parts_done, record.parts)

    def wait(
        self,
        timeout_seconds: float = WAIT_SECONDS,
        *,
        watch: Callable[[TaskProgress], None] | None = None,
    ) -> QueryEnd:
        """Wait until the query has ended; return its manifest.

        Raises:
            DormouseError: it failed: the error is of the class that it would have been here.
            NotFoundError: there is none, it was cancelled, or its result has expired.
            TimedOutError: it had not ended after `timeout_seconds`; it goes on.
            DeadLetterError: only a dead letter is left of it.
        """
        awaited = Awaited(
            *(self.services, (QUEUE,), lambda: [(self.id,)], self.queues),
            is_known=lambda: bool(self.asked or self.services.tracker.get(QUERIES, self.id)),
        )
        with suppress(errors.NotFoundError):  # results outlive records
            self.polling.until_ended(
                self.progress, timeout_seconds=timeout_seconds, watch=watch, awaited=awaited
            )
        return self.end()

    def end(self) -> QueryEnd:
        """Return the manifest of a query that has ended; raises as `wait`."""
        end = load_end(self.services.results, self.id)
        if end is None:
            raise errors.NotFoundError(
                f"the result of query {self.id!r} is not there, or not any more",
                hint="wait for it, or ask again",
            )
        if self.asked is not None and end.question and end.question != question(self.asked):
            raise errors.InvalidRequestError(
                f"another query has the id {self.id!r}", hint="give each query an id of its own"
            )
        if end.state == "cancelled":
            raise errors.NotFoundError(f"query {self.id!r} was cancelled", hint="ask again")
        if end.state == "failed":
            raise failure_of(end)
        return end

    def result(self, timeout_seconds: float = WAIT_SECONDS) -> QueryResult:
        """Return the rows, streamed from the files of the result; raises as `wait`."""
        return result_of(self.services, self.wait(timeout_seconds))

    def cancel(self) -> None:
        """Cancel the query, unless it has ended: it has no result then."""
        self.queues.send([OutboundMessage(QUEUE, CancelQuery(query_id=self.id))])

    def ended(self, timeout_seconds: float) -> QueryEnd:
        """Wait as `wait` does, and cancel the query if that fails or is interrupted before."""
        try:
            return self.wait(timeout_seconds)
        except BaseException:
            if self.progress() is not None:
                self.cancel()
            raise

    def answer(self, timeout_seconds: float) -> QueryResult:
        """Return the rows of a query that `ended`."""
        return result_of(self.services, self.ended(timeout_seconds))


def ask(
    services: Services, queues: Queues, polling: Polling, request: AnswerQuery, seconds: float
) -> AskedQuery:
    """Send a query, which may take so many seconds; infinitely many are as many as it may."""
    if not seconds > 0:
        raise errors.InvalidRequestError(f"a query has some seconds, which {seconds!r} is not")
    limits = QueryLimits() if seconds == inf else QueryLimits(seconds=ceil(seconds))
    request = check_types(structs.replace(request, limits=limits))
    queues.send([OutboundMessage(QUEUE, request)])
    return AskedQuery(request.query_id, services, queues, polling, request)


def check_run(run: str) -> None:
    """Refuse a place to run in that there is not."""
    if run not in RUNS:
        raise errors.InvalidRequestError(f"a query runs {' or '.join(RUNS)}, not {run!r}")


def message_parameters(values: dict[str, object]) -> dict[str, Any]:
    """Return the values of parameters as a message has them.
    Raises InvalidRequestError: JSON does not have its type, or NaN and infinity.
    """
    sent: dict[str, Any] = {}
    for name, value in values.items():
        match value:
            case None | bool():
                sent[name] = value
            case str():
                sent[name] = str(value)
            case Integral():  # NumPy's, too
                sent[name] = int(value)
            case float() if isfinite(value):
                sent[name] = float(value)
            case _:
                given = value if isinstance(value, float) else f"a {type(value).__name__}"
                raise errors.InvalidRequestError(
                    f"parameter {name!r} is {given}, which no message has",
                    hint="give it as text, and CAST it in the statement",
                )
    return sent


def listed_queries(services: Services) -> Listing[JobRecord]:
    """Return the records of queries, the newest first."""
    columns = ("job_id", "state", "subject", "who", "parts_done", "parts", "rows", "seconds")
    records = sorted(services.tracker.records(QUERIES), key=attrgetter("began_ms"), reverse=True)
    return Listing(records, "queries", columns)


def failure_of(end: QueryEnd) -> errors.DormouseError:
    """Return the error with which a query failed."""
    return errors.error_named(end.error, end.reason)


def result_of(services: Services, end: QueryEnd) -> QueryResult:
    """Return the rows of a finished query; they are read while they are taken."""
    from dormouse.files.results import read_schema
    from dormouse.query.result import PeekableBatches, QueryResult

    schema = read_schema(end.schema, end.query)
    versions = dict(end.versions)
    each = [version for numbers in versions.values() for version in numbers]
    only = each[0] if len(each) == 1 else 0
    reads = ReadCounters(requests=end.requests, size_bytes=end.read_bytes)
    batches = PeekableBatches(_batches(services, end, schema))
    return QueryResult(schema, batches, reads, only, versions)


def _batches(services: Services, end: QueryEnd, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    from dormouse.files.results import ResultFormat, read_rows

    for file in end.files:
        if not file.name or "/" in file.name:
            raise errors.CorruptDataError(
                f"the manifest of query {end.query!r} names {file.name!r}, which is no file of it"
            )
        path = query_prefix(end.query) + file.name
        form = ResultFormat(end.format)
        yield from read_rows(services.results, form, schema, path, file.size_bytes, file.rows)
