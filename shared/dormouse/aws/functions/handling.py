"""From Lambda events to stages and back: parse, call the stage, send what it returns, answer.

What becomes of messages that fail is said in `deliveries`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from aws_lambda_powertools.utilities.batch.types import (
    PartialItemFailureResponse,
    PartialItemFailures,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.base.logs import about, about_ids, logger
from dormouse.aws.functions.deliveries import Deliveries
from dormouse.aws.functions.s3_events import created_objects
from dormouse.aws.wiring import Wiring, wiring
from dormouse.errors import (
    DamagedEntryError,
    InvalidRequestError,
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.messages import FilesWaiting, Message, OutboundMessage, TableChanged, decode
from dormouse.model.sources import Source
from dormouse.ports import Services
from dormouse.tables.table import Table

Event = dict[str, object]
_Kind = TypeVar("_Kind", bound=Message)

LEAST_MS_FOR_A_TABLE = 150_000
"""No planning is begun with less time left: what its time-out breaks off takes the whole batch
along, and all of it waits for the visibility timeout."""
TURN_MS = 60_000


def process() -> Wiring:
    """Return the wiring of the process that runs the handlers of this module and its neighbours."""
    return wiring()


def handle_messages(
    event: Event,
    context: LambdaContext,
    queue: str,
    kind: type[_Kind],
    stage: Callable[[Services, _Kind], Iterable[OutboundMessage]],
) -> PartialItemFailureResponse:
    """Run `stage` for each message of a batch; give the ids of those that must come again."""
    return handle_decoded(event, context, queue, lambda body: decode(body, kind), stage)


def handle_decoded(
    event: Event,
    context: LambdaContext,
    queue: str,
    decoder: Callable[[str], _Kind],
    stage: Callable[[Services, _Kind], Iterable[OutboundMessage]],
) -> PartialItemFailureResponse:
    """Do as `handle_messages` does, with messages that are not all of one kind, or not ours."""

    deliveries = Deliveries(wiring().outbox, queue)

    def one(record: SQSRecord) -> None:
        message = deliveries.decoded(record, decoder)
        if message is not None:
            _run(message, lambda: stage(wiring().services, message))

    return deliveries.each(event, context, one)


def handle_changes(
    event: Event,
    context: LambdaContext,
    queue: str,
    stage: Callable[[Services, TableChanged], Iterable[OutboundMessage]],
) -> PartialItemFailureResponse:
    """Run `stage` once for each table of a batch, however many messages tell of it.

    One run that was told that time went by does for the others, too. A table that there is too
    little time left for goes to the end of the queue: it has not failed.
    """
    deliveries = Deliveries(wiring().outbox, queue)
    outcomes: dict[tuple[str, bool], Exception | None] = {}

    def one(record: SQSRecord) -> None:
        message = deliveries.decoded(record, lambda body: decode(body, TableChanged))
        if message is None:
            return
        run = (message.table_id, message.swept)
        if not message.swept and (message.table_id, True) in outcomes:
            run = (message.table_id, True)
        if run not in outcomes:
            if context.get_remaining_time_in_millis() < LEAST_MS_FOR_A_TABLE:
                wiring().outbox.send([OutboundMessage(queue, message)])
                return
            try:
                _run(message, lambda: stage(wiring().services, message))
                outcomes[run] = None
            except Exception as error:
                outcomes[run] = error  # every message of the table must come again
        if failure := outcomes[run]:
            raise failure

    return deliveries.each(event, context, one)


def handle_notifications(
    event: Event,
    context: LambdaContext,
    queue: str,
    stage: Callable[[Services, list[Source], list[FilesWaiting]], Iterable[OutboundMessage]],
) -> PartialItemFailureResponse:
    """Run `stage` once with the objects that all notifications of a batch tell of.

    The stage's own messages, about files that wait for more, come by the same queue.

    If it fails they come again, save those of others, or that told of nothing, or are dead letters.
    """
    bucket = wiring().settings.names.ingest_bucket
    deliveries = Deliveries(wiring().outbox, queue)
    telling: list[_Telling] = []

    def one(record: SQSRecord) -> None:
        found = deliveries.decoded(record, lambda body: _files_in(body, bucket))
        if found:
            telling.append((record, found))

    response = deliveries.each(event, context, one)
    failed: list[PartialItemFailures] = [
        {"itemIdentifier": record.message_id}
        for record, error in _batched(telling, stage)
        if not deliveries.gave_up(record, error)
    ]
    return {"batchItemFailures": [*response["batchItemFailures"], *failed]}


_Telling = tuple[SQSRecord, list[Source] | FilesWaiting]
"""A message, and what it tells of."""


def _batched(
    telling: Sequence[_Telling],
    stage: Callable[[Services, list[Source], list[FilesWaiting]], Iterable[OutboundMessage]],
) -> list[tuple[SQSRecord, Exception]]:
    """Run `stage` for all together; give the messages that failed, and why each did.

    What fails for all may be the fault of one table: then it is tried by halves, so that the files
    of others are not held up. A service that does not answer does so to all of them.
    """
    sources = [source for _, found in telling if isinstance(found, list) for source in found]
    waiting = [found for _, found in telling if isinstance(found, FilesWaiting)]
    try:
        sent = _send(stage(wiring().services, sources, waiting))
    except Exception as error:
        logger.exception("failed", files=len(sources))
        if len(telling) <= 1 or isinstance(error, UnavailableError | OutcomeUnknownError):
            return [(record, error) for record, _ in telling]
        half = len(telling) // 2
        return [*_batched(telling[:half], stage), *_batched(telling[half:], stage)]
    logger.info("batched", files=len(sources), sent=sent)
    return []


def _files_in(body: str, bucket: str) -> list[Source] | FilesWaiting:
    try:
        return decode(body, FilesWaiting)
    except InvalidRequestError:
        return created_objects(body, bucket)


def handle_schedule(
    event: Mapping[str, object],
    stage: Callable[..., Iterable[OutboundMessage]],
    audit_all: Callable[[Services], list[str]],
) -> dict[str, int]:
    """Run `stage` for each table because its time has come; the input says if it is an audit.

    An audit runs `audit_all` besides, once, and logs the ids that this returns as unaccounted for.

    Raises:
        ExceptionGroup: it failed for some tables, or for the whole; it was run for all others.
    """
    audit = event.get("audit") is True
    failures: list[Exception] = []
    if audit:
        try:
            if ids := audit_all(wiring().services):
                logger.error("unregistered", table_ids=ids)
        except Exception as error:  # it must not keep the tables from their turn
            logger.exception("failed")
            failures.append(error)
    return handle_tables(
        lambda services, table: stage(services, table, audit=audit), failed=failures
    )


def handle_tables(
    stage: Callable[[Services, Table], Iterable[OutboundMessage]],
    *,
    failed: Sequence[Exception] = (),
) -> dict[str, int]:
    """Run `stage` for each table; what has `failed` before counts with what fails.

    Raises:
        ExceptionGroup: it failed for some tables; it was run for all others.
    """
    sent = 0
    tables, damaged = _in_turn(wiring().services)
    failures: list[Exception] = [*failed, *damaged]
    for error in damaged:
        logger.error("damaged", reason=error.explanation)
    for table in tables:
        with about_ids({"table_id": table.id}):
            try:
                sent += sum(_send(stage(wiring().services, table)).values())
            except Exception as error:  # one table must not keep it from the others
                logger.exception("failed")
                failures.append(error)
    logger.info("done", sent=sent)
    if failures:
        raise ExceptionGroup("it failed for some tables", failures)
    return {"sent": sent}


def _in_turn(services: Services) -> tuple[list[Table], list[DamagedEntryError]]:
    """Return all tables, each time from another one on: should time run out, it is not always for
    the same ones. Those that cannot be read do not keep the others from their turn.
    """
    tables, damaged = services.tables.list_readable()
    start = services.clock.now_ms() // TURN_MS % max(1, len(tables))
    return [*tables[start:], *tables[:start]], damaged


def _run(message: Message, stage: Callable[[], Iterable[OutboundMessage]]) -> None:
    with about(message):
        logger.info("done", sent=_send(stage()))


def _send(messages: Iterable[OutboundMessage]) -> dict[str, int]:
    """Send messages as they are made; tell how many went to each queue."""
    sent: Counter[str] = Counter()

    def counted() -> Iterator[OutboundMessage]:
        for outgoing in messages:
            sent[outgoing.queue] += 1
            yield outgoing

    wiring().outbox.send(counted())
    return dict(sent)
