"""How long a test waits for another process or thread: until something is so, or it must hang.

The limit bounds what hangs, not what is slow: on a machine with ten times the work it can do, all
still comes in time. No test has a limit of its own, sleeps, or asserts how long something took;
`tests/architecture/test_waiting.py` holds them to that.
"""

import time
from collections.abc import Callable
from typing import TypeVar

LIMIT_SECONDS = 900.0
"""After this, what is waited for hangs: the slowest of it takes a minute of CPU time."""
_LOOK_EVERY_SECONDS = 0.05

Seen = TypeVar("Seen")


def eventually(look: Callable[[], Seen]) -> Seen:
    """Return what `look` gives as soon as it is true; fail if it does not become so."""
    end = time.monotonic() + LIMIT_SECONDS
    while not (seen := look()):
        assert time.monotonic() < end, f"not within {LIMIT_SECONDS:g} s: {look}"
        time.sleep(_LOOK_EVERY_SECONDS)
    return seen
