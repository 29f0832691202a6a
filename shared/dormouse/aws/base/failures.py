"""What a failed request to AWS means, decided in one place for all adapters.

A request that a service refused, and that was sent once, did nothing. After any other failure of a
write it may have landed. Used by everything that talks to AWS, the state store's pages among it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

from botocore.exceptions import BotoCoreError, ClientError

from dormouse.errors import OutcomeUnknownError, UnavailableError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef

    Item = Mapping[str, AttributeValueTypeDef]


_Read = TypeVar("_Read")

_READ_ATTEMPTS = 3
PRECONDITION_FAILED = "PreconditionFailed"
"""How S3 says that If-Match or If-None-Match did not hold."""


class ConditionFailedError(Exception):
    """A write did nothing, because its condition did not hold; `item` if DynamoDB gave it."""

    def __init__(self, item: Item | None = None) -> None:
        """Keep the item as it was."""
        super().__init__("the condition did not hold")
        self.item = item


@contextmanager
def reading(service: str) -> Iterator[None]:
    """Raise failures of reads as UnavailableError; `service` is its name for people."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise UnavailableError(f"{service} could not be read: {error}") from error


@contextmanager
def writing(service: str) -> Iterator[None]:
    """Raise failures of writes by what is known of their outcome.

    Raises:
        ConditionFailedError: the write's condition did not hold.
        UnavailableError: the write was refused and did nothing.
        OutcomeUnknownError: the write may have landed, or may land yet.
    """
    try:
        yield
    except BotoCoreError as error:
        raise OutcomeUnknownError(f"{service} did not answer a write: {error}") from error
    except ClientError as error:
        if _is_failed_condition(error):
            item = cast("Item | None", error.response.get("Item"))  # as ALL_OLD asks for
            raise ConditionFailedError(item) from error
        metadata = error.response["ResponseMetadata"]
        # An answer to a repeat says nothing about the first request, which may have landed.
        if metadata["HTTPStatusCode"] < 500 and not metadata.get("RetryAttempts"):
            raise UnavailableError(f"{service} refused a write: {error}") from error
        raise OutcomeUnknownError(f"{service} failed at a write: {error}") from error


def read_whole(read: Callable[[], _Read]) -> _Read:
    """Return what `read` gives, calling it again when the connection breaks off midway.

    The SDK repeats requests, but not those whose answer had begun.
    """
    for _ in range(_READ_ATTEMPTS - 1):
        try:
            return read()
        except BotoCoreError:
            continue
    return read()


def code_of(error: ClientError) -> str:
    """Return the code by which a service names an error, as ``NoSuchKey``."""
    return error.response["Error"]["Code"]


def _is_failed_condition(error: ClientError) -> bool:
    reasons = error.response.get("CancellationReasons", [])
    return code_of(error) in ("ConditionalCheckFailedException", PRECONDITION_FAILED) or any(
        reason.get("Code") == "ConditionalCheckFailed" for reason in reasons
    )
