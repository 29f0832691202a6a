"""Save and load what is stored of a query, all of it below its prefix in the results bucket.

The tasks are put first, then the query, which makes them valid; each end of a sub-query is put
once, and the manifest last, once. Nothing is ever changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from dormouse.errors import NotFoundError
from dormouse.features.queries.query import (
    Query,
    QueryEnd,
    TaskEnd,
    decode_end,
    decode_query,
    decode_task_end,
    encode_end,
    encode_query,
    encode_task_end,
)
from dormouse.messages.queries import QueryTask
from dormouse.messages.stages import OutboundMessage, StatementJob
from dormouse.model.state import Piece
from dormouse.ports.services import Storage
from dormouse.query.pieces import decode_pieces, encode_pieces
from dormouse.stored.paths import (
    query_done_path,
    query_done_prefix,
    query_manifest_path,
    query_path,
    query_prefix,
    query_task_path,
)

OBJECTS_AT_ONCE = 8
_SUB_QUERY = "a sub-query"


def save_query(results: Storage, query: Query) -> Query:
    """Save a query whose tasks are saved; return the one that was saved first."""
    path = query_path(query.id)
    if results.put(path, encode_query(query, path)):
        return query
    return decode_query(results.get(path), path)


def load_query(results: Storage, query_id: str) -> Query | None:
    """Return a query that has begun; None if there is none.

    Raises:
        CorruptDataError: the stored query is damaged.
    """
    path = query_path(query_id)
    try:
        return decode_query(results.get(path), path)
    except NotFoundError:
        return None


def save_tasks(results: Storage, query_id: str, cut: str, tasks: Iterable[Sequence[Piece]]) -> int:
    """Save what the sub-queries read, at least one; return their number."""

    def save(numbered: tuple[int, Sequence[Piece]]) -> None:
        task, pieces = numbered
        path = query_task_path(query_id, cut, task)
        results.put(path, encode_pieces(pieces, _SUB_QUERY, path))

    with ThreadPoolExecutor(OBJECTS_AT_ONCE) as threads:
        count = sum(1 for _ in threads.map(save, enumerate(tasks)))
    if not count:
        save((0, ()))
    return max(1, count)


def load_pieces(results: Storage, query: Query, task: int) -> tuple[Piece, ...]:
    """Return what a sub-query reads.

    Raises:
        NotFoundError: there is no such sub-query.
        CorruptDataError: it is damaged.
    """
    path = query_task_path(query.id, query.cut, task)
    return decode_pieces(results.get(path), _SUB_QUERY, path)


def save_task_end(results: Storage, query_id: str, task: int, end: TaskEnd) -> None:
    """Save the end of a sub-query, unless another attempt was quicker."""
    path = query_done_path(query_id, task)
    results.put(path, encode_task_end(end, path))


def done_tasks(results: Storage, query: Query) -> list[int]:
    """Return the sub-queries that are done, in order."""
    done = {stored.path for stored in results.list(query_done_prefix(query.id))}
    return [task for task in range(query.tasks) if query_done_path(query.id, task) in done]


def task_messages(query: Query, done: list[int]) -> list[OutboundMessage]:
    """Return the messages of the sub-queries that can run now; if all are done, of the last one,
    which finishes the query.
    """
    left = [task for task in range(query.tasks) if task not in set(done)]
    wanted = left[:1] if query.in_turn else left
    tasks = wanted or [query.tasks - 1]
    return [
        OutboundMessage("queries", QueryTask(query.id, task, query.asked.who)) for task in tasks
    ]


def spark_job(query: Query) -> OutboundMessage:
    """Return the message that has Spark compute a statement."""
    home = next(iter(query.views.values()))
    job = StatementJob(home.id, query.cut, query.id, query.asked.spark)
    return OutboundMessage("spark-jobs", job)


def load_task_ends(results: Storage, query_id: str, tasks: Iterable[int]) -> list[TaskEnd]:
    """Return the ends of sub-queries that are done.

    Raises:
        CorruptDataError: one is damaged.
    """

    def load(task: int) -> TaskEnd:
        path = query_done_path(query_id, task)
        return decode_task_end(results.get(path), path)

    with ThreadPoolExecutor(OBJECTS_AT_ONCE) as threads:
        return list(threads.map(load, tasks))


def save_end(results: Storage, end: QueryEnd) -> QueryEnd:
    """Save how a query ended; return how it did, which another may have said first."""
    path = query_manifest_path(end.query)
    if results.put(path, encode_end(end)):
        return end
    return decode_end(results.get(path), path)


def load_end(results: Storage, query_id: str) -> QueryEnd | None:
    """Return how a query ended; None if it has not.

    Raises:
        CorruptDataError: the manifest is damaged.
    """
    path = query_manifest_path(query_id)
    try:
        return decode_end(results.get(path), path)
    except NotFoundError:
        return None


def delete_parts(results: Storage, query_id: str) -> None:
    """Delete all that a query stored but what it asked and how it ended."""
    kept = (query_path(query_id), query_manifest_path(query_id))
    paths = [each.path for each in results.list(query_prefix(query_id)) if each.path not in kept]
    for start in range(0, len(paths), 1000):
        results.delete(paths[start : start + 1000])
