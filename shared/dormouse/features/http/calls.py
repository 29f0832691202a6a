"""What the function of a route takes, the parts of a request as typed values, and its errors."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hmac import compare_digest
from http import HTTPStatus
from typing import Annotated, Any, get_type_hints
from urllib.parse import unquote

import msgspec

from dormouse import errors
from dormouse.access import Verb, VisibleTable
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.features.access import allowed_table
from dormouse.http.messages import HttpRequest, HttpResponse, Responder
from dormouse.ports import Services
from dormouse.stored.decoding import convert_plain, decode_json

PROBLEM_JSON = "application/problem+json"
LOGGED = "the log of this instance has the details; tell the operators which request it was"
_GONE = "rows of the version that is read are not there any more"
_STATUSES: tuple[tuple[type[errors.DormouseError], int], ...] = (
    (errors.ForbiddenError, 403),
    (errors.NotFoundError, 404),
    (errors.AlreadyExistsError, 409),
    (errors.HiddenRowsError, 409),
    (errors.LimitExceededError, 413),
    (errors.InvalidRequestError, 422),
    (errors.ServiceRefusedError, 500),
    (errors.UnavailableError, 503),
    (errors.TimedOutError, 504),
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


def problem_of(error: ProblemError | errors.DormouseError) -> HttpResponse:
    """Return the answer to a request that ended with an error.

    Faults of this side are not explained to the caller: their messages name objects and tables.
    """
    if isinstance(error, ProblemError):
        return _response(error.status, str(error), error.hint, error.headers)
    if isinstance(error, errors.VersionGoneError):
        hint = "ask again; if that does not help, " + LOGGED
        return _response(410, _GONE, hint, problem=error.explanation)
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
    if status == 500:
        detail = "what is stored is damaged, or a part of it is lost"
        if isinstance(error, errors.ServiceRefusedError):
            detail = "a service refuses this instance what it needs"
        return _response(500, detail, LOGGED, problem=error.explanation)
    if status == 503:
        detail = "a service of this instance does not answer, or is changed by too many at once"
        headers = {"retry-after": "2"}
        return _response(503, detail, "try again", headers, problem=error.explanation)
    return _response(status, str(error), error.hint)


def refusal(status: int, reason: str) -> HttpResponse:
    """Return the refusal of what is no request of HTTP, or too long, as a problem."""
    return _response(status, reason, "see /openapi.json")


def shown_reason(error: errors.DormouseError) -> str:
    """Return what a caller may read of an error that ended the caller's work."""
    if isinstance(error, errors.VersionGoneError):
        return _GONE
    has_fault = not isinstance(error, tuple(kind for kind, status in _STATUSES if status < 500))
    return "a fault of this side, or it took too long" if has_fault else error.explanation


def _response(
    status: int, detail: str, hint: str, headers: Mapping[str, str] = {}, *, problem: str = ""
) -> HttpResponse:
    form = Problem(title=HTTPStatus(status).phrase, status=status, detail=detail, hint=hint)
    headers = {"content-type": PROBLEM_JSON, **headers}
    return HttpResponse(status, headers, msgspec.json.encode(form), problem)


# The door of a server on this machine: only the one who knows its token is answered.
#
# Other users of the machine can reach its loopback address, and a web page can make a browser send
# requests there. So a request needs the token, and one that a page sent must be of a page of this
# server.

SCHEME = "bearer "


def guarded(
    answer: Responder, token: str, *, is_open: Callable[[str], bool] = lambda path: False
) -> Responder:
    """Return what answers only requests that have the token in their header Authorization.

    Paths for which `is_open` is true need none.
    """

    def checked(request: HttpRequest) -> HttpResponse:
        try:
            origin = request.headers.get("origin")
            if origin is not None and origin != f"http://{request.headers.get('host', '')}":
                raise ProblemError(
                    403,
                    "pages of other servers are not answered",
                    hint="open the page of this server",
                )
            if not is_open(request.path):
                _check_token(request, token)
        except ProblemError as error:
            return problem_of(error)
        return answer(request)

    return checked


def _check_token(request: HttpRequest, token: str) -> None:
    header = request.headers.get("authorization", "")
    has_scheme = header[: len(SCHEME)].lower() == SCHEME
    if not has_scheme or not compare_digest(header[len(SCHEME) :].encode(), token.encode()):
        raise ProblemError(
            401,
            "the request does not carry the token of this server",
            hint="send the header Authorization: Bearer TOKEN, with what the server printed",
            www_authenticate="Bearer",
        )


MOST_BODY_BYTES = 4 * 1024 * 1024
"""A function takes events of 6 MB, in which a body may be base64."""
JSON, JSON_LINES = "application/json", "application/x-ndjson"


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The base of the queries and bodies of requests: unknown names are refused."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The base of answers."""


JSON_HEADERS = {"content-type": JSON, "cache-control": "no-store"}


