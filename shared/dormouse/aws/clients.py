"""Clients of AWS services, made when they are first used, that detect truncated responses.

Making a client reads what the SDK knows of its service, and takes a tenth of a CPU second; most
commands use one or two. They are clients of botocore: boto3 would add file transfers and resources,
which nothing here uses, and a tenth of a second.

The SDK compares the length of a body with the Content-Length header only if the body is streamed.
It parses any other truncated response as an empty one, or as one without the missing fields: an
item then seems not to exist, a listing to be empty, a file to have no rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, cast, overload
from urllib.parse import urlsplit

from botocore import __version__ as botocore_version
from botocore.config import Config
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
from botocore.session import Session

from dormouse import __version__ as dormouse_version
from dormouse import errors

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import AttributeValueTypeDef
    from mypy_boto3_emr_serverless import EMRServerlessClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef, GetObjectRequestTypeDef
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sts import STSClient


SERVICES = (
    *("apigatewayv2", "cloudwatch", "dynamodb", "emr-serverless", "glue", "kms", "s3"),
    *("sqs", "sts"),
)
"""The services of which `client` makes clients."""

_NO_CONTENT = 204
_OWNER = "ExpectedBucketOwner"
_BROKEN_OFF = "BrokenOff"
_REPEATED = "RequestTimeout"
"""An error code upon which the SDK retries any request."""


BeforeRequest = Callable[..., None]
"""Called with the ``params`` of a request, and more that botocore says of it."""
_AWS = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu", ".api.aws")


class BrokenOffError(BotoCoreError):
    """A response was truncated, so its content is unknown."""

    fmt = "the answer to {operation} broke off after {found}"


@overload
def client(service: Literal["cloudwatch"], config: Config | None = None) -> CloudWatchClient: ...
@overload
def client(
    service: Literal["dynamodb"],
    config: Config | None = None,
    *,
    before_request: BeforeRequest | None = None,
) -> DynamoDBClient: ...
@overload
def client(
    service: Literal["emr-serverless"], config: Config | None = None
) -> EMRServerlessClient: ...
@overload
def client(
    service: Literal["s3"],
    config: Config | None = None,
    *,
    bucket_owner: str = "",
    before_request: BeforeRequest | None = None,
) -> S3Client: ...
@overload
def client(
    service: Literal["apigatewayv2", "glue", "kms"], config: Config | None = None
) -> Any: ...
@overload
def client(service: Literal["sqs"], config: Config | None = None) -> SQSClient: ...
@overload
def client(service: Literal["sts"], config: Config | None = None) -> STSClient: ...
def client(
    service: Any,
    config: Config | None = None,
    *,
    bucket_owner: str = "",
    before_request: BeforeRequest | None = None,
) -> object:
    """Return a client that treats a truncated response as none; it is made at its first use.

    The request is retried like one without a response; after the last retry BrokenOffError is
    raised. With `bucket_owner`, an account, S3 refuses each request about a bucket of another
    account: the name of a deleted bucket may have been taken by another account. `before_request`
    is called with the parameters of each request, unless the endpoint is one of AWS.

    Raises:
        NoRegionError: no region is configured.
        ProfileNotFound: ``AWS_PROFILE`` names a profile that there is not.
    """
    if session().get_config_variable("region") is None:
        raise NoRegionError()
    return _LazyClient(partial(_new_client, service, config, bucket_owner, before_request))


def is_of_aws(endpoint_url: str) -> bool:
    """Return whether an endpoint is one of AWS."""
    return f".{urlsplit(endpoint_url).hostname}".endswith(_AWS)


def presigning_client(bucket_owner: str) -> S3Client:
    """Return a client to sign links for others; raises as `client`.

    Its links name the region: S3 answers those of a new bucket without it by a redirect, to a host
    that they are not signed for.
    """
    return client("s3", Config(s3={"addressing_style": "virtual"}), bucket_owner=bucket_owner)


@cache
def session() -> Session:
    """Return the session of all clients of this process: settings, credentials, descriptions."""
    own = Session()
    # To learn whether a service is described, the SDK lists the folders of all its 400, which takes
    # more than a hundredth of a CPU second. One that is not described is an error all the same.
    loader: Any = own.get_component("data_loader")
    loader.list_available_services = lambda type_name: list(SERVICES)
    return own


_MAKING = threading.Lock()
"""Held while a client is made: a session must not make two at once."""


class _LazyClient:
    """A client that is made at its first use; safe for many threads, as the client is."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make
        self._made: object | None = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            with _MAKING:
                if self._made is None:
                    self._made = self._make()
        return getattr(self._made, name)


