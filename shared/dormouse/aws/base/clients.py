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
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, NoRegionError
from botocore.session import Session

if TYPE_CHECKING:
    from botocore.model import OperationModel
    from mypy_boto3_cloudwatch import CloudWatchClient
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_emr_serverless import EMRServerlessClient
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef, GetObjectRequestTypeDef
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sts import STSClient

SERVICES = (
    *("apigatewaymanagementapi", "apigatewayv2", "cloudwatch", "dynamodb", "emr-serverless"),
    *("glue", "s3", "sqs", "sts"),
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
    service: Literal["apigatewaymanagementapi"], config: Config | None = None, *, endpoint_url: str
) -> Any: ...
@overload
def client(service: Literal["apigatewayv2"], config: Config | None = None) -> Any: ...
@overload
def client(service: Literal["glue"], config: Config | None = None) -> Any: ...
@overload
def client(service: Literal["sqs"], config: Config | None = None) -> SQSClient: ...
@overload
def client(service: Literal["sts"], config: Config | None = None) -> STSClient: ...
def client(
    service: Any,
    config: Config | None = None,
    *,
    bucket_owner: str = "",
    endpoint_url: str = "",
    before_request: BeforeRequest | None = None,
) -> object:
    """Return a client that treats a truncated response as none; it is made at its first use.

    The request is retried like one without a response; after the last retry BrokenOffError is
    raised. With `bucket_owner`, an account, S3 refuses each request about a bucket of another
    account: the name of a deleted bucket may have been taken by another account. `endpoint_url` is
    where the service answers, if that does not follow from the region. `before_request` is called
    with the parameters of each request, unless the endpoint is one of AWS.

    Raises:
        NoRegionError: no region is configured.
        ProfileNotFound: ``AWS_PROFILE`` names a profile that there is not.
    """
    if session().get_config_variable("region") is None:
        raise NoRegionError()
    make = partial(_new_client, service, config, bucket_owner, endpoint_url, before_request)
    return _LazyClient(make)


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
    made = Session()
    # To learn whether a service is described, the SDK lists the folders of all its 400, which takes
    # more than a hundredth of a CPU second. One that is not described is an error all the same.
    loader: Any = made.get_component("data_loader")
    loader.list_available_services = lambda type_name: list(SERVICES)
    return made


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


def _new_client(
    service: str,
    config: Config | None,
    bucket_owner: str,
    endpoint_url: str,
    before_request: BeforeRequest | None,
) -> object:
    maker: Any = session()  # typed for literal names only
    made = maker.create_client(service, config=config, endpoint_url=endpoint_url or None)
    if before_request and not is_of_aws(made.meta.endpoint_url):
        made.meta.events.register("provide-client-params", before_request)
    if bucket_owner:
        made.meta.events.register("provide-client-params", partial(_expect_owner, bucket_owner))
    made.meta.events.register("before-parse", _look_for_the_end)
    made.meta.events.register("after-call", _refuse_broken_off)
    return made


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
    be cut in half; that is raised as BrokenOffError.
    """
    try:
        return client.get_object(**request)
    except ValueError as error:
        raise BrokenOffError(operation="GetObject", found=f"a part of its head: {error}") from error


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
    found = str(len(body)) if isinstance(body, bytes) else length
    is_marked = "chunked" in headers.get("transfer-encoding", "").lower()
    if not is_marked and (not length.isdecimal() or found != length):
        headers.clear()  # the SDK fails to parse the header that was cut off
        if isinstance(body, bytes):
            response_dict["body"] = b""
        explanation = f"{found or 'some'} of {length or 'unknown'} bytes"
        customized_response_dict[_BROKEN_OFF] = explanation
        customized_response_dict["Error"] = {"Code": _REPEATED, "Message": explanation}


def _refuse_broken_off(model: OperationModel, parsed: Mapping[str, Any], **_: object) -> None:
    if _BROKEN_OFF in parsed:
        raise BrokenOffError(operation=model.name, found=parsed[_BROKEN_OFF])
