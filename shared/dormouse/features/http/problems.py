"""Errors as answers: problem details in JSON (RFC 9457), which say what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hmac import compare_digest
from http import HTTPStatus

import msgspec

from dormouse.errors import (
    AlreadyExistsError,
    DormouseError,
    ForbiddenError,
    HiddenRowsError,
    InvalidRequestError,
    LimitExceededError,
    NotFoundError,
    ServiceRefusedError,
    TimedOutError,
    UnavailableError,
    VersionGoneError,
)
from dormouse.http.messages import Answer, HttpRequest, HttpResponse

PROBLEM_JSON = "application/problem+json"
LOGGED = "the log of this instance has the details; tell the operators which request it was"
_GONE = "rows of the version that is read are not there any more"
_STATUSES: tuple[tuple[type[DormouseError], int], ...] = (
    (ForbiddenError, 403),
    (NotFoundError, 404),
    (AlreadyExistsError, 409),
    (HiddenRowsError, 409),
    (LimitExceededError, 413),
    (InvalidRequestError, 422),
    (ServiceRefusedError, 500),
    (UnavailableError, 503),
    (TimedOutError, 504),
)
"""The status of each class of errors; all others are faults of this side."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and what to do: problem details as of RFC 9457. `type` is about:blank: the
    status says the kind. `detail` is a sentence, `hint` says what to do about it.
    """

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    hint: str = ""


class ProblemError(Exception):
    """A request is answered with a problem, and the headers that belong to it."""

    def __init__(self, status: int, detail: str, *, hint: str = "", **headers: str) -> None:
        """Set the status, a sentence for people, what to do, and headers, with underscores."""
        super().__init__(detail)
        self.status, self.hint = status, hint
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def problem_of(error: ProblemError | DormouseError) -> HttpResponse:
    """Return the answer to a request that ended with an error.

    Faults of this side are not explained to the caller: their messages name objects and tables.
    """
    if isinstance(error, ProblemError):
        return _response(error.status, str(error), error.hint, error.headers)
    if isinstance(error, VersionGoneError):
        response = _response(410, _GONE, "ask again; if that does not help, " + LOGGED)
        return replace(response, problem=error.explanation)
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    if status == 500:
        detail = "what is stored is damaged, or a part of it is lost"
        if isinstance(error, ServiceRefusedError):
            detail = "a service refuses this instance what it needs"
        response = _response(500, detail, LOGGED)
        return replace(response, problem=error.explanation)
    if status == 503:
        detail = "a service of this instance does not answer, or is changed by too many at once"
        response = _response(503, detail, "try again", {"retry-after": "2"})
        return replace(response, problem=error.explanation)
    return _response(status, str(error), error.hint)


def refusal(status: int, reason: str) -> HttpResponse:
    """Return the refusal of what is no request of HTTP, or too long, as a problem."""
    return _response(status, reason, "see /openapi.json")


def shown_reason(error: DormouseError) -> str:
    """Return what a caller may read of an error that ended the caller's work."""
    if isinstance(error, VersionGoneError):
        return _GONE
    has_fault = not isinstance(error, tuple(kind for kind, status in _STATUSES if status < 500))
    return "a fault of this side, or it took too long" if has_fault else error.explanation


def _response(
    status: int, detail: str, hint: str, headers: dict[str, str] | None = None
) -> HttpResponse:
    problem = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, hint=hint)
    return HttpResponse(
        status, {"content-type": PROBLEM_JSON, **(headers or {})}, msgspec.json.encode(problem)
    )


# The door of a server on this machine: only the one who knows its token is answered.
#
# Other users of the machine can reach its loopback address, and a web page can make a browser send
# requests there. So a request needs the token, and one that a page sent must be of a page of this
# server.

SCHEME = "bearer "


def guarded(
    answer: Answer, token: str, *, is_open: Callable[[str], bool] = lambda path: False
) -> Answer:
    """Return what answers only requests that have the token in their header Authorization.

    Paths for which `is_open` is true need none.
    """

    def checked(request: HttpRequest) -> HttpResponse:
        try:
            _check_origin(request)
            if not is_open(request.path):
                _check_token(request, token)
        except ProblemError as error:
            return problem_of(error)
        return answer(request)

    return checked


def _check_origin(request: HttpRequest) -> None:
    origin = request.headers.get("origin")
    if origin is not None and origin != f"http://{request.headers.get('host', '')}":
        raise ProblemError(
            403, "pages of other servers are not answered", hint="open the page of this server"
        )


def _check_token(request: HttpRequest, token: str) -> None:
    given = request.headers.get("authorization", "")
    has_scheme = given[: len(SCHEME)].lower() == SCHEME
    if not has_scheme or not compare_digest(given[len(SCHEME) :].encode(), token.encode()):
        raise ProblemError(
            401,
            "the request does not carry the token of this server",
            hint="send the header Authorization: Bearer TOKEN, with what the server printed",
            www_authenticate="Bearer",
        )