_NAMED = Config(user_agent=f"dormouse/{dormouse_version} botocore/{botocore_version}")
"""Without a name, a client makes one of a dozen parts twice for each request, a tenth of
the CPU time of a small read."""


def _new_client(
    service: str, config: Config | None, bucket_owner: str, before_request: BeforeRequest | None
) -> object:
    maker: Any = session()  # typed for literal names only
    own = maker.create_client(service, config=_NAMED.merge(config) if config else _NAMED)
    if before_request and not is_of_aws(own.meta.endpoint_url):
        own.meta.events.register("provide-client-params", before_request)
    if bucket_owner:
        own.meta.events.register("provide-client-params", partial(_expect_owner, bucket_owner))
    own.meta.events.register("before-parse", _look_for_the_end)
    own.meta.events.register("after-call", _refuse_broken_off)
    return own


def _expect_owner(
    owner: str,
    params: Mapping[str, Any],
    model: OperationModel,
    context: Mapping[str, Any],
    **_: object,
) -> dict[str, Any] | None:
    """Return the parameters of a request with the expected owner of its bucket.

    A presigned request has none: it is a header, which is signed, so that S3 would refuse everybody
    who does not send it. The policy of the role that signs names the account.
    """
    shape = model.input_shape
    is_named = shape is not None and _OWNER in shape.members
    return {**params, _OWNER: owner} if is_named and not context.get("is_presign_request") else None


def get_object(
    client: S3Client, **request: Unpack[GetObjectRequestTypeDef]
) -> GetObjectOutputTypeDef:
    """Begin to read an object, as `client.get_object` does.

    The SDK parses the headers before it can know whether they are complete, so a date in them may
    be cut in half; that is raised as BrokenOffError. What S3 has archived is a ServiceRefusedError,
    which names it.
    """
    try:
        return client.get_object(**request)
    except ValueError as error:
        raise BrokenOffError(operation="GetObject", found=f"a part of its head: {error}") from error
    except ClientError as error:
        if code_of(error) != ARCHIVED:
            raise
        raise errors.ServiceRefusedError(
            f"s3://{request['Bucket']}/{request['Key']} is archived, and S3 does not read it",
            hint="bring it back by `aws s3api restore-object`, then copy it onto itself by "
            "`aws s3 cp --storage-class STANDARD`, and end the rule that archives it",
        ) from error


def _look_for_the_end(
    operation_model: OperationModel,
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, object],
    **_: object,
) -> None:
    """Mark a successful response that is truncated as an error.

    A complete response either has the announced Content-Length, or is chunked and then has an end
    marker that the HTTP library checks. For a streamed body the SDK checks the length as it reads.
    """
    headers, body = response_dict["headers"], response_dict["body"]
    status = response_dict["status_code"]
    if status >= 300 or status == _NO_CONTENT or operation_model.http["method"] == "HEAD":
        return
    length = headers.get("content-length", "")
    size = str(len(body)) if isinstance(body, bytes) else length
    is_marked = "chunked" in headers.get("transfer-encoding", "").lower()
    if not is_marked and (not length.isdecimal() or size != length):
        headers.clear()  # the SDK fails to parse the header that was cut off
        if isinstance(body, bytes):
            response_dict["body"] = b""
        explanation = f"{size or 'some'} of {length or 'unknown'} bytes"
        customized_response_dict[_BROKEN_OFF] = explanation
        customized_response_dict["Error"] = {"Code": _REPEATED, "Message": explanation}


