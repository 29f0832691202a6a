"""Administrators' requests from their queue: carried out or refused, and answered.

A malformed request is answered too, if it has a readable id and asks for a reply. Replies are sent
last, in a call of their own: a missing reply queue does not keep a request from being carried out.
"""

from collections.abc import Callable, Sequence
from functools import partial

from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.aws.handling import Deliveries, Event, process
from dormouse.aws.logs import about, logger
from dormouse.errors import AlreadyExistsError, DormouseError, InvalidRequestError, NotFoundError
from dormouse.features import administration
from dormouse.messages.requests import AdminRequest, Reply, decode_admin, refusal
from dormouse.messages.stages import OutboundMessage, RequestStep
from dormouse.ports import Services
from dormouse.stored.paths import REPLIES

Stage = Callable[[Services, AdminRequest], Sequence[OutboundMessage]]


def handle_requests(
    event: Event, context: LambdaContext, queue: str, stage: Stage
) -> PartialItemFailureResponse:
    """Run `stage` for each request, and `follow_request` for each step of an earlier one.

    A refused request was recorded by the stage; it is not delivered again.
    """
    deliveries = Deliveries(process().outbox, queue)

    def one(record: SQSRecord) -> None:
        services = process().services
        try:
            message = decode_admin(record.body)
        except InvalidRequestError as error:
            replies = administration.refuse_malformed(services, record.body, error.explanation)
            if not replies:
                deliveries.move_to_dead_letters(record, error.explanation)
                return
            logger.warning("refused", message_id=record.message_id, error=type(error).__name__)
            _reply(replies)
            return
        with about(message):
            is_last = partial(deliveries.is_last, record)
            if isinstance(message, RequestStep):
                _follow(services, message, is_last=is_last)
            else:
                _do(services, message, stage, is_last=is_last)

    return deliveries.each(event, context, one)


def _follow(services: Services, step: RequestStep, *, is_last: Callable[[], bool]) -> None:
    """Answer a request whose jobs have ended, or look again later."""
    try:
        messages = administration.follow_request(services, step)
    except Exception as error:
        if is_last():
            _answer_failure(partial(administration.fail_step, step, error))
        raise
    if _send(messages):
        administration.delete_request(services, step)


def _do(
    services: Services, request: AdminRequest, stage: Stage, *, is_last: Callable[[], bool]
) -> None:
    """Carry out a request, and send the messages that follow from it; or send its refusal."""
    try:
        messages = stage(services, request)
    except (InvalidRequestError, AlreadyExistsError, NotFoundError) as error:
        # The reason is not logged: it quotes the request, which may name rows.
        logger.warning("refused", request_id=request.request_id, error=type(error).__name__)
        _reply(refusal(request, error.explanation))
        return
    except Exception as error:
        if is_last():
            _answer_failure(partial(administration.fail_request, services, request, error))
        raise
    _send(messages)


def _answer_failure(replies: Callable[[], Sequence[OutboundMessage]]) -> None:
    """Send the reply to a failed last attempt; if that fails too, the first failure counts."""
    try:
        _reply(replies())
    except DormouseError as unsent:
        logger.warning("failed without a reply", error=type(unsent).__name__)


def _send(messages: Sequence[OutboundMessage]) -> bool:
    """Send messages, then replies; return whether a last reply was among them."""
    work = [outgoing for outgoing in messages if outgoing.queue != REPLIES]
    replies = [outgoing for outgoing in messages if outgoing.queue == REPLIES]
    process().outbox.send(work)
    _reply(replies)
    logger.info("done", sent=len(work), replies=len(replies))
    answers = [reply.message for reply in replies]
    return any(isinstance(each, Reply) and each.outcome != "accepted" for each in answers)


def _reply(replies: Sequence[OutboundMessage]) -> None:
    """Send replies.

    Raises:
        UnavailableError: the queue does not take them; the request is done or begun.
        NotFoundError: there is no such queue.
    """
    try:
        process().outbox.send(replies)
    except DormouseError:
        logger.error("no reply could be sent", queue=REPLIES)
        raise
