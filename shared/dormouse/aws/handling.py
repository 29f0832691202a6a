"""From Lambda events to stages and back: parse, call the stage, send what it returns, answer.

Retries and dead letters are in `deliveries`.
"""

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote_plus

import msgspec
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
from msgspec.structs import replace

from dormouse import errors
from dormouse.access import principal_of_sender
from dormouse.aws.logs import about, about_ids, logger, watch_queues
from dormouse.aws.queues import SqsOutbox
from dormouse.aws.wiring import Wiring, wiring
from dormouse.jobs import MAX_RECEIVES, permanent_failure
from dormouse.messages.stages import (
    STAGES,
    AnswerQuery,
    CancelQuery,
    FilesWaiting,
    Id,
    Message,
    OutboundMessage,
    QueryTask,
    SparkRunChanged,
    Stage,
    TableChanged,
    decode,
    has_type,
)
from dormouse.ports import Services
from dormouse.state.sources import ObjectKey, ObjectTag, Source, WholeNumber, is_file
from dormouse.stored.decoding import convert_plain, decode_json
from dormouse.tables.table import Table

# Deliveries of the messages of a queue to its function, their retries and dead letters.
#
# A message that cannot be decoded moves to the dead-letter queue at once, with the reason. A
# message whose stage fails is delivered again; the other messages of the batch are not affected.
#
# The first failure is mostly a lost race or throttling, so the second delivery comes soon. The next
# one comes after the visibility timeout, so that a service that is down has time to recover. After
# the last failure, if no retry can help, the function itself moves the message to the dead-letter
# queue: SQS would move it without the reason.

SECONDS_AFTER_FIRST_FAILURE = 30
_Decoded = TypeVar("_Decoded")


class Deliveries:
    """The deliveries of one queue."""

    def __init__(self, outbox: SqsOutbox, queue: str) -> None:
        """Handle messages of `queue`; those that can never succeed go to its dead-letter queue."""
        self._outbox, self._queue = outbox, queue

    def each(
        self, event: dict[str, Any], context: LambdaContext, one: Callable[[SQSRecord], None]
    ) -> PartialItemFailureResponse:
        """Call `one` for each message of a batch; return the ids of those to be delivered again."""

        def handler(record: SQSRecord) -> None:  # Powertools looks for this parameter by its name
            try:
                with _panics_as_errors():
                    one(record)
            except Exception as error:
                logger.exception("failed", message_id=record.message_id)
                if self.moved_to_dead_letters(record, error):
                    return
                if _receives(record) == 1:
                    self._retry_soon(record)
                raise

        processor = BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False)
        return process_partial_response(
            event=event, record_handler=handler, processor=processor, context=context
        )

    def decoded(self, record: SQSRecord, decoder: Callable[[str], _Decoded]) -> _Decoded | None:
        """Return the decoded message, or None after moving one that is malformed.
        Raises UnavailableError: it is malformed, and may not have been moved.
        """
        try:
            return decoder(record.body)
        except errors.InvalidRequestError as error:
            self.move_to_dead_letters(record, str(error))
            return None

    def moved_to_dead_letters(self, record: SQSRecord, error: Exception) -> bool:
        """Return whether a failed message was moved; if not, it must be delivered again.

        It is moved after its last delivery if no retry can help. If that fails, SQS moves it.
        """
        reason = permanent_failure(error)
        if not reason or _receives(record) < MAX_RECEIVES:
            return False
        try:
            self.move_to_dead_letters(record, reason)
        except errors.DormouseError as unsent:
            logger.warning(
                "dead letter without its reason",
                message_id=record.message_id,
                reason=unsent.explanation,
            )
            return False
        return True

    @staticmethod
    def is_last(record: SQSRecord) -> bool:
        """Return whether a message that fails now is not delivered again."""
        return _receives(record) >= MAX_RECEIVES

    def move_to_dead_letters(self, record: SQSRecord, reason: str) -> None:
        """Move a message to the dead-letter queue, with the reason."""
        self._outbox.send_to_dead_letters(self._queue, record.body, reason)
        # The reason is not logged: it may quote the message, which may name rows.
        logger.error("dead letter", queue=self._queue, message_id=record.message_id)

    def _retry_soon(self, record: SQSRecord) -> None:
        """Have a failed message delivered again soon; if that fails, it comes after the timeout."""
        try:
            self._outbox.retry_in(self._queue, record.receipt_handle, SECONDS_AFTER_FIRST_FAILURE)
        except errors.DormouseError as error:
            logger.warning("retry delayed", message_id=record.message_id, reason=error.explanation)


