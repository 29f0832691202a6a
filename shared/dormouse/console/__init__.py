"""The console: a page for people over the HTTP API, and over nothing else.

The page is plain HTML, CSS and JavaScript modules of this package, without a library and without a
build. It asks for nothing from elsewhere, and its content security policy forbids that. It comes
from a server of the machine on which it is looked at, which knows the token or signs requests.
"""

from functools import cache
from pathlib import Path
from typing import Final

from dormouse.http.messages import HttpRequest, HttpResponse, Responder, without_body

PAGE: Final = "/"
"""The path of the page."""
ASSETS: Final = "/console/"
"""Below this path is what the page loads."""
_FOLDER = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self' https://*.amazonaws.com; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""Scripts and styles of this server alone; files may go to and come from S3, by signed URLs."""


def is_console(path: str) -> bool:
    """Return whether a path is one of the console: it shows nothing of an instance."""
    return path == PAGE or path.startswith(ASSETS)


def console_uri(url: str, token: str) -> str:
    """Return the address of the page at a server; no request carries the token in its fragment."""
    return f"{url}{PAGE}#token={token}"


def with_console(answer: Responder) -> Responder:
    """Return what answers requests for the console with its files, all others with `answer`."""

    def answered(request: HttpRequest) -> HttpResponse:
        if request.method not in ("GET", "HEAD") or not is_console(request.path):
            return answer(request)
        response = _file(request.path)
        return without_body(response) if request.method == "HEAD" else response

    return answered


def _file(path: str) -> HttpResponse:
    name = "index.html" if path == PAGE else path.removeprefix(ASSETS)
    content = _files().get(name)
    if content is None:
        return HttpResponse(404, {"content-type": "text/plain"}, b"the console has no such file")
    headers = {
        "content-type": _TYPES[Path(name).suffix],
        "cache-control": "no-cache",
        "content-security-policy": _POLICY,
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    return HttpResponse(200, headers, content)


@cache
def _files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in _FOLDER.iterdir() if path.suffix in _TYPES}
