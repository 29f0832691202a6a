"""Requests and responses of HTTP as plain values, whichever server carries them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What was asked.

    `path` is percent-encoded, without the query, as is `query_string`. Names of `headers` are in
    lower case. `principal` is the caller as what carries requests has verified it, in the form of
    `access.principals`; empty if it is unknown.
    """

    method: str
    path: str
    query_string: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    principal: str = ""

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the query, decoded; of what is repeated, the last one."""
        return dict(parse_qsl(self.query_string, keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What is answered. `problem` is what the log should say about a failure of this side."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    problem: str = ""


Answer = Callable[[HttpRequest], HttpResponse]
"""Answers requests."""


def json_response(status: int, content: object, **headers: str) -> HttpResponse:
    """Return a response with content as JSON. A header's name is given with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    return HttpResponse(status, {"content-type": "application/json", **named}, body)


def error_response(status: int, kind: str, message: str, **headers: str) -> HttpResponse:
    """Return an error, in the form that clients of Iceberg's REST catalogs read."""
    error: dict[str, Any] = {"message": message, "type": kind, "code": status}
    return json_response(status, {"error": error}, **headers)


def without_body(response: HttpResponse) -> HttpResponse:
    """Return the response to HEAD where GET would have this one."""
    return HttpResponse(response.status, response.headers, b"", response.problem)
