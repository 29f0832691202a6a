"""The door of a server on this machine: only the one who knows its token is answered.

Other users of the machine can reach its loopback address, and a web page can make a browser send
requests there. So a request needs the token, and one that a page sent must be of a page of this
server.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest

from dormouse.features.http.problems import ProblemError, problem_of
from dormouse.http.messages import Answer, HttpRequest, HttpResponse

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
    if "upgrade" in request.headers and not given:  # a page can send no header with that
        given = SCHEME + request.query.get("token", "")
    has_scheme = given[: len(SCHEME)].lower() == SCHEME
    if not has_scheme or not compare_digest(given[len(SCHEME) :].encode(), token.encode()):
        raise ProblemError(
            401,
            "the request does not carry the token of this server",
            hint="send the header Authorization: Bearer TOKEN, with what the server printed",
            www_authenticate="Bearer",
        )
