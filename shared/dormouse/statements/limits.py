"""What a statement may take of the machine."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from dormouse.errors import InvalidRequestError, LimitExceededError

if TYPE_CHECKING:
    from dormouse.shards.reading import ReadCounters  # loads Arrow

MEMORY_BYTES = 1024 * 1024 * 1024
"""What sorting, grouping and joining may use before they spill; a caller can say otherwise."""
TIMEOUT_SECONDS = 600.0
"""How long a caller waits for a statement in all; it can say otherwise."""
_LEAST_BYTES, _MOST_BYTES = 16 * 1024 * 1024, 1024**4
MOST_SECONDS = 7 * 24 * 3600
WATCH_MS = 1000
"""How often who runs a statement may end it, while it is computed."""
Watch: TypeAlias = "Callable[[ReadCounters], None]"
"""Raises an error if a statement that has read so much should not go on; it becomes the error of
the statement. It is called by another thread than the one that takes the rows."""


class Limits(msgspec.Struct, frozen=True):
    """What a statement may take; of shards, it may read about `read_bytes`, or any amount."""

    memory_bytes: int = MEMORY_BYTES
    timeout_seconds: float = TIMEOUT_SECONDS
    read_bytes: int | None = None

    def __post_init__(self) -> None:
        """Refuse limits that cannot be kept.
        Raises InvalidRequestError: one is too small or too large.
        """
        if not 0 < self.timeout_seconds <= MOST_SECONDS:
            raise InvalidRequestError("a statement may take more than 0 seconds, up to 7 days")
        if not _LEAST_BYTES <= self.memory_bytes <= _MOST_BYTES:
            raise InvalidRequestError("a statement may take from 16 MiB to 1 TiB of memory")


class ReadLimitError(LimitExceededError):
    """A statement would read more of the shards than it may; nothing of it has been computed."""
