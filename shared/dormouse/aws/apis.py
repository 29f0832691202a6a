"""Requests of an HTTP API on AWS: the form of its events and of what it expects, version 2.0."""

import base64
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated

import msgspec
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.access import principal_of_arn, principal_of_token
from dormouse.aws.handling import Event, process
from dormouse.aws.logs import about_ids, logger
from dormouse.errors import InvalidRequestError
from dormouse.http.messages import HttpRequest, HttpResponse
from dormouse.ports import Services
from dormouse.stored.decoding import convert_plain

_LOGGED = 200
"""How much of a path is logged."""
_MOST_TEXT_BYTES = 512 * 1024
"""A longer body is returned as base64."""


class _Http(msgspec.Struct):
    method: str


class _Iam(msgspec.Struct):
    userArn: str | None = None


class _Jwt(msgspec.Struct):
    claims: dict[str, object] = {}


class _Authorizer(msgspec.Struct):
    iam: _Iam | None = None
    jwt: _Jwt | None = None


class _HttpContext(msgspec.Struct):
    http: _Http
    requestId: str = ""
    authorizer: _Authorizer | None = None


class _HttpEvent(msgspec.Struct):
    version: Annotated[str, msgspec.Meta(pattern=r"\A2\.")]
    rawPath: str
    requestContext: _HttpContext
    rawQueryString: str = ""
    headers: dict[str, str] = {}
    body: str | None = None
    isBase64Encoded: bool = False


def handle_catalog(
    event: Event, context: LambdaContext, serve: Callable[[Services, HttpRequest], HttpResponse]
) -> dict[str, object]:
    """Answer a request by what needs only the services of this process. Raises as `handle_http`."""
    return handle_http(event, context, partial(serve, process().services))


def handle_http(
    event: Event, context: LambdaContext, serve: Callable[[HttpRequest], HttpResponse]
) -> dict[str, object]:
    """Answer a request. Neither its query nor its headers are logged: they may hold secrets.
    Raises InvalidRequestError: the event is none of an HTTP API.
    """
    request = request_of(event)
    response = serve(request)
    subject = {"method": request.method, "path": request.path[:_LOGGED]}
    with about_ids(subject):
        if response.problem:
            logger.error("failed", status=response.status, reason=response.problem)
        else:
            logger.info("answered", status=response.status, size_bytes=len(response.body))
    return response_of(response)


def request_of(event: Mapping[str, object]) -> HttpRequest:
    """Return the request that an event carries. Raises InvalidRequestError: it carries none."""
    try:
        call = convert_plain(event, _HttpEvent)
        encoded = (call.body or "").encode()
        body = base64.b64decode(encoded, validate=True) if call.isBase64Encoded else encoded
    except ValueError as error:
        raise InvalidRequestError(f"not an event of an HTTP API: {error}") from error
    return HttpRequest(
        call.requestContext.http.method,
        call.rawPath,
        call.rawQueryString,
        {name.lower(): value for name, value in call.headers.items()},
        body,
        _principal(call.requestContext.authorizer or _Authorizer()),
    )


def _principal(verified: _Authorizer) -> str:
    """Return whom API Gateway has verified, by a signature or a token."""
    if verified.iam is not None:
        return principal_of_arn(verified.iam.userArn or "")
    claims = verified.jwt.claims if verified.jwt is not None else {}
    return principal_of_token(str(claims.get("iss", "")), str(claims.get("sub", "")))


def response_of(response: HttpResponse) -> dict[str, object]:
    """Return a response as a function gives it to an HTTP API.

    A long body is base64, as one that is no text: what quoting adds to text has no bound.
    """
    body = response.whole
    text = _text(body)
    return {
        "statusCode": response.status,
        "headers": dict(response.headers),
        "body": base64.b64encode(body).decode() if text is None else text,
        "isBase64Encoded": text is None,
    }


def _text(body: bytes) -> str | None:
    if len(body) > _MOST_TEXT_BYTES:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None
