"""From Lambda events to stages and back: parse, call the stage, send what it returns, answer.

A message that can never succeed goes to its dead-letter queue with the reason, at once. Whatever
else goes wrong with a message makes it come again; its neighbours in the batch are not harmed.

What fails once mostly lost a race or was throttled, so it comes again soon. What fails twice waits
for its visibility timeout: a service that is down gets the time to come back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from aws_lambda_powertools.utilities.batch.types import (
    PartialItemFailureResponse,
    PartialItemFailures,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.logs import about, about_ids, logger
from dormouse.aws.s3_events import created_objects
from dormouse.aws.wiring import wiring
from dormouse.errors import (
    AlreadyExistsError,
    DormouseError,
    InvalidRequestError,
    NotFoundError,
)
from dormouse.messages import Message, Outgoing, TableChanged, decode
from dormouse.model.sources import Source
from dormouse.model.tables import Table
from dormouse.ports import Services
from dormouse.requests import AdminRequest, decode_admin, replies

Event = dict[str, object]
_Kind = TypeVar("_Kind", bound=Message)

SECONDS_AFTER_FIRST_FAILURE = 30


def handle_messages(
    event: Event,
    context: LambdaContext,
    queue: str,
    kind: type[_Kind],
    stage: Callable[[Services, _Kind], list[Outgoing]],
) -> PartialItemFailureResponse:
    """Run `stage` for each message of a batch; give the ids of those that must come again."""

    def one(record: SQSRecord) -> None:
        message = _decoded(record, queue, lambda body: decode(body, kind))
        if message is not None:
            _run(message, lambda: stage(wiring().services, message))

    return _each(event, context, queue, one)


def handle_requests(
    event: Event,
    context: LambdaContext,
    queue: str,
    stage: Callable[[Services, AdminRequest], list[Outgoing]],
) -> PartialItemFailureResponse:
    """Run `stage` for each administrator's request. One refused is recorded by it, and done."""

    def one(record: SQSRecord) -> None:
        request = _decoded(record, queue, decode_admin)
        if request is None:
            return
        try:
            _run(request, lambda: stage(wiring().services, request))
        except (InvalidRequestError, AlreadyExistsError, NotFoundError) as error:
            logger.warning("refused", request_id=request.request_id, reason=error.explanation)
            wiring().outbox.send(replies(request, error.explanation))

    return _each(event, context, queue, one)


def handle_changes(
    event: Event,
    context: LambdaContext,
    queue: str,
    stage: Callable[[Services, TableChanged], list[Outgoing]],
) -> PartialItemFailureResponse:
    """Run `stage` once for each table of a batch, however many messages tell of it."""
    outcomes: dict[str, Exception | None] = {}

    def one(record: SQSRecord) -> None:
        message = _decoded(record, queue, lambda body: decode(body, TableChanged))
        if message is None:
            return
        if message.table_id not in outcomes:
            try:
                _run(message, lambda: stage(wiring().services, message))
                outcomes[message.table_id] = None
            except Exception as error:
                outcomes[message.table_id] = error  # every message of the table must come again
        if failure := outcomes[message.table_id]:
            raise failure

    return _each(event, context, queue, one)


def handle_notifications(
    event: Event,
    context: LambdaContext,
    queue: str,
    stage: Callable[[Services, list[Source]], list[Outgoing]],
) -> PartialItemFailureResponse:
    """Run `stage` once with the objects that all notifications of a batch tell of.

    If it fails they all come again, save those that told of nothing or are dead letters.
    """
    bucket = wiring().settings.names.ingest_bucket
    sources: list[Source] = []
    telling: list[str] = []

    def one(record: SQSRecord) -> None:
        found = _decoded(record, queue, lambda body: created_objects(body, bucket))
        if found:
            sources.extend(found)
            telling.append(record.message_id)

    response = _each(event, context, queue, one)
    try:
        messages = stage(wiring().services, sources)
        wiring().outbox.send(messages)
    except Exception:  # whatever it was: the answer says which messages must come again
        logger.exception("failed", files=len(sources))
        again: list[PartialItemFailures] = [{"itemIdentifier": told} for told in telling]
        return {"batchItemFailures": [*response["batchItemFailures"], *again]}
    logger.info("batched", files=len(sources), jobs=len(messages))
    return response


def handle_schedule(
    event: Mapping[str, object], stage: Callable[..., list[Outgoing]]
) -> dict[str, int]:
    """Run `stage` for each table because its time has come; the input says if it is an audit.

    Raises:
        ExceptionGroup: it failed for some tables; it was run for all others.
    """
    audit = event.get("audit") is True
    return handle_tables(lambda services, table: stage(services, table, audit=audit))


def handle_tables(stage: Callable[[Services, Table], list[Outgoing]]) -> dict[str, int]:
    """Run `stage` for each table.

    Raises:
        ExceptionGroup: it failed for some tables; it was run for all others.
    """
    sent, failures = 0, []
    for table in wiring().services.tables.all():
        with about_ids({"table_id": table.id}):
            try:
                messages = stage(wiring().services, table)
                wiring().outbox.send(messages)
                sent += len(messages)
            except Exception as error:  # one table must not keep it from the others
                logger.exception("failed")
                failures.append(error)
    logger.info("done", sent=sent)
    if failures:
        raise ExceptionGroup("it failed for some tables", failures)
    return {"sent": sent}


_Decoded = TypeVar("_Decoded")


def _decoded(record: SQSRecord, queue: str, decoder: Callable[[str], _Decoded]) -> _Decoded | None:
    """Give what a message says; None once it is among the dead letters, for it says nothing."""
    try:
        return decoder(record.body)
    except InvalidRequestError as error:
        wiring().outbox.send_to_dead_letters(queue, record.body, str(error))
        logger.error("dead letter", queue=queue, message_id=record.message_id, reason=str(error))
        return None


def _run(message: Message, stage: Callable[[], list[Outgoing]]) -> None:
    with about(message):
        messages = stage()
        wiring().outbox.send(messages)
        logger.info("done", sent=[outgoing.queue for outgoing in messages])


def _each(
    event: Event, context: LambdaContext, queue: str, one: Callable[[SQSRecord], None]
) -> PartialItemFailureResponse:
    def handler(record: SQSRecord) -> None:  # Powertools looks for this parameter by its name
        try:
            one(record)
        except Exception:
            logger.exception("failed", message_id=record.message_id)
            if record.attributes.approximate_receive_count == "1":
                _hurry(queue, record)
            raise

    processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
    return process_partial_response(
        event=event, record_handler=handler, processor=processor, context=context
    )


def _hurry(queue: str, record: SQSRecord) -> None:
    """Let a failed message come again soon; where that fails too, it comes again late."""
    try:
        wiring().outbox.return_in(queue, record.receipt_handle, SECONDS_AFTER_FIRST_FAILURE)
    except DormouseError as error:
        logger.warning("comes late", message_id=record.message_id, reason=error.explanation)
