"""From Lambda events to stages and back: parse, call the stage, send what it returns, answer.

Retries and dead letters are in `deliveries`.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

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
    OutcomeUnknownError,
    UnavailableError,
)
from dormouse.messages.stages import (
    STAGES,
    FilesWaiting,
    Message,
    OutboundMessage,
    Stage,
    TableChanged,
    decode,
    has_type,
)
from dormouse.model.sources import Source, is_file
from dormouse.ports.services import Services
from dormouse.tables.table import Table

Event = dict[str, object]

LEAST_MS_FOR_A_TABLE = 150_000
"""No planning is begun with less time left: what its time-out breaks off takes the whole batch
along, and all of it waits for the visibility timeout."""
TURN_MS = 60_000


def process() -> Wiring:
    """Return the wiring of this process."""
    return wiring()


def loaded(name: str) -> Stage:
    """Return a stage of `STAGES` whose code is imported.

    Handlers call it while Lambda starts their process, so that no message waits for the import.
    What was imported stays, so the garbage collector need not look through it again and again.
    """
    (stage,) = (stage for stage in STAGES if stage.name == name)
    stage.load()
    gc.freeze()
    return stage


def handle_messages(
    event: Event,
    context: LambdaContext,
    stage: Stage,
    *,
    of_sender: Callable[[Message, str], Message] | None = None,
) -> PartialItemFailureResponse:
    """Run `stage` for each message of a batch; return the ids of those to be delivered again.

    `of_sender` changes a message by what SQS says of its sender: the `SenderId`, empty if unknown.
    """
    return handle_decoded(event, context, stage, stage.decode, of_sender=of_sender)


def handle_decoded(
    event: Event,
    context: LambdaContext,
    stage: Stage,
    decoder: Callable[[str], Message],
    *,
    of_sender: Callable[[Message, str], Message] | None = None,
) -> PartialItemFailureResponse:
    """Do as `handle_messages`, with a decoder for messages that other services send."""

    deliveries = Deliveries(wiring().outbox, stage.queue)

    def one(record: SQSRecord) -> None:
        message = deliveries.decoded(record, decoder)
        if message is not None and of_sender is not None:
            message = of_sender(message, record.attributes.get("SenderId") or "")
        if message is not None:
            _run(message, lambda: stage.load()(wiring().services, message))

    return deliveries.each(event, context, one)


def handle_changes(
    event: Event,
    context: LambdaContext,
    queue: str,
    stage: Callable[[Services, TableChanged], Iterable[OutboundMessage]],
) -> PartialItemFailureResponse:
    """Run `stage` once for each table of a batch, however many messages name it.

    A run for a swept table serves the other messages of that table too. If the time left is too
    short to plan a table, its message goes to the end of the queue: it has not failed.
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
                outcomes[run] = error  # every message of the table must be delivered again
        if failure := outcomes[run]:
            raise failure

    return deliveries.each(event, context, one)


def handle_notifications(
    event: Event,
    context: LambdaContext,
    queue: str,
    stage: Callable[[Services, list[Source], list[FilesWaiting]], Iterable[OutboundMessage]],
) -> PartialItemFailureResponse:
    """Run `stage` once with the objects that all notifications of a batch name.

    The stage's own messages, about files that wait for more, come by the same queue. After a
    failure the messages of the failed half are delivered again, except those that named nothing or
    were moved to the dead-letter queue.
    """
    bucket = wiring().settings.names.ingest_bucket
    deliveries = Deliveries(wiring().outbox, queue)
    named: list[_Named] = []

    def one(record: SQSRecord) -> None:
        found = deliveries.decoded(record, lambda body: _files_in(body, bucket))
        if found:
            named.append((record, found))

    response = deliveries.each(event, context, one)
    failed: list[PartialItemFailures] = [
        {"itemIdentifier": record.message_id}
        for record, error in _batched(named, stage)
        if not deliveries.moved_to_dead_letters(record, error)
    ]
    return {"batchItemFailures": [*response["batchItemFailures"], *failed]}


_Named = tuple[SQSRecord, list[Source] | FilesWaiting]
"""A message, and the files that it names."""


def _batched(
    named: Sequence[_Named],
    stage: Callable[[Services, list[Source], list[FilesWaiting]], Iterable[OutboundMessage]],
) -> list[tuple[SQSRecord, Exception]]:
    """Run `stage` for all together; return the messages that failed, each with its error.

    One table may be the reason for a failure: then each half is tried by itself, so that the files
    of other tables are not held up. That is of no use if a service does not answer.
    """
    sources = [source for _, found in named if isinstance(found, list) for source in found]
    waiting = [found for _, found in named if isinstance(found, FilesWaiting)]
    try:
        sent = _send(stage(wiring().services, sources, waiting))
    except Exception as error:
        logger.exception("failed", files=len(sources))
        if len(named) <= 1 or isinstance(error, UnavailableError | OutcomeUnknownError):
            return [(record, error) for record, _ in named]
        half = len(named) // 2
        return [*_batched(named[:half], stage), *_batched(named[half:], stage)]
    files = sum(is_file(source.key) for source in sources)
    logger.info("batched", files=files, ignored=len(sources) - files, sent=sent)
    return []


def _files_in(body: str, bucket: str) -> list[Source] | FilesWaiting:
    """Return the files that a message names: ours has a type, a notification of S3 has none."""
    return decode(body, FilesWaiting) if has_type(body) else created_objects(body, bucket)


def handle_schedule(
    event: Mapping[str, object],
    stage: Callable[..., Iterable[OutboundMessage]],
    audit_all: Callable[[Services], list[str]],
) -> dict[str, int]:
    """Run `stage` for each table on a schedule, whose input says whether this is an audit.

    An audit also runs `audit_all` once, and logs the ids that it returns as unregistered.

    Raises:
        ExceptionGroup: `audit_all` or the stage of some tables failed; all others were run.
    """
    audit = event.get("audit") is True
    failures: list[Exception] = []
    if audit:
        try:
            if ids := audit_all(wiring().services):
                logger.error("unregistered", table_ids=ids)
        except Exception as error:  # the tables have their turn all the same
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
    """Run `stage` for each table; earlier failures, `failed`, are raised together with new ones.

    Raises:
        ExceptionGroup: the stage failed for some tables; it was run for all others.
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
            except Exception as error:  # the other tables have their turn all the same
                logger.exception("failed")
                failures.append(error)
    logger.info("done", sent=sent)
    if failures:
        raise ExceptionGroup("it failed for some tables", failures)
    return {"sent": sent}


def _in_turn(services: Services) -> tuple[list[Table], list[DamagedEntryError]]:
    """Return all readable tables, and the damaged entries.

    The order begins at another table each time: if time runs out, it is not always for the same.
    """
    tables, damaged = services.tables.list_readable()
    start = services.clock.now_ms() // TURN_MS % max(1, len(tables))
    return [*tables[start:], *tables[:start]], damaged


def _run(message: Message, stage: Callable[[], Iterable[OutboundMessage]]) -> None:
    with about(message):
        logger.info("done", sent=_send(stage()))


def _send(messages: Iterable[OutboundMessage]) -> dict[str, int]:
    """Send messages while they are made; return how many went to each queue."""
    sent: Counter[str] = Counter()

    def counted() -> Iterator[OutboundMessage]:
        for outgoing in messages:
            sent[outgoing.queue] += 1
            yield outgoing

    wiring().outbox.send(counted())
    return dict(sent)
