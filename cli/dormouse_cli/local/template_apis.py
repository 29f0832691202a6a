"""Reads the routes of HTTP APIs from a template; called by `template`."""

import re
from collections.abc import Iterator
from typing import cast

from dormouse_cli.local.errors import TemplateError
from dormouse_cli.local.intrinsics import Document
from dormouse_cli.local.plan import Route
from dormouse_cli.local.resources import Resources

_ANY = "x-amazon-apigateway-any-method"
_INTEGRATION = "x-amazon-apigateway-integration"
_FUNCTION = re.compile(r"/functions/arn:[^/]+:function:([^:/]+)/invocations$")
_SOCKET_ROUTES = {"$connect", "$default", "$disconnect"}
_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)*(/|/\{[A-Za-z0-9._-]+\+\})?")


def routes(resources: Resources) -> Iterator[Route]:
    """All routes of HTTP APIs that are events of functions."""
    for logical_id in resources.of_type("AWS::ApiGatewayV2::Api"):
        body = cast(dict[str, dict[str, Document]], resources.get(logical_id, "Body", {}))
        for path, methods in body.get("paths", {}).items():
            if not _PATH.fullmatch(path):
                raise TemplateError(
                    f"{logical_id}: the local stack knows paths with a {{name+}} at their end "
                    f"alone, found {path}"
                )
            for method, operation in methods.items():
                yield _route(logical_id, path, method, cast(Document, operation))


def socket_function(resources: Resources) -> str:
    """The name of the function of the WebSocket API; empty without one."""
    named = {
        resources.get(logical_id, "RouteKey")
        for logical_id in resources.of_type("AWS::ApiGatewayV2::Route")
    }
    found = [
        _FUNCTION.search(cast(str, resources.get(logical_id, "IntegrationUri")))
        for logical_id in resources.of_type("AWS::ApiGatewayV2::Integration")
    ]
    if not named and not found:
        return ""
    if named != _SOCKET_ROUTES or len(found) != 1 or found[0] is None:
        raise TemplateError(
            "the local stack knows routes and integrations of one WebSocket API with the routes "
            f"{', '.join(sorted(_SOCKET_ROUTES))} alone, which one function answers"
        )
    return found[0][1]


def _route(logical_id: str, path: str, method: str, operation: Document) -> Route:
    integration = cast(dict[str, str], operation.get(_INTEGRATION, {}))
    function = _FUNCTION.search(integration.get("uri", ""))
    if function is None:
        raise TemplateError(f"{logical_id}: {path} is not answered by a function")
    if integration.get("payloadFormatVersion") != "2.0":
        raise TemplateError(f"{logical_id}: {path} has another PayloadFormatVersion than 2.0")
    return Route("ANY" if method == _ANY else method.upper(), path, function[1])
