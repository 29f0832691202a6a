"""Finish and publish the shards of a run side by side, and the last one when all others are there.

To finish a shard takes a sixth of the time that its rows take in an ingest into many leaves: its
last row group is encoded, the CRCs of all are computed, the footer is written.

A shard whose footer says that it is the last shows that its run is complete (`model.provenance`).
So it becomes an object after all others: no crash leaves a last shard without the others. The
shards of a part of a run do not say it, and become objects in any order.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeAlias

from dormouse.model.shards import NewShard
from dormouse.ports.services import Storage
from dormouse.shards.writing.shard_writer import ShardWriter, WrittenShard

UPLOADS_AT_ONCE = 8
"""How many shards are published while the next is written."""
WAITING_BYTES = 256 * 1024 * 1024
"""How much of the scratch space their files take; a larger one is published with no other beside
it.
"""

_Publication: TypeAlias = Future[NewShard]


class ShardPublisher:
    """Publishes the shards of one run, while the next one is written; end it with `close`."""

    def __init__(self, storage: Storage, at_the_end: Callable[[], object] | None = None) -> None:
        """Publish to `storage`; this sends nothing.

        `at_the_end` is called while the last shard is published, after all others are.
        """
        self._storage, self._at_the_end = storage, at_the_end
        self._threads = ThreadPoolExecutor(UPLOADS_AT_ONCE)
        self._all: list[_Publication] = []
        self._waiting: dict[_Publication, int] = {}

    @property
    def count(self) -> int:
        """The number of shards so far."""
        return len(self._all)

    def publish(self, shard: ShardWriter) -> None:
        """Finish and publish a shard, which is not the last, in the background, as soon as there is
        room beside those in progress.

        Raises what `check` raises.
        """
        size_bytes = shard.finished_bytes
        try:
            while not self._has_room(size_bytes):
                wait(self._waiting, return_when=FIRST_COMPLETED)
                self.check()
        except BaseException:
            shard.discard()
            raise
        publication = self._threads.submit(self._published, shard)
        self._all.append(publication)
        self._waiting[publication] = size_bytes

    def check(self) -> None:
        """Raise the error of a shard that could not be finished or published; the errors of the
        latter are those of `WrittenShard.publish`.
        """
        for publication in [each for each in self._waiting if each.done()]:
            del self._waiting[publication]
            publication.result()

    def finish(self, last: WrittenShard | None) -> list[NewShard]:
        """Return all shards in their order, when they are published; `last` after all others.

        Raises what `check` and what is called at the end raise.
        """
        try:
            shards = [publication.result() for publication in self._all]
        except BaseException:
            if last is not None:
                last.discard()
            raise
        if last is None:
            return shards
        beside = self._at_the_end and self._threads.submit(self._at_the_end)
        shards.append(last.publish(self._storage))
        if beside is not None:
            beside.result()
        return shards

    def close(self) -> None:
        """Wait until no shard is being published any more."""
        self._threads.shutdown()

    def _published(self, shard: ShardWriter) -> NewShard:
        try:
            written = shard.finish(last=False)
        except BaseException:
            shard.discard()
            raise
        return written.publish(self._storage)

    def _has_room(self, size_bytes: int) -> bool:
        if not self._waiting:
            return True
        waiting_bytes = sum(self._waiting.values())
        return len(self._waiting) < UPLOADS_AT_ONCE and waiting_bytes + size_bytes <= WAITING_BYTES