@contextmanager
def _panics_as_errors() -> Iterator[None]:
    """Let a panic of a library be an error of this message alone: as it is raised, it would end the
    function, and all messages of the batch would come again.
    """
    try:
        yield
    except BaseException as error:
        if errors.is_panic(error):
            raise errors.InvariantError(f"a library broke off: {type(error).__name__}") from error
        raise


def _receives(record: SQSRecord) -> int:
    return int(record.attributes.approximate_receive_count)


# Events of S3, as they come through the queue of files: which objects were created.
#
# Three forms are read: the notification that a bucket sends itself (AWS's event message structure,
# version 2, which other servers of S3 send too), the same in the envelope of an SNS topic, and the
# events of EventBridge. An event of another form is refused, so that it becomes a dead letter and
# no file is lost without a word.

_CREATED = "ObjectCreated:"
_TAGGED = ("PutRetention", "PutLegalHold", "PutTagging", "DeleteTagging")
"""What MinIO also calls created, though the content of the object is what it was."""
_OTHERS = (
    *("ObjectRemoved:", "ObjectRestore:", "ObjectTagging:", "ObjectAcl:", "ObjectAccessed:"),
    *("LifecycleExpiration:", "LifecycleTransition", "IntelligentTiering", "Replication:"),
    *("ReducedRedundancyLostObject", "ObjectTransition:", "ObjectLifecycle:", "Scanner:"),
    *("BucketCreated:", "BucketRemoved:"),
)
"""How the names of other events begin, of AWS, MinIO and Ceph: they create no object."""
_BRIDGED_OTHERS = (
    *("Object Deleted", "Object Restore Initiated", "Object Restore Completed"),
    *("Object Restore Expired", "Object Storage Class Changed", "Object Access Tier Changed"),
    *("Object ACL Updated", "Object Tags Added", "Object Tags Deleted"),
)
"""The other events of S3 in EventBridge."""
_PLAIN_SENDERS = ("ceph:s3",)
_PLAIN_CONFIGURATIONS = ("kafka-global", "nats-global", "rabbitmq-global", "webhook-global")
"""Ceph's notifications, and those of Versity's gateway, which says that it is ``aws:s3``, have keys
that are not encoded. Versity's ETags are in quotes."""


class _Bucket(msgspec.Struct):
    name: str


class _Object(msgspec.Struct):
    key: str
    eTag: ObjectTag | None = ""
    size: WholeNumber | None = 0
    versionId: ObjectTag | None = ""


class _Entity(msgspec.Struct):
    bucket: _Bucket
    object: _Object
    configurationId: str | None = None


class _Record(msgspec.Struct):
    eventName: str
    s3: object = None
    eventTime: object = None
    eventSource: object = None


class _BridgedObject(msgspec.Struct, rename="kebab"):
    key: str
    etag: ObjectTag = ""
    size: WholeNumber = 0
    version_id: ObjectTag = ""


class _BridgedDetail(msgspec.Struct):
    bucket: _Bucket
    object: _BridgedObject


class _StorageEvent(msgspec.Struct):
    """What tells the forms apart."""

    Records: list[_Record] | None = None
    Event: str = ""  # of the test event that S3 sends when a notification is set up
    Type: str = ""  # of the envelope of SNS
    Message: str = ""
    detail_type: str = msgspec.field(default="", name="detail-type")  # of EventBridge
    source: object = None
    time: object = None
    detail: object = None


def created_objects(body: str, bucket: str) -> list[Source]:
    """Return the objects of `bucket` that an event says were created; none for events that are
    known to create none.
    Raises InvalidRequestError: it is no event of S3, of a kind that is not known, or about another
    bucket.
    """
    try:
        return list(_created(body, bucket))
    except ValueError as error:
        raise errors.InvalidRequestError(f"not a notification of S3: {error}") from error


def _created(body: str, bucket: str) -> Iterator[Source]:
    event = decode_json(body, _StorageEvent)
    if event.Type == "Notification":
        event = decode_json(event.Message, _StorageEvent)
    elif event.Type:
        raise errors.InvalidRequestError(
            f"SNS sent a {event.Type!r}, not a notification; a topic of another account waits "
            "until somebody opens its SubscribeURL"
        )
    if event.detail_type:
        yield from _bridged(event, bucket)
    elif event.Records is not None:
        yield from (_notified(each, bucket) for each in event.Records if _creates(each.eventName))
    elif event.Event != "s3:TestEvent":
        raise ValueError("it has no Records")


