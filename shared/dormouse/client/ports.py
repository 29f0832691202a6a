"""The ports that only the client uses; `aws` implements them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dormouse.model.sources import Source
from dormouse.ports.services import Outbox, QueueCounts


class Queues(Outbox, Protocol):
    """The queues: send messages, and count those that wait."""

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Return the number of messages in each queue that wait or are in flight, not delayed."""

    def counts(self, queues: Sequence[str]) -> dict[str, QueueCounts]:
        """Return the message counts of each queue by state, some seconds old."""


class QueueAges(Protocol):
    """How long messages have waited, if it is known."""

    def ages(self, queues: Sequence[str], now_ms: int) -> dict[str, float]:
        """Return the age in seconds of the oldest message, for the queues where it is known.

        Raises:
            UnavailableError: the service does not answer.
        """


class UnknownAges:
    """`QueueAges` of an instance that does not measure them."""

    def ages(self, queues: Sequence[str], now_ms: int) -> dict[str, float]:
        """Return none."""
        return {}


class SparkApplications(Protocol):
    """Where an instance's Spark jobs run."""

    def find(self) -> tuple[str, str] | None:
        """Return the id and the state of the instance's application; None if it has none.

        Raises:
            UnavailableError: the service does not answer.
        """


class NoSpark:
    """`SparkApplications` of an instance that has none."""

    def find(self) -> tuple[str, str] | None:
        """Return None."""
        return None


class ResultLinks(Protocol):
    """Links to files of results, for whoever has no right to read the results bucket."""

    def download_url(self, path: str, seconds: int) -> str:
        """Return a URL by which anybody can GET an object for so many seconds; empty if there is
        none.
        """


class NoLinks:
    """`ResultLinks` of an instance whose results are files of this machine."""

    def download_url(self, path: str, seconds: int) -> str:
        """Return none."""
        return ""


class IngestBucket(Protocol):
    """The ingest bucket, for uploads."""

    @property
    def name(self) -> str:
        """The name of the bucket."""

    def drop(self, key: str, local: Path, *, once: bool = False) -> Source:
        """Upload a local file; return the source that its notification will name.

        With `once`, an object that is there under `key` is not replaced; its source is returned.
        """

    def upload_url(self, key: str, seconds: int) -> str:
        """Return a URL by which anybody can PUT the content of `key` for so many seconds; empty if
        there is none.
        """
