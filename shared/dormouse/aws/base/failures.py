"""Translate failures of AWS requests into our errors, in one place for all adapters.

`kind_of` says what a failure is: a condition that does not hold, contention, one that may pass, or
a refusal for good. No other module judges the codes of errors by whether a retry helps.

A request that was sent once and refused did nothing. After any other failure, a write may have been
applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeVar, cast

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    SSOError,
    TokenRetrievalError,
)
from botocore.retries import standard

from dormouse.errors import (
    ContendedError,
    NoSuchInstanceError,
    OutcomeUnknownError,
    ServiceRefusedError,
    UnavailableError,
)

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
_CONDITIONS = ("ConditionalCheckFailed", "ConditionalCheckFailedException", PRECONDITION_FAILED)
_CONTENTION = (
    *("TransactionConflict", "TransactionConflictException", "TransactionCanceledException"),
    *("ReplicatedWriteConflictException", "ConcurrentModificationException"),
    *("ConditionalRequestConflict", "OperationAborted"),
)
_MAY_PASS = (
    *("InternalError", "InternalServerError", "ServiceUnavailable", "ResourceInUseException"),
    *("ProvisionedThroughputExceeded", "BadDigest", "IncompleteBody", "InvalidChunkSizeError"),
    *("XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch", "ServiceQuotaExceededException"),
)
"""What botocore does not repeat by its code alone: also bytes that the network changed, and quotas
of what runs at once."""
_MAY_PASS_STATUSES = (408, 409, 425, 429)
_UNKNOWN_OPERATION = 501
_NEVER_SENT = (
    *(NoCredentialsError, PartialCredentialsError, NoRegionError, ParamValidationError),
    *(SSOError, TokenRetrievalError),
)
_NO_PERMISSION = (
    *("AccessDenied", "AccessDeniedException", "AllAccessDisabled", "403"),
    *("KMS.AccessDeniedException", "UnauthorizedOperation"),
)
_NO_OPERATION = (
    *("UnknownOperationException", "NotImplemented", "MethodNotAllowed", "InvalidAction"),
    *("UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation", "501", "405"),
)
_REFUSALS = (*_NO_PERMISSION, *_NO_OPERATION, *_MISSING, "ValidationError", "ValidationException")
"""Refusals for good whatever the HTTP status."""
_RETRYABLE = standard.OrRetryChecker(
    [standard.TransientRetryableChecker(), standard.ThrottledRetryableChecker()]
)


class Failure(Enum):
    """What a failed request is, by what helps against it."""

    CONDITION = auto()
    """The request's own condition did not hold: read again, and decide by what is there then."""
    CONTENTION = auto()
    """Another request was in its way: repeat it soon."""
    TRANSIENT = auto()
    """The service did not answer, failed or throttles: repeat it later."""
    PERMANENT = auto()
    """It can never succeed as things are: a person must change something."""


class ConditionFailedError(Exception):
    """A write did nothing, because its condition did not hold; `item` if DynamoDB returned it."""

    def __init__(self, item: Item | None = None) -> None:
        """Keep the item that the condition was checked against."""
        super().__init__("the condition did not hold")
        self.item = item


def kind_of(error: BotoCoreError | ClientError) -> Failure:
    """Return what a failure is; the SDK has repeated the request already, where it does so."""
    if isinstance(error, BotoCoreError):
        return Failure.PERMANENT if isinstance(error, _NEVER_SENT) else Failure.TRANSIENT
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    reasons = [
        reason.get("Code", "None") for reason in error.response.get("CancellationReasons", [])
    ]
    kinds = [kind_of_code(code, status) for code in reasons if code != "None"]
    # of a transaction, the reason that a retry would meet first
    return next(
        (kind for kind in (Failure.CONDITION, Failure.PERMANENT, *kinds) if kind in kinds),
        kind_of_code(code_of(error), status),
    )


def kind_of_code(code: str, status: int) -> Failure:
    """Return what an answer with an error is, by its code and its HTTP status; 0 if unknown."""
    if code in _CONDITIONS:
        return Failure.CONDITION
    if code in _CONTENTION:
        return Failure.CONTENTION
    if code in _REFUSALS:
        return Failure.PERMANENT
    answer = {"Error": {"Code": code}}
    context = standard.RetryContext(attempt_number=1, parsed_response=answer)
    if _RETRYABLE.is_retryable(context) or code in _MAY_PASS or "throttl" in code.lower():
        return Failure.TRANSIENT
    is_refusal = 300 <= status < 500 and status not in _MAY_PASS_STATUSES
    return Failure.PERMANENT if is_refusal or status == _UNKNOWN_OPERATION else Failure.TRANSIENT


def unavailable(what: str, error: BotoCoreError | ClientError) -> UnavailableError:
    """Return the error of a request that did nothing; `what` begins its sentence.

    A refusal for good is a ServiceRefusedError, which nothing repeats.
    """
    text, kind = f"{what}: {error}", kind_of(error)
    code = code_of(error) if isinstance(error, ClientError) else ""
    if code in _MISSING:
        return NoSuchInstanceError(
            text,
            hint="check the name (--instance, DORMOUSE_INSTANCE), the region and the account; "
            "an instance in a folder is named by its path, such as ./mice",
        )
    if kind is Failure.CONTENTION:
        return ContendedError(text)
    if kind is Failure.TRANSIENT:
        return UnavailableError(text)
    hint = ""
    if code in _NO_PERMISSION:
        hint = "give this role or user the permission (docs/roles.md); a retry does not help"
    if code in _NO_OPERATION:
        hint = "this server cannot hold an instance: Dormouse needs that operation"
    return ServiceRefusedError(text, hint=hint)


def is_forbidden(error: ClientError) -> bool:
    """Return whether the caller has no permission."""
    return code_of(error) in _NO_PERMISSION


@contextmanager
def reading(service: str) -> Iterator[None]:
    """Raise failures of reads as `unavailable`; `service` is the name in its message."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        is_missing = isinstance(error, ClientError) and code_of(error) in _MISSING
        what = "has nothing of an instance of that name" if is_missing else "could not be read"
        raise unavailable(f"{service} {what}", error) from error


@contextmanager
def writing(service: str) -> Iterator[None]:
    """Raise failures of writes by what is known of their outcome.

    Raises:
        ConditionFailedError: the write's condition did not hold.
        UnavailableError: the write was refused and did nothing; see `unavailable`.
        OutcomeUnknownError: the write may have been applied, or may be applied later.
    """
    try:
        yield
    except BotoCoreError as error:
        if kind_of(error) is Failure.PERMANENT:
            raise unavailable(f"{service} was not asked to write", error) from error
        raise OutcomeUnknownError(f"{service} did not answer a write: {error}") from error
    except ClientError as error:
        if kind_of(error) is Failure.CONDITION:
            item = cast(
                "Item | None", error.response.get("Item")
            )  # requested by ReturnValuesOnConditionCheckFailure=ALL_OLD
            raise ConditionFailedError(item) from error
        metadata = error.response["ResponseMetadata"]
        # The answer to a retry says nothing about the first request, which may have been applied.
        is_refused = metadata["HTTPStatusCode"] < 500 or kind_of(error) is Failure.PERMANENT
        if is_refused and not metadata.get("RetryAttempts"):
            raise unavailable(f"{service} refused a write", error) from error
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
