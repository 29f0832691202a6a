"""Batches of messages: as many as one request to SQS may have, by their number and their bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

MAX_BATCH_ENTRIES = 10
MAX_BATCH_BYTES = 1024 * 1024

_Each = TypeVar("_Each")


def batched(sized: Iterable[tuple[str, _Each, int]]) -> Iterator[tuple[str, list[_Each]]]:
    """Yield a queue and what one request can take for it, in order for each queue.

    `sized` has a queue, a message and its size in bytes each. If it raises, the messages before are
    yielded first, and then its error is raised.
    """
    begun: dict[str, tuple[list[_Each], int]] = {}
    failure: Exception | None = None
    try:
        for queue, each, size_bytes in sized:
            batch, so_far = begun.get(queue, ([], 0))
            if len(batch) == MAX_BATCH_ENTRIES or so_far + size_bytes > MAX_BATCH_BYTES:
                yield queue, batch
                batch, so_far = [], 0
            batch.append(each)
            begun[queue] = batch, so_far + size_bytes
    except Exception as error:  # raised below, once the messages before are sent
        failure = error
    for queue, (batch, _) in begun.items():
        yield queue, batch
    if failure is not None:
        raise failure
