"""A client's instance over a `World`: what it sends is delivered while it sleeps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dormouse.client.instance import Instance
from dormouse.client.waiting import Polling
from dormouse.messages.stages import OutboundMessage
from dormouse.ports import QueueCounts
from dormouse.state.sources import Source
from dormouse.stored.paths import dead_letter_queue
from tests.support.world import World


@dataclass
class WorldQueues:
    """The queues of a world."""

    world: World

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        self.world.queue += messages

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        counts = self.counts(queues)
        return {queue: count.waiting + count.in_flight for queue, count in counts.items()}

    def counts(self, queues: Sequence[str]) -> dict[str, QueueCounts]:
        return {queue: self._counts(queue) for queue in queues}

    def _counts(self, queue: str) -> QueueCounts:
        dead = {
            dead_letter_queue(name): found
            for name, found in self.world.dead_letters.letters.items()
        }
        delays = [m.delay_seconds for m in self.world.queue if m.queue == queue]
        return QueueCounts(
            waiting=delays.count(0) + len(dead.get(queue, [])),
            in_flight=0,
            delayed=len(delays) - delays.count(0),
        )


@dataclass
class WorldBucket:
    """The ingest bucket of a world; notifications wait in `dropped` until they are delivered."""

    world: World
    dropped: list[Source] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.world.sources.bucket

    def drop(self, key: str, local: Path, *, once: bool = False) -> Source:
        if once and key in self.world.sources.objects:
            return self.world.sources.source(key)
        source = self.world.sources.drop(key, local.read_bytes())
        self.dropped.append(source)
        return source


@dataclass
class Sleeper:
    """Each sleep delivers what there is, one step of the flow at a time, unless `asleep`."""

    world: World
    bucket: WorldBucket
    asleep: bool = False
    sleeps: int = 0
    delayed: dict[int, tuple[OutboundMessage, int]] = field(default_factory=dict)

    def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        self.world.clock.advance(seconds=seconds)
        if self.asleep:
            return
        due = [message for message in self.world.queue if self._is_due(message)]
        for message in due:
            self.delayed.pop(id(message), None)
            self.world.queue.remove(message)
            self.world.queue += self.world.deliver(message)
        if self.bucket.dropped:
            self.world.notify(*self.bucket.dropped)
            self.bucket.dropped.clear()

    def _is_due(self, message: OutboundMessage) -> bool:
        """Return whether a message's delay is over, counted from the first sleep that saw it."""
        now_ms = self.world.clock.now_ms()
        _, since_ms = self.delayed.setdefault(id(message), (message, now_ms))
        return now_ms - since_ms >= message.delay_seconds * 1000


@dataclass
class InMemory:
    """An instance in memory, and the strings it is moved by."""

    world: World
    instance: Instance
    bucket: WorldBucket
    sleeper: Sleeper

    @staticmethod
    def over(world: World) -> InMemory:
        bucket = WorldBucket(world)
        sleeper = Sleeper(world, bucket)
        polling = Polling(world.clock, sleeper.sleep)
        instance = Instance(world.services, WorldQueues(world), bucket, polling)
        return InMemory(world, instance, bucket, sleeper)
