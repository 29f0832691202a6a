"""Pauses Python's cyclic garbage collector during a commit.

A commit decodes and folds the deltas of others, which makes many objects and no cycles. The
collector would look through all of them, and through the state, several times.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_MOST_UNCOLLECTED = 100_000
"""So many new containers, some 10 MB, are collected even where commits follow without a gap."""

_lock = threading.Lock()
_paused = 0
_was_enabled = False


@contextmanager
def gc_paused() -> Iterator[None]:
    """Let the collector not run until the last of the pauses that overlap ends.

    It stays off if it was off before.
    """
    global _paused, _was_enabled
    with _lock:
        if not _paused:
            _was_enabled = gc.isenabled()
            gc.disable()
        _paused += 1
    try:
        yield
    finally:
        with _lock:
            _paused -= 1
            if not _paused and _was_enabled:
                gc.enable()
        if _was_enabled and gc.get_count()[0] > _MOST_UNCOLLECTED:
            gc.collect(0)
