"""Counts of what happened in a run, by kind; written by many threads, read at the end."""

from __future__ import annotations

import threading
from collections import Counter


class Tally:
    """Counters of kinds by topic, and sentences on what is wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, Counter[str]] = {}
        self._wrong: list[str] = []

    def count(self, topic: str, kind: str, number: int = 1) -> None:
        """Add to what is counted of a topic."""
        with self._lock:
            self._counts.setdefault(topic, Counter())[kind] += number

    def of(self, topic: str) -> Counter[str]:
        """Return what was counted of a topic so far."""
        with self._lock:
            return Counter(self._counts.get(topic, Counter()))

    def wrong(self, sentence: str) -> None:
        """Keep a difference between what is and what must be."""
        with self._lock:
            self._wrong.append(sentence)

    @property
    def differences(self) -> list[str]:
        """All that was wrong so far."""
        with self._lock:
            return list(self._wrong)