def _refuse_broken_off(model: OperationModel, parsed: Mapping[str, Any], **_: object) -> None:
    if _BROKEN_OFF in parsed:
        raise BrokenOffError(operation=model.name, found=parsed[_BROKEN_OFF])


# Translate failures of AWS requests into our errors, in one place for all adapters.
#
# `kind_of` says what a failure is: a condition that does not hold, contention, one that may pass,
# or a refusal for good. No other module judges the codes of errors by whether a retry helps.
#
# A request that was sent once and refused did nothing. After any other failure, a write may have
# been applied.

if TYPE_CHECKING:
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
ARCHIVED = "InvalidObjectState"
"""The error code of S3 for an object in an archive, such as GLACIER."""
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
_BAD_CREDENTIALS = (
    *("ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidClientTokenId"),
    *("UnrecognizedClientException", "SignatureDoesNotMatch", "InvalidSignatureException"),
    *("RequestExpired", "RequestTimeTooSkewed"),
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


def unavailable(what: str, error: BotoCoreError | ClientError) -> errors.UnavailableError:
    """Return the error of a request that did nothing; `what` begins its sentence.

    A refusal for good is a ServiceRefusedError, which nothing repeats.
    """
    text, kind, code = f"{what}: {error}", kind_of(error), code_of(error)
    if code in _MISSING:
        return errors.NoSuchInstanceError(
            text,
            hint="check the name (--instance, DORMOUSE_INSTANCE), the region and the account; "
            "an instance in a folder is named by its path, such as ./mice",
        )
    if kind is Failure.CONTENTION:
        return errors.ContendedError(text)
    if kind is Failure.TRANSIENT:
        return errors.UnavailableError(text)
    hint = ""
    if code in _NO_PERMISSION:
        hint = "give this role or user the permission (docs/roles.md); a retry does not help"
    if code in _BAD_CREDENTIALS:
        hint = "renew the credentials of the environment, or set the clock of this machine"
    if code in _NO_OPERATION:
        hint = "this server cannot hold an instance: Dormouse needs that operation"
    return errors.ServiceRefusedError(text, hint=hint)


def is_forbidden(error: BaseException | None) -> bool:
    """Return whether a service says that the caller has no permission."""
    return code_of(error) in _NO_PERMISSION


@contextmanager
def reading(service: str) -> Iterator[None]:
    """Raise failures of reads as `unavailable`; `service` is the name in its message."""
    try:
        yield
    except (BotoCoreError, ClientError) as error:
        is_missing = code_of(error) in _MISSING
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
        raise errors.OutcomeUnknownError(f"{service} did not answer a write: {error}") from error
    except ClientError as error:
        if kind_of(error) is Failure.CONDITION:
            item = error.response.get("Item")  # as ReturnValuesOnConditionCheckFailure=ALL_OLD asks
            raise ConditionFailedError(cast("Item | None", item)) from error
        metadata = error.response["ResponseMetadata"]
        # The answer to a retry says nothing about the first request, which may have been applied.
        is_refused = metadata["HTTPStatusCode"] < 500 or kind_of(error) is Failure.PERMANENT
        if is_refused and not metadata.get("RetryAttempts"):
            raise unavailable(f"{service} refused a write", error) from error
        raise errors.OutcomeUnknownError(f"{service} failed at a write: {error}") from error


def read_pages(service: str, pages: Iterable[_Read]) -> Iterator[_Read]:
    """Yield the pages of a listing; raise as `reading` does if a request for one fails.

    An error of the caller, raised while it works on a page, passes as it is.
    """
    rest = iter(pages)
    while True:
        with reading(service):
            page = next(rest, None)
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


def code_of(error: BaseException | None) -> str:
    """Return the error code of a service, such as ``NoSuchKey``; empty if none has answered."""
    return error.response["Error"]["Code"] if isinstance(error, ClientError) else ""
