"""The HTTP API of a deployment, at a port of this machine; started by `stack`.

Requests become the events that AWS makes of them, payload format 2.0, and what a function returns
becomes the response by AWS's rules. Nobody is asked for a signature: every caller is the user
``local`` of the stack's account.
"""

import base64
import json
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from dormouse.http.messages import HttpRequest, HttpResponse, json_response
from dormouse_cli.local.lambda_host import Outcome
from dormouse_cli.local.plan import HttpRoute
from dormouse_cli.local.resources import ACCOUNT

MOST_RETURNED_BYTES = 6 * 1024 * 1024
"""How long what a function returns may be."""
_HOST = "127.0.0.1"
CALLER_ARN = f"arn:aws:iam::{ACCOUNT}:user/local"
"""The user that every caller is."""

Invoke = Callable[[str, bytes], Outcome]
"""Runs a function, by its name, on an event."""


class HttpApi:
    """Answers requests by the functions of its routes."""

    def __init__(self, routes: Sequence[HttpRoute], invoke: Invoke) -> None:
        """Answer by what `invoke` runs."""
        self._routes, self._invoke = routes, invoke

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer a request by the function of the most specific route; 404 if there is none."""
        fitting = [route for route in self._routes if _fits(route, request)]
        if not fitting:
            return json_response(404, {"message": "Not Found"})
        route = max(fitting, key=_how_specific)
        event = event_of(request, route, str(uuid.uuid4()), time.time())
        outcome = self._invoke(route.function, json.dumps(event).encode())
        if outcome.failed or len(outcome.payload) > MOST_RETURNED_BYTES:
            return json_response(500, {"message": "Internal Server Error"})
        return response_of(json.loads(outcome.payload))


def _fits(route: HttpRoute, request: HttpRequest) -> bool:
    if route.method not in ("ANY", request.method):
        return False
    before, is_open, _ = route.path.partition("{")
    if is_open:
        return request.path.startswith(before) and len(request.path) > len(before)
    return request.path == route.path


def _how_specific(route: HttpRoute) -> tuple[bool, int, bool]:
    """Return how AWS chooses: a whole path, then the longest beginning, then a method."""
    return "{" not in route.path, len(route.path), route.method != "ANY"


def event_of(request: HttpRequest, route: HttpRoute, request_id: str, now: float) -> dict[str, Any]:
    """Return the event that AWS makes of a request."""
    before, is_open, name = route.path.partition("{")
    is_text = _is_text(request.body)
    body = request.body.decode() if is_text else base64.b64encode(request.body).decode()
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route.key,
        "rawPath": request.path,
        "rawQueryString": request.query_string,
        "headers": dict(request.headers),
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": "local",
            "authorizer": {"iam": {"accountId": ACCOUNT, "userArn": CALLER_ARN}},
            "domainName": _HOST,
            "domainPrefix": "local",
            "http": {
                "method": request.method,
                "path": request.path,
                "protocol": "HTTP/1.1",
                "sourceIp": _HOST,
                "userAgent": request.headers.get("user-agent", ""),
            },
            "requestId": request_id,
            "routeKey": route.key,
            "stage": "$default",
            "time": datetime.fromtimestamp(now, UTC).strftime("%d/%b/%Y:%H:%M:%S %z"),
            "timeEpoch": int(now * 1000),
        },
        "isBase64Encoded": not is_text,
    }
    optional = {
        "queryStringParameters": dict(request.query),
        "pathParameters": {name.rstrip("+}"): request.path[len(before) :]} if is_open else {},
        "body": body,
    }
    return event | {key: value for key, value in optional.items() if value}


def response_of(returned: Any) -> HttpResponse:
    """Return the response that AWS makes of what a function returned: without a status, that is the
    body.
    """
    if not isinstance(returned, dict) or "statusCode" not in returned:
        return json_response(200, returned)
    body = str(returned.get("body", ""))
    content = base64.b64decode(body) if returned.get("isBase64Encoded") else body.encode()
    given = {name.lower(): str(value) for name, value in returned.get("headers", {}).items()}
    return HttpResponse(
        int(returned["statusCode"]), {"content-type": "text/plain", **given}, content
    )


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
