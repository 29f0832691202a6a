"""What the client asks of the world beside what the stages do; `aws` has the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dormouse.model.sources import Source
from dormouse.ports import Outbox


class Queues(Outbox, Protocol):
    """The queues: a way in, and a look at how much is in them."""

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Give the messages of each queue that wait or are being worked on, not the delayed."""


class IngestBucket(Protocol):
    """The bucket files are dropped into."""

    def drop(self, key: str, local: Path) -> Source:
        """Upload a local file, and give the source that its notification will name."""
