"""Waiting for what another process does: until it is so, or the deadline has passed."""

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen], seconds: float = 20) -> Seen:
    """What `look` gives as soon as it is true; fails when it has not become so in time."""
    end = time.monotonic() + seconds
    while not (seen := look()):
        assert time.monotonic() < end, f"not within {seconds} s: {look}"
        time.sleep(0.05)
    return seen
