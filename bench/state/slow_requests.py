"""Storage, pages and items whose requests take the simulated time of a region's; used by contests.

They count as well: they are the counting ones, made slow, and throttled as AWS does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.state.counting import PAGE_ITEM_BYTES, CountingPages, CountingStorage, Requests
from bench.state.counting_items import CountingDynamoDB, Key, item_bytes, read_units
from bench.state.simulation import Latencies, Limits, Simulation
from dormouse.errors import UnavailableError
from dormouse.log.pages import Head, Page
from tests.support.memory_pages import MemoryPages
from tests.support.memory_storage import MemoryStorage

WRITE_MS, READ_MS, PUT_MS, GET_MS = 5, 3, 25, 15
LAG_SECONDS, LAGGING_SHARE = 0.03, 1 / 3
"""One of DynamoDB's three replicas may not know yet what was put so short a time before."""


@dataclass
class Network:
    """What all requests of a contest share."""

    requests: Requests = field(default_factory=Requests)
    clock: Simulation = field(default_factory=Simulation)
    latencies: Latencies = field(default_factory=lambda: Latencies(1))

    def __post_init__(self) -> None:
        """Begin with all units."""
        self.limits = Limits(self.clock)
        self.put_at: dict[object, float] = {}

    def begin(self) -> None:
        """Count from zero again."""
        self.requests.clear()
        self.limits = Limits(self.clock)

    def pause(self, mean_ms: float, size_bytes: int = 0) -> None:
        """Take the time of a request."""
        self.clock.pause(self.latencies.draw(mean_ms, size_bytes))

    def lags(self, key: object) -> bool:
        """Return whether the replica that is asked does not know an item yet."""
        is_new = self.clock.now - self.put_at.get(key, -1) < LAG_SECONDS
        return is_new and self.latencies.random() < LAGGING_SHARE


class SlowStorage(CountingStorage):
    """Storage whose requests take their time."""

    def __init__(self, inner: MemoryStorage, network: Network) -> None:
        """Take the times from `network`."""
        super().__init__(inner, network.requests)
        self._network = network

    def get(self, path: str) -> bytes:
        """Return an object after a while, once its prefix takes one more request."""
        network = self._network
        with network.clock.uncharged():
            body = super().get(path)
            throttled_seconds = network.limits.gets.wait_for(path.rpartition("/")[0], 1)
            seconds = throttled_seconds + network.latencies.draw(GET_MS, len(body))
        network.clock.pause(seconds)
        return body

    def put(self, path: str, body: bytes) -> bool:
        """Store an object after a while."""
        self._network.pause(PUT_MS, len(body))
        with self._network.clock.uncharged():
            return super().put(path, body)


class SlowDynamoDB(CountingDynamoDB):
    """Items whose requests take their time, half of it before they happen."""

    def __init__(self, kept: dict[Key, Mapping[str, Any]], network: Network) -> None:
        """Take the times from `network`."""
        super().__init__(kept, network.requests)
        self._network = network

    def put_item(self, *, TableName: str, Item: Mapping[str, Any], **_: Any) -> None:  # noqa: N803
        """Put an item unless its hash key is throttled."""
        self._network.pause(WRITE_MS / 2)
        with self._network.clock.uncharged():
            units = -(-item_bytes(Item) // 1024)
            if not self._network.limits.writes.take(Item["k"]["S"], units):
                raise UnavailableError("throttled")
            super().put_item(TableName=TableName, Item=Item)
            key = TableName, Item["k"]["S"], Item["i"]["S"]
            self._network.put_at[key] = self._network.clock.now
        self._network.pause(WRITE_MS / 2)

    def batch_get_item(self, *, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803
        """Return the items of the hash keys that are not throttled."""
        network = self._network
        network.pause(READ_MS / 2)
        with network.clock.uncharged():
            answer, size_bytes = self._answer(RequestItems)
        network.pause(READ_MS / 2, size_bytes)
        return answer

    def _answer(self, wanted: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Return what a read finds, and its bytes."""
        network = self._network
        ((table, asked),) = wanted.items()
        units = Counter[str]()
        for key in asked["Keys"]:
            item = self.kept.get((table, key["k"]["S"], key["i"]["S"]))
            units[key["k"]["S"]] += read_units(item, asked["ConsistentRead"])  # type: ignore[assignment]
        taken = {key for key, count in units.items() if network.limits.reads.take(key, count)}
        keys = [key for key in asked["Keys"] if key["k"]["S"] in taken]
        left = [key for key in asked["Keys"] if key["k"]["S"] not in taken]
        answer = super().batch_get_item(RequestItems={table: {**asked, "Keys": keys}})
        found = answer["Responses"][table]
        answer["UnprocessedKeys"] = {table: {"Keys": left}} if left else {}
        return answer, sum(map(item_bytes, found))

    def lags(self, key: Key) -> bool:
        """Return whether an item is not there yet for a read that is not consistent."""
        return self._network.lags(key)


class SlowPages(CountingPages):
    """Pages whose requests take their time, half of it before they happen, and are throttled."""

    def __init__(self, inner: MemoryPages, network: Network) -> None:
        """Take the times from `network`."""
        super().__init__(inner, network.requests)
        self.before, self.after = self._begin, self._end
        self._network = network
        self.attempts, self.answered_at = 0, 0.0

    def head(self, table_id: str) -> Head | None:
        """Return the head unless its hash key is throttled."""
        self._take_read("head")
        return super().head(table_id)

    def page(self, table_id: str, number: int) -> Page | None:
        """Return a page unless its hash key is throttled."""
        self._take_read(number // 64)
        return super().page(table_id, number)

    def append(
        self, table_id: str, number: int, delta_id: str, position: int | None = None
    ) -> Page | None:
        """Append unless the page's hash key is throttled."""
        self.attempts += 1
        if not self._network.limits.writes.take(number // 64, 1):
            self._network.pause(WRITE_MS)
            raise UnavailableError("throttled")
        page = super().append(table_id, number, delta_id, position)
        self.answered_at = self._network.clock.now
        return page

    def _take_read(self, key: object) -> None:
        if not self._network.limits.reads.take(key, -(-PAGE_ITEM_BYTES // 4096)):
            self._network.pause(READ_MS)
            raise UnavailableError("throttled")

    def _begin(self, operation: str) -> None:
        self._count(operation)
        self._half(operation)
        self._answering = self._network.clock.uncharged()
        self._answering.__enter__()

    def _end(self, operation: str) -> None:
        self._answering.__exit__(None, None, None)
        self._half(operation)

    def _half(self, operation: str) -> None:
        self._network.pause((READ_MS if operation in ("head", "page") else WRITE_MS) / 2)
