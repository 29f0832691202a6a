"""The paths of objects stored for requests."""

from __future__ import annotations


def request_prefix(table_id: str) -> str:
    """Return the prefix of the objects stored for a table's requests with unfinished jobs."""
    return f"{table_id}/requests/"


def request_path(table_id: str, request_key: str) -> str:
    """Return the path of a request with unfinished jobs, and of the jobs that it caused."""
    return f"{request_prefix(table_id)}{request_key}.json"


def request_reply_path(table_id: str, request_key: str) -> str:
    """Return the path of the last reply to a request, which is the same each time it is sent."""
    return f"{request_prefix(table_id)}{request_key}/reply.json"


def request_wanted_path(table_id: str, request_key: str) -> str:
    """Return the path of the empty object that marks that a delivery wanted a reply."""
    return f"{request_prefix(table_id)}{request_key}/reply-wanted"


def request_left_path(table_id: str, request_key: str) -> str:
    """Return the path of the list of a purge's remaining objects."""
    return f"{request_prefix(table_id)}{request_key}/left.json"


def request_in(path: str) -> tuple[str, bool]:
    """Return the request key in a path, and whether it is the path of the request itself."""
    _, _, rest = path.partition("/requests/")
    request_key, slash, _ = rest.partition("/")
    return (request_key, False) if slash else (rest.removesuffix(".json"), True)
