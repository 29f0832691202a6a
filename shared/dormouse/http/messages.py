"""Requests and responses of HTTP as plain values, whichever server carries them."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import parse_qsl


class Readable(Protocol):
    """What bytes are read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at most `size` of them unless it is negative; none at the end."""


class BodyStream:
    """The body of a request: `left` bytes of a connection that are not read yet."""

    def __init__(self, connection: Readable, length: int) -> None:
        self._connection, self.left = connection, length

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes, as `Readable` does.
        Raises ConnectionAbortedError: the other side broke off before the end.
        """
        most = self.left if size < 0 else min(size, self.left)
        content = self._connection.read(most) if most else b""
        self.left -= len(content)
        if len(content) < most:
            raise ConnectionAbortedError("a body broke off before its end")
        return content


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What was asked.

    `path` is percent-encoded, without the query, as is `query_string`. Names of `headers` are in
    lower case. `principal` is the caller as what carries requests has verified it, in the form of
    `access`; empty if it is unknown. A body that may be long is in `stream`, which is
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
    """

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    problem: str = ""
    pieces: Iterator[bytes] | None = None

    @property
    def whole(self) -> bytes:
        """The whole body; pieces are read for it."""
        return self.body if self.pieces is None else b"".join(self.pieces)


Responder = Callable[[HttpRequest], HttpResponse]
"""Answers requests."""
Refuse = Callable[[int, str], HttpResponse]
"""Makes the answer to a request that is refused with a status, for a reason."""


def json_response(status: int, content: object, **headers: str) -> HttpResponse:
    """Return a response with content as JSON. A header's name is given with underscores."""
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    body = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    return HttpResponse(status, {"content-type": "application/json", **fields}, body)


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


_ALL = "*/*"


def preferred_type(headers: Mapping[str, str], offered: Iterable[str]) -> str | None:
    """Return the offered media type that a client prefers; None if it accepts none of them.

    Its header Accept rates a type by the most specific range that matches it (RFC 9110, 12.5.1). Of
    types that it rates the same, the one that it names first, then the one that is offered first.
    Without the header, any type is accepted.

    For example, of ``text/csv;q=0, */*;q=0.5, application/json``, JSON is preferred, then all but
    CSV.
    """
    ranges = [_rated(part) for part in (headers.get("accept", "").strip() or _ALL).split(",")]
    ratings = {media_type: _rating(media_type, ranges) for media_type in offered}
    best = max(ratings, key=ratings.__getitem__, default=None)  # the first of the best
    return best if best is not None and ratings[best][0] > 0 else None


def _rating(media_type: str, ranges: list[tuple[str, float]]) -> tuple[float, int]:
    """Return the quality of a type, and the negative place of the range that says so."""
    for pattern in (media_type, media_type.partition("/")[0] + "/*", _ALL):
        for place, (media_range, quality) in enumerate(ranges):
            if media_range == pattern:
                return quality, -place
    return 0.0, 0


def _rated(text: str) -> tuple[str, float]:
    """Return a range and its quality; what is no quality is 0."""
    media_range, *parameters = (part.strip().lower() for part in text.split(";"))
    try:
        quality = float(next((p[2:] for p in parameters if p.startswith("q=")), "1"))
    except ValueError:
        return media_range, 0.0
    return media_range, quality if 0 <= quality <= 1 else 0.0
