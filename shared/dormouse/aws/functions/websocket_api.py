"""Connections of a WebSocket API on AWS: the form of its events, and of what it expects."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Annotated, Literal

import msgspec
from aws_lambda_powertools.utilities.typing import LambdaContext

from dormouse.access.principals import NOBODY, is_token, principal_of_arn
from dormouse.aws.base.logs import about_ids, logger
from dormouse.aws.functions.handling import Event, process
from dormouse.errors import InvalidRequestError
from dormouse.ports.connections import Connected, Disconnected, Received, Served, SocketEvent
from dormouse.stored.decoding import convert_plain


class _Identity(msgspec.Struct, frozen=True):
    userArn: str | None = None


class _Context(msgspec.Struct):
    eventType: Literal["CONNECT", "MESSAGE", "DISCONNECT"]
    connectionId: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    identity: _Identity = _Identity()


class _Event(msgspec.Struct):
    requestContext: _Context
    queryStringParameters: dict[str, str] | None = None
    body: str | None = None
    isBase64Encoded: bool = False


def handle_socket(
    event: Event, context: LambdaContext, serve: Callable[[SocketEvent], Served]
) -> dict[str, object]:
    """Do what an event of a connection asks for. What is sent on it is not logged.

    Raises:
        InvalidRequestError: the event is none of a WebSocket API.
    """
    happened = socket_event_of(event, process().settings.http_role)
    with about_ids({"event": type(happened).__name__}):
        served = serve(happened)
        if served.problem:
            logger.error("failed", status=int(served.status), reason=served.problem)
        else:
            logger.info("answered", status=int(served.status))
    refused = isinstance(happened, Connected) and served.status is not HTTPStatus.OK
    return {"statusCode": int(served.status) if refused else 200}


def socket_event_of(event: Mapping[str, object], http_role: str = "") -> SocketEvent:
    """Return what an event says. Bytes of a client that are no text are a text that is no frame.

    `http_role` is the ARN of the role of the HTTP API, which signs addresses for callers whose
    tokens were verified; IAM has verified its signature, which covers their names.

    Raises:
        InvalidRequestError: it is none of a WebSocket API.
    """
    try:
        found = convert_plain(event, _Event)
        encoded = (found.body or "").encode()
        body = base64.b64decode(encoded, validate=True) if found.isBase64Encoded else encoded
    except ValueError as error:
        raise InvalidRequestError(f"not an event of a WebSocket API: {error}") from error
    connection = found.requestContext.connectionId
    match found.requestContext.eventType:
        case "CONNECT":
            return Connected(connection, _caller(found, http_role))
        case "DISCONNECT":
            return Disconnected(connection)
    try:
        return Received(connection, body.decode())
    except UnicodeDecodeError:
        return Received(connection, "\ufffd")


def _caller(found: _Event, http_role: str) -> str:
    signer = principal_of_arn(found.requestContext.identity.userArn or "")
    if signer == NOBODY or signer != principal_of_arn(http_role):
        return signer
    caller = (found.queryStringParameters or {}).get("caller", "")
    return caller if is_token(caller) else NOBODY
