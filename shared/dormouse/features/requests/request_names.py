"""What requests are kept under beside their table, and how the jobs they ask for are called."""

from __future__ import annotations

_ASKED = "-asked-"


def asked_job_id(request_key: str, unique: str) -> str:
    """Return the id of a job that a request asks for; it begins with `unique`."""
    return f"{unique}{_ASKED}{request_key}"


def asked_by(job_id: str) -> str | None:
    """Return the key of the request that a job was asked for by; None if by none."""
    _, found, request_key = job_id.partition(_ASKED)
    return request_key if found else None


def request_prefix(table_id: str) -> str:
    """Return the prefix of what is kept of the requests about a table whose jobs go on."""
    return f"{table_id}/requests/"


def request_path(table_id: str, request_key: str) -> str:
    """Return the path of a request whose jobs go on, with the jobs that it caused."""
    return f"{request_prefix(table_id)}{request_key}.json"


def request_reply_path(table_id: str, request_key: str) -> str:
    """Return the path of the last reply to a request, the same however often it is sent."""
    return f"{request_prefix(table_id)}{request_key}/reply.json"


def request_wanted_path(table_id: str, request_key: str) -> str:
    """Return the path of the empty object which says that somebody wants a reply to a request."""
    return f"{request_prefix(table_id)}{request_key}/reply-wanted"


def request_left_path(table_id: str, request_key: str) -> str:
    """Return the path of the objects which a purge asked for leaves behind for a while."""
    return f"{request_prefix(table_id)}{request_key}/left.json"


def request_in(path: str) -> tuple[str, bool]:
    """Return the key of a path below a prefix of requests, and whether the request lies there."""
    _, _, rest = path.partition("/requests/")
    request_key, slash, _ = rest.partition("/")
    return (request_key, False) if slash else (rest.removesuffix(".json"), True)
