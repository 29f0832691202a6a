"""Translate failures of AWS requests into our errors, in one place for all adapters.

A request that was sent once and refused did nothing. After any other failure, a write may have been
applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError

from dormouse.errors import NoSuchInstanceError, OutcomeUnknownError, UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    Item = Mapping[str, AttributeValueTypeDef]


_Read = TypeVar("_Read")

_MISSING = (
    "AWS.SimpleQueueService.NonExistentQueue",
    "NoSuchBucket",
    "QueueDoesNotExist",
    "ResourceNotFoundException",
)
"""How the services say that there is no such queue, bucket or table."""
_READ_ATTEMPTS = 3
PRECONDITION_FAILED = "PreconditionFailed"
"""The error code of S3 for an If-Match or If-None-Match that does not hold."""


class ConditionFailedError(Exception):
    """A write did nothing, because its condition did not hold; `item` if DynamoDB returned it."""

    def __init__(self, item: Item | None = None) -> None:
        """Keep the item that the condition was checked against."""
        super().__init__("the condition did not hold")
        self.item = item


@contextmanager
def reading(service: str) -> Iterator[None]:
    """Raise failures of reads as UnavailableError; `service` is the name in its message."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        if isinstance(error, ClientError) and code_of(error) in _MISSING:
            raise NoSuchInstanceError(
                f"{service} has nothing of an instance of that name: {error}",
                hint="check the name (--instance, DORMOUSE_INSTANCE), the region and the account; "
                "an instance in a folder is named by its path, such as ./mice",
            ) from error
        raise UnavailableError(f"{service} could not be read: {error}") from error


@contextmanager
def writing(service: str) -> Iterator[None]:
    """Raise failures of writes by what is known of their outcome.

    Raises:
        ConditionFailedError: the write's condition did not hold.
        UnavailableError: the write was refused and did nothing.
        OutcomeUnknownError: the write may have been applied, or may be applied later.
    """
    try:
        yield
    except BotoCoreError as error:
        raise OutcomeUnknownError(f"{service} did not answer a write: {error}") from error
    except ClientError as error:
        if _is_failed_condition(error):
            item = cast(
                "Item | None", error.response.get("Item")
            )  # requested by ReturnValuesOnConditionCheckFailure=ALL_OLD
            raise ConditionFailedError(item) from error
        metadata = error.response["ResponseMetadata"]
        # The answer to a retry says nothing about the first request, which may have been applied.
        if metadata["HTTPStatusCode"] < 500 and not metadata.get("RetryAttempts"):
            raise UnavailableError(f"{service} refused a write: {error}") from error
        raise OutcomeUnknownError(f"{service} failed at a write: {error}") from error


def read_pages(service: str, pages: Iterable[_Read]) -> Iterator[_Read]:
    """Yield the pages of a listing; raise as `reading` does if a request for one fails.

    An error of the caller, raised while it works on a page, passes as it is.
    """
    left = iter(pages)
    while True:
        with reading(service):
            page = next(left, None)
        if page is None:
            return
        yield page


def may_pass(error: UnavailableError) -> bool:
    """Return whether a read that failed may succeed when it is repeated: it was not refused."""
    cause = error.__cause__
    if isinstance(cause, ClientError):
        return cause.response["ResponseMetadata"]["HTTPStatusCode"] >= 500
    return isinstance(cause, BotoCoreError)


def read_whole(read: Callable[[], _Read]) -> _Read:
    """Return the result of `read`, retried if the connection breaks while the body is read.

    The SDK retries requests, but not once their response has begun.
    """
    for _ in range(_READ_ATTEMPTS - 1):
        try:
            return read()
        except BotoCoreError:
            continue
    return read()


def code_of(error: ClientError) -> str:
    """Return the error code of a service, such as ``NoSuchKey``."""
    return error.response["Error"]["Code"]


def _is_failed_condition(error: ClientError) -> bool:
    reasons = error.response.get("CancellationReasons", [])
    return code_of(error) in ("ConditionalCheckFailedException", PRECONDITION_FAILED) or any(
        reason.get("Code") == "ConditionalCheckFailed" for reason in reasons
    )