def _creates(name: str) -> bool:
    """Return whether an event of this name creates an object; MinIO's names begin with ``s3:``."""
    kind = name.removeprefix("s3:")
    if kind.startswith(_CREATED):
        return kind.removeprefix(_CREATED) not in _TAGGED
    if kind.startswith(_OTHERS):
        return False
    raise errors.InvalidRequestError(f"not an event of S3 that is known: {name!r}")


def _notified(record: _Record, bucket: str) -> Source:
    entity = convert_plain(record.s3, _Entity)
    item = entity.object
    is_plain = (
        record.eventSource in _PLAIN_SENDERS or entity.configurationId in _PLAIN_CONFIGURATIONS
    )
    return Source(
        bucket=_checked_bucket(entity.bucket, bucket),
        key=_checked_key(item.key if is_plain else unquote_plus(item.key)),
        etag=(item.eTag or "").strip('"'),
        size_bytes=item.size or 0,
        version=item.versionId or "",
        dropped_ms=_time_ms(record.eventTime),
    )


def _bridged(event: _StorageEvent, bucket: str) -> Iterator[Source]:
    """Yield the object of an event of EventBridge, whose key is not encoded."""
    if event.source != "aws.s3" or event.detail_type not in ("Object Created", *_BRIDGED_OTHERS):
        raise errors.InvalidRequestError(
            f"not an event of S3 that is known: {event.detail_type!r} of {event.source!r}"
        )
    if event.detail_type == "Object Created":
        detail = convert_plain(event.detail, _BridgedDetail)
        item = detail.object
        yield Source(
            bucket=_checked_bucket(detail.bucket, bucket),
            key=_checked_key(item.key),
            etag=item.etag.strip('"'),
            size_bytes=item.size,
            version=item.version_id,
            dropped_ms=_time_ms(event.time),
        )


def _time_ms(text: object) -> int:
    """Return the time of an event; 0 for none, or one that cannot be read or has no zone.

    A file is not refused because the time of its event is unknown: no user would drop it again.
    Nor because EventBridge and others cut the time to the second: the end of that second is meant.
    """
    try:
        time = datetime.fromisoformat(str(text))
    except ValueError:
        return 0
    if time.tzinfo is None:
        return 0
    return max(0, int(time.timestamp() * 1000) + (0 if "." in str(text) else 999))


def _checked_bucket(entity: _Bucket, bucket: str) -> str:
    if entity.name != bucket:
        raise errors.InvalidRequestError(f"the notification is about bucket {entity.name!r}")
    return bucket


