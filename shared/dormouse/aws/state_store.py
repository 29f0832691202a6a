"""A state whose deltas, segments and snapshots are objects of the data bucket.

Segments and snapshots are Parquet, which any reader opens. The log is items of DynamoDB.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from dormouse.items.blobs import ObjectBlobs
from dormouse.log.blobs import AT_ONCE, Fetch, fetched
from dormouse.log.log import Log, Reader
from dormouse.ports import Storage


def objects_reader(log: Log, storage: Storage, fetch: Fetch = fetched) -> Reader:
    """Return the reader of a state in objects alone, whose deltas `fetch` requests.

    Deltas carry those before them: a request takes longer than a few kilobytes.
    """
    place, tries = (storage, log.table_id), log.retry_policy
    return Reader(
        log,
        ObjectBlobs(*place, "delta", tries, suffix=".delta", is_spread=True, fetch=fetch),
        ObjectBlobs(*place, "segment", tries),
        ObjectBlobs(*place, "snapshot", tries),
        carries=True,
    )


_Result = TypeVar("_Result")
_Wanted = TypeVar("_Wanted")

FEWEST_HEDGED = 4
"""Of fewer requests, half say little about how long one takes."""
LATE = 1.5
"""A request is late that has taken so many times as long as the quicker half of all."""


def fetched_hedged(
    get: Callable[[_Wanted], _Result], requests: Sequence[_Wanted]
) -> Iterator[_Result]:
    """Request once more what is late, and take the answer that comes first; a `Fetch`.

    Of thirty requests to S3, one in four times one takes several times as long as the others, and
    all wait for it. What comes too late is left to end by itself; not even the end of the process
    waits for it.
    """
    if not FEWEST_HEDGED <= len(requests) <= AT_ONCE:
        yield from fetched(get, requests)
        return
    came = SimpleQueue[tuple[int, float, Future[_Result]]]()
    under_way, answers = Counter[int](), dict[int, _Result]()
    began, late_at = time.monotonic(), None

    def ask(place: int) -> None:
        future = Future[_Result]()
        try:
            future.set_result(get(requests[place]))
        except BaseException as failure:  # noqa: BLE001  # raised again below
            future.set_exception(failure)
        came.put((place, time.monotonic(), future))

    def send(places: Iterable[int]) -> None:
        for place in places:
            under_way[place] += 1
            threading.Thread(target=ask, args=(place,), daemon=True).start()

    send(range(len(requests)))
    for wanted in range(len(requests)):
        while wanted not in answers:
            rest = None if late_at is None else max(0.0, late_at - time.monotonic())
            try:
                place, at, future = came.get(timeout=rest)
            except Empty:
                send([n for n in range(len(requests)) if n not in answers])
                late_at = None
                continue
            under_way[place] -= 1
            if place in answers or (future.exception() and under_way[place]):
                continue
            answers[place] = future.result()
            if 2 * len(answers) in (len(requests), len(requests) + 1):
                late_at = began + LATE * (at - began)
        yield answers[wanted]
