"""Send the result of a query to a queue: rows as JSON if they are few, else where the files are.

Messages are numbered from 1 and say how many there are, so a receiver knows what it has twice and
what is missing: they may come twice or in another order, but what a number has never changes. A
query that has no result sends why. They are sent after the manifest was put, which is what the
message of a large result leads to, and before the end of the query is recorded: a crash between
sends them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.features.queries import QueryEnd
from dormouse.files.results import READABLE, ResultFormat, json_objects, read_rows, read_schema
from dormouse.ports import Services, Storage
from dormouse.showing import json_lines
from dormouse.stored.paths import query_manifest_path, query_prefix

MESSAGE_BYTES = 240 * 1024
"""The most bytes of the rows of one message; queues of SQS take 256 KiB at least."""
MOST_MESSAGES = 16
"""A result that needs more messages is not sent, but where it is."""


class ResultMessage(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    kw_only=True,
    tag="query_result",
    tag_field="type",
):
    """What is sent of a query: message `part`, from 1, of `parts`; `is_last` for the last.

    `rows` are objects as in JSON lines. Of a large result there is one message, with the URI of the
    `manifest`, which names its files. `total` is the number of rows of the whole result.
    """

    query_id: str
    state: str
    part: int
    parts: int
    is_last: bool
    total: int = 0
    manifest: str = ""
    reason: str = ""
    error: str = ""
    rows: tuple[msgspec.Raw, ...] = ()


def deliver(services: Services, end: QueryEnd, queue: str) -> None:
    """Send how a query ended to a queue.

    Raises:
        InvalidRequestError, NotFoundError: the queue is not of the list any more, or is gone.
        UnavailableError: some messages may not have been sent; deliver again.
    """
    messages = list(messages_of(services.results, end))
    services.result_queues.send(queue, end.query, [_text(message) for message in messages])


def messages_of(results: Storage, end: QueryEnd) -> Iterator[ResultMessage]:
    """Yield the messages of a query that has ended; each call yields the same."""
    if end.state != "finished":
        common: dict[str, Any] = {"reason": end.reason, "error": end.error}
        yield _message(end, 1, 1, common)
        return
    groups = _row_groups(results, end)
    if groups is None:
        yield _message(end, 1, 1, {"manifest": f"{results.uri}/{query_manifest_path(end.query)}"})
        return
    for part, rows in enumerate(groups, start=1):
        yield _message(end, part, len(groups), {"rows": tuple(map(msgspec.Raw, rows))})


def _message(end: QueryEnd, part: int, parts: int, more: dict[str, Any]) -> ResultMessage:
    return ResultMessage(
        query_id=end.query,
        state=end.state,
        part=part,
        parts=parts,
        is_last=part == parts,
        total=end.rows,
        **more,
    )


def _text(message: ResultMessage) -> str:
    return msgspec.json.encode(message).decode()


def _row_groups(results: Storage, end: QueryEnd) -> list[list[bytes]] | None:
    """Return the rows of each message as JSON; None if they are too many or too large, or JSON
    lacks a value.
    """
    form = ResultFormat(end.format)
    if form not in READABLE or end.size_bytes > MOST_MESSAGES * MESSAGE_BYTES:
        return None
    try:
        return _grouped(_lines(results, end, form))
    except InvalidRequestError:
        return None


def _grouped(lines: Iterable[bytes]) -> list[list[bytes]] | None:
    groups: list[list[bytes]] = [[]]
    size_bytes = 0
    for line in lines:
        if len(line) > MESSAGE_BYTES:
            return None
        if size_bytes + len(line) > MESSAGE_BYTES:
            groups.append([])
            size_bytes = 0
            if len(groups) > MOST_MESSAGES:
                return None
        groups[-1].append(line)
        size_bytes += len(line) + 1
    return groups


def _lines(results: Storage, end: QueryEnd, form: ResultFormat) -> Iterator[bytes]:
    schema = read_schema(end.schema, end.query)
    for file in end.files:
        path = query_prefix(end.query) + file.name
        for batch in read_rows(results, form, schema, path, file.size_bytes, file.rows):
            for row in json_objects(batch):
                yield json_lines([row]).rstrip(b"\n")
