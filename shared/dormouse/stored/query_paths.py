"""Paths of what queries store in the results bucket, made here alone."""

from __future__ import annotations

from urllib.parse import quote, unquote

from dormouse.stored.paths import MANIFEST

RESULTS_OF_QUERIES = "queries/"
"""The prefix of all that queries store in the results bucket."""


def query_prefix(query_id: str) -> str:
    """Return the prefix, in the results bucket, of all that a query stores."""
    return f"{RESULTS_OF_QUERIES}{query_id}/"


def query_path(query_id: str) -> str:
    """Return the path of what a query asked, and what was fixed when it began."""
    return f"{query_prefix(query_id)}_query.json"


def query_manifest_path(query_id: str) -> str:
    """Return the path of the manifest of a query, which says how it ended."""
    return f"{query_prefix(query_id)}{MANIFEST}"


def query_task_path(query_id: str, cut: str, task: int) -> str:
    """Return the path of one sub-query; `cut` identifies the plan that cut the query."""
    return f"{query_prefix(query_id)}_tasks/{cut}/{task:05d}.json"


def query_done_prefix(query_id: str) -> str:
    """Return the prefix of the ends of a query's sub-queries."""
    return f"{query_prefix(query_id)}_done/"


def query_done_path(query_id: str, task: int) -> str:
    """Return the path of the end of one sub-query."""
    return f"{query_done_prefix(query_id)}{task:05d}.json"


def query_followers_prefix(query_id: str) -> str:
    """Return the prefix of the connections that follow a query, beside the one that asked it."""
    return f"{query_prefix(query_id)}_followers/"


def query_follower_path(query_id: str, connection: str) -> str:
    """Return the path of the object that says that a connection follows a query."""
    return query_followers_prefix(query_id) + quote(connection, safe="")


def connection_of(path: str) -> str:
    """Return the connection that a path of `query_follower_path` is of."""
    return unquote(path.rpartition("/")[2])


def query_attempts_prefix(query_id: str, task: int) -> str:
    """Return the prefix of the attempts of functions at one sub-query."""
    return f"{query_prefix(query_id)}_tries/{task:05d}/"


def query_file(task: int, attempt: str, number: int, suffix: str) -> str:
    """Return the name of the `number`-th file, from 0, that an attempt at a sub-query writes."""
    return f"part-{task:05d}-{attempt}-{number:03d}.{suffix}"


def task_of(file: str) -> int:
    """Return the sub-query that wrote a file, by its name."""
    return int(file.split("-")[1])
