"""Requests and responses of HTTP as plain values, whichever server carries them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl

from dormouse.http.bodies import Readable


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What was asked.

    `path` is percent-encoded, without the query, as is `query_string`. Names of `headers` are in
    lower case. `principal` is the caller as what carries requests has verified it, in the form of
    `access.principals`; empty if it is unknown. A body that may be long is in `stream`, which is
    read as it arrives, instead of `body`.
    """

    method: str
    path: str
    query_string: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    principal: str = ""
    stream: Readable | None = None

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of the query, decoded; of what is repeated, the last one."""
        return dict(parse_qsl(self.query_string, keep_blank_values=True))


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What is answered. `problem` is what the log should say about a failure of this side.

    A long body is `pieces`, which are read once, with a header content-length, instead of `body`.
    If the request asks for a WebSocket, `socket` may be what talks on it; the rest is for a server
    that has none.
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    problem: str = ""
    pieces: Iterator[bytes] | None = None
    socket: Talk | None = None

    @property
    def whole(self) -> bytes:
        """The whole body; pieces are read for it."""
        return self.body if self.pieces is None else b"".join(self.pieces)


class Socket(Protocol):
    """A WebSocket of a server. It can be used by several threads."""

    def receive(self, seconds: float) -> str | None:
        """Return the next message; None if there is none for so long.

        Raises:
            SocketClosedError: it is closed, by either side.
        """

    def send(self, text: str) -> None:
        """Send a message. Raises SocketClosedError: it is closed, or the other side takes none."""

    def close(self, code: int, reason: str) -> None:
        """Close it, unless it is closed; `code` is one of RFC 6455."""


class SocketClosedError(Exception):
    """A WebSocket is closed."""


Talk = Callable[[Socket], None]
"""Talks on a WebSocket until it is closed."""
Answer = Callable[[HttpRequest], HttpResponse]
"""Answers requests."""
Refuse = Callable[[int, str], HttpResponse]
"""Makes the answer to a request that is refused with a status, for a reason."""


def json_response(status: int, content: object, **headers: str) -> HttpResponse:
    """Return a response with content as JSON. A header's name is given with underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    return HttpResponse(status, {"content-type": "application/json", **named}, body)


def error_response(status: int, kind: str, message: str, **headers: str) -> HttpResponse:
    """Return an error, in the form that clients of Iceberg's REST catalogs read."""
    error: dict[str, Any] = {"message": message, "type": kind, "code": status}
    return json_response(status, {"error": error}, **headers)


_KINDS = {403: "ForbiddenException", 500: "InternalServerError"}


def catalog_refusal(status: int, reason: str) -> HttpResponse:
    """Return the refusal of a request as clients of Iceberg's REST catalogs read it."""
    return error_response(status, _KINDS.get(status, "BadRequestException"), reason)


def without_body(response: HttpResponse) -> HttpResponse:
    """Return the response to HEAD where GET would have this one."""
    return HttpResponse(response.status, response.headers, b"", response.problem)
