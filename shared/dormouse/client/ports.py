"""What the client asks of the world beside what the stages do; `aws` has the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dormouse.model.sources import Source
from dormouse.ports import Outbox, QueueCounts


class Queues(Outbox, Protocol):
    """The queues: a way in, and a look at how much is in them."""

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Return the messages of each queue that wait or are being worked on, not the delayed."""

    def counts(self, queues: Sequence[str]) -> dict[str, QueueCounts]:
        """Return the messages of each queue by what becomes of them, as of some seconds ago."""


class QueueAges(Protocol):
    """How long messages have waited, where that is known."""

    def ages(self, queues: Sequence[str], now_ms: int) -> dict[str, float]:
        """Return the age in seconds of the oldest message of the queues of which it is known.

        Raises:
            UnavailableError: it cannot be asked for.
        """


class UnknownAges:
    """`QueueAges` where nobody measures them."""

    def ages(self, queues: Sequence[str], now_ms: int) -> dict[str, float]:
        """Know of none."""
        return {}


class SparkApplications(Protocol):
    """Where an instance's Spark jobs run."""

    def find(self) -> tuple[str, str] | None:
        """Return the application of the instance: its id and its state; None if it has none.

        Raises:
            UnavailableError: it cannot be asked for.
        """


class NoSpark:
    """`SparkApplications` of an instance that has none."""

    def find(self) -> tuple[str, str] | None:
        """Find none."""
        return None


class IngestBucket(Protocol):
    """The bucket files are dropped into."""

    @property
    def name(self) -> str:
        """What it is called."""

    def drop(self, key: str, local: Path, *, once: bool = False) -> Source:
        """Upload a local file; return the source that its notification will name.

        With `once`, an object that is there under `key` is not replaced; its source is returned.
        """
