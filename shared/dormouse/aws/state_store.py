"""A state whose deltas, segments and snapshots are objects of the data bucket.

Segments and snapshots are Parquet, which any reader opens. The log is items of DynamoDB.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

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
    yield from _Race(get, requests).answers()


class _Race(Generic[_Wanted, _Result]):
    """Requests under way, those that were late twice."""

    def __init__(self, get: Callable[[_Wanted], _Result], requests: Sequence[_Wanted]) -> None:
        self._get, self._wanted = get, requests
        self._answered = threading.Condition()
        self._answers: dict[int, _Result] = {}
        self._under_way = Counter[int]()
        self._failure: BaseException | None = None
        self._late_at: float | None = None
        self._is_hedged = False
        self._began = time.monotonic()
        self._send(range(len(requests)))

    def answers(self) -> Iterator[_Result]:
        for place in range(len(self._wanted)):
            yield self._answer(place)

    def _answer(self, place: int) -> _Result:
        with self._answered:
            while place not in self._answers and self._failure is None:
                if self._is_hedged or self._late_at is None:
                    self._answered.wait()
                elif not self._answered.wait(max(0, self._late_at - time.monotonic())):
                    self._is_hedged = True
                    self._send([n for n in range(len(self._wanted)) if n not in self._answers])
            if place not in self._answers and self._failure is not None:
                raise self._failure
            return self._answers[place]

    def _send(self, places: Iterable[int]) -> None:
        for place in places:
            self._under_way[place] += 1
            threading.Thread(target=self._ask, args=(place,), daemon=True).start()

    def _ask(self, place: int) -> None:
        try:
            answer = self._get(self._wanted[place])
        except BaseException as failure:  # noqa: BLE001  # raised again by `_answer`
            with self._answered:
                self._under_way[place] -= 1
                if not self._under_way[place] and place not in self._answers:
                    self._failure = self._failure or failure
                    self._answered.notify()
            return
        with self._answered:
            self._under_way[place] -= 1
            self._answers.setdefault(place, answer)
            if self._late_at is None and 2 * len(self._answers) >= len(self._wanted):
                self._late_at = self._began + LATE * (time.monotonic() - self._began)
            self._answered.notify()