def json_answer(status: int, answer: object, **headers: str) -> HttpResponse:
    """Return an answer as JSON, with its location if it has one. Headers have underscores."""
    location = getattr(answer, "location", "")
    extra = {name.replace("_", "-"): value for name, value in headers.items()}
    fields = {**JSON_HEADERS, **({"location": location} if location else {}), **extra}
    return HttpResponse(status, fields, msgspec.json.encode(answer))


class NoQuery(Form, frozen=True, kw_only=True):
    """The query of a route that takes none."""


class PageQuery(Form, frozen=True, kw_only=True):
    """Which part of a list is wanted: up to `limit` items, after the one that `next` named."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1000
    after: str = ""


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table as the caller may see it, and the handle by which it is read."""

    seen: VisibleTable
    handle: TableHandle

    def check_keys(self) -> None:
        """Check that keys of rows may be shown.
        Raises ForbiddenError: a key column is hidden from the caller.
        """
        if not self.seen.shows_all_keys:
            raise errors.ForbiddenError("keys of this table are hidden from you")


@dataclass(frozen=True, slots=True)
class HttpCall:
    """One request to an instance."""

    instance: Instance
    request: HttpRequest

    @property
    def services(self) -> Services:
        """The services of the instance."""
        return self.instance.services

    @property
    def principal(self) -> str:
        """The caller, as it was verified."""
        return self.request.principal

    def table(self, name: str, verb: Verb = "read") -> OpenTable:
        """Return a table, if the caller may do this with it.

        Raises:
            NotFoundError: there is none, or the caller may do nothing with it.
            ForbiddenError: the caller may not do this with it.
        """
        visible = allowed_table(self.services, self.principal, name, verb)
        return OpenTable(visible, self.instance.handle_of(visible.table))

    def header(self, name: str) -> str:
        """Return a header, by its name in lower case; empty if there is none."""
        return self.request.headers.get(name, "").strip()


@dataclass(frozen=True)
class Route:
    """A route: what answers it, and the group of callers who may use it.

    The types of the function say what the request has: a ``str`` for each name in braces of the
    path, a `query` and a `body` if it takes them. Its docstring is its description. A function that
    reads `takes` by itself has no `body`; `files` says that it answers the content of a file. One
    that `computes` what callers write does so in another process, if there is one for that, and
    answers with 202 if the answer follows later.
    """

    method: str
    path: str
    group: Verb
    answer: Callable[..., object]
    status: int = 200
    takes: tuple[str, ...] = ()
    files: bool = False
    computes: bool = False

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        """The types of the function's arguments, and of what it returns."""
        return get_type_hints(self.answer)

    @property
    def body(self) -> Any:
        """The type of the body; None if it has none, or the function reads it."""
        return self.hints.get("body")

    @property
    def query(self) -> Any:
        """The type of the query."""
        return self.hints.get("query", NoQuery)

    @property
    def description(self) -> str:
        """What the route does."""
        return inspect.getdoc(self.answer) or ""

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The parts of the path."""
        return tuple(self.path.strip("/").split("/"))

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        """Return the values of the names in the path; None if a request's path is another."""
        if len(parts) != len(self.parts):
            return None
        values = {}
        for own, part in zip(self.parts, parts, strict=True):
            if own.startswith("{"):
                if not part:
                    return None
                values[own[1:-1]] = unquote(part)
            elif own != part:
                return None
        return values

    def arguments(self, call: HttpCall) -> dict[str, object]:
        """Return the query and the body of a request as the function takes them.
        Raises ProblemError: they are not what the function takes.
        """
        values: dict[str, object] = {}
        address = f"{call.request.path}?{call.request.query_string}"
        _parsed("the address", lambda: unquote(address, errors="strict"))
        query = _parsed(
            "the query", lambda: convert_plain(call.request.query, self.query, strict=False)
        )
        if self.query is not NoQuery:
            values["query"] = query
        if self.body is not None:
            check_body(call.request, (JSON,))
            body = call.request.body or b"{}"
            values["body"] = _parsed("the body", lambda: decode_json(body, self.body))
        return values


def check_body(request: HttpRequest, types: tuple[str, ...]) -> str:
    """Return the media type of a body.
    Raises ProblemError: it is none of `types`, or the body is too long.
    """
    if len(request.body) > MOST_BODY_BYTES:
        raise ProblemError(
            413,
            f"the body has {len(request.body):,} bytes, more than {MOST_BODY_BYTES:,}",
            hint="drop large amounts of rows as files: POST /tables/{table}/files",
        )
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if request.body and encoding != "identity":
        raise ProblemError(415, f"the body is encoded as {encoding!r}", hint="send it as it is")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.body and media_type not in types:
        raise ProblemError(
            415,
            f"the body is of type {media_type or 'unknown'!r}",
            hint=f"send {' or '.join(types)}",
        )
    return media_type or types[0]


def _parsed(what: str, parse: Callable[[], object]) -> object:
    try:
        return parse()
    except ValueError as error:
        raise ProblemError(
            400, f"{what} is not what this route takes: {error}", hint="see /openapi.json"
        ) from error