def _checked_key(key: str) -> str:
    try:
        return convert_plain(key, ObjectKey)
    except ValueError as error:
        raise errors.InvalidRequestError(f"the notification has no key of S3: {error}") from error


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
    decoder: Callable[[str], Message] | None = None,
    of_sender: Callable[[Message, str], Message] | None = None,
) -> PartialItemFailureResponse:
    """Run `stage` for each message of a batch; return the ids of those to be delivered again.

    `decoder` is for messages that other services send. `of_sender` changes a message by what SQS
    says of its sender: the `SenderId`, empty if unknown.
    """
    deliveries = Deliveries(wiring().outbox, stage.queue)

    def one(record: SQSRecord) -> None:
        message = deliveries.decoded(record, decoder or stage.decode)
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
        files = deliveries.decoded(record, lambda body: _files_in(body, bucket))
        if files:
            named.append((record, files))

    response = deliveries.each(event, context, one)
    failures: list[PartialItemFailures] = [
        {"itemIdentifier": record.message_id}
        for record, error in _batched(named, stage)
        if not deliveries.moved_to_dead_letters(record, error)
    ]
    return {"batchItemFailures": [*response["batchItemFailures"], *failures]}


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
    sources = [source for _, files in named if isinstance(files, list) for source in files]
    waiting = [files for _, files in named if isinstance(files, FilesWaiting)]
    try:
        counts = _send(stage(wiring().services, sources, waiting))
    except Exception as error:
        logger.exception("failed", files=len(sources))
        if len(named) <= 1 or isinstance(
            error, errors.UnavailableError | errors.OutcomeUnknownError
        ):
            return [(record, error) for record, _ in named]
        half = len(named) // 2
        return [*_batched(named[:half], stage), *_batched(named[half:], stage)]
    files = sum(is_file(source.key) for source in sources)
    logger.info("batched", files=files, ignored=len(sources) - files, sent=counts)
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

    First, what in the queues needs a person is published. An audit also runs `audit_all` once, and
    logs the ids that it returns as unregistered.
    Raises ExceptionGroup: one of these, or the stage of some tables, failed; all others were run.
    """
    audit = event.get("audit") is True
    failures: list[Exception] = []
    works: list[Callable[[], None]] = [_watch]
    if audit:
        works.append(partial(_audit, audit_all))
    for work in works:
        try:
            work()
        except Exception as error:  # the tables have their turn all the same
            logger.exception("failed")
            failures.append(error)
    return handle_tables(
        lambda services, table: stage(services, table, audit=audit), failed=failures
    )


def _watch() -> None:
    wired = wiring()
    now_ms = wired.services.clock.now_ms()
    watch_queues(wired.outbox, wired.settings.names, now_ms, wired.ages)


def _audit(audit_all: Callable[[Services], list[str]]) -> None:
    if ids := audit_all(wiring().services):
        logger.error("unregistered", table_ids=ids)


def handle_tables(
    stage: Callable[[Services, Table], Iterable[OutboundMessage]],
    *,
    failed: Sequence[Exception] = (),
    resting: str = "",
) -> dict[str, int]:
    """Run `stage` for each table; earlier failures, `failed`, are raised together with new ones.

    The work `resting` is left out until the next look, if all tables are quiet.
    Raises ExceptionGroup: the stage failed for some tables; it was run for all others.
    """
    sent, services = 0, wiring().services
    now_ms = services.clock.now_ms()
    if resting and services.quiet.rests(resting, now_ms):
        return {"sent": 0}
    tables, damaged = _in_turn(services)
    failures: list[Exception] = [*failed, *damaged]
    for error in damaged:
        logger.error("damaged", reason=error.explanation)
    for table in tables:
        with about_ids({"table_id": table.id}):
            try:
                sent += sum(_send(stage(services, table)).values())
            except Exception as error:  # the other tables have their turn all the same
                logger.exception("failed")
                failures.append(error)
    logger.info("done", sent=sent)
    if failures:
        raise ExceptionGroup("it failed for some tables", failures)
    if resting:
        services.quiet.rest(resting, tables, now_ms)
    return {"sent": sent}


def _in_turn(services: Services) -> tuple[list[Table], list[errors.DamagedEntryError]]:
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
    counts: Counter[str] = Counter()

    def counted() -> Iterator[OutboundMessage]:
        for outgoing in messages:
            counts[outgoing.queue] += 1
            yield outgoing

    wiring().outbox.send(counted())
    return dict(counts)


# Events of EMR Serverless from a queue: which run of Spark changed its state.
#
# The form is EventBridge's event "EMR Serverless Job Run State Change".


class _Detail(msgspec.Struct):
    jobRunId: Id


class _SparkEvent(msgspec.Struct):
    detail: _Detail


def changed_run(body: str) -> SparkRunChanged:
    """Return the run that an event names. Raises InvalidRequestError: it is no such event."""
    try:
        event = decode_json(body, _SparkEvent)
    except ValueError as error:
        raise errors.InvalidRequestError(f"not a valid event of a Spark run: {error}") from error
    return SparkRunChanged(event.detail.jobRunId)


# Who sent a message: what SQS says of the sender, whatever the message itself says.
#
# The HTTP API sends messages for its callers, and the functions that answer and sweep queries send
# some about queries that have begun. Of these, and of no others, the message says who asks.


def asked_by(message: Message, sender_id: str) -> Message:
    """Return a message with its sender as the one who asks.

    So no message can claim to be somebody else's, but one of the API, which has verified its
    caller, or of the instance about a query that it has recorded.
    """
    settings, sender = process().settings, principal_of_sender(sender_id)
    match message:
        case QueryTask():
            roles = settings.query_role_ids
        case AnswerQuery() | CancelQuery():
            roles = (settings.http_role_id,)
        case _:
            return message
    is_of_role = any(role_id and sender == principal_of_sender(role_id) for role_id in roles)
    return message if is_of_role else replace(message, who=sender)
