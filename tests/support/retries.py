"""Retries that take no time."""

from dormouse.system import RetryPolicy

WITHOUT_PAUSES = RetryPolicy(sleep=lambda _: None, random=lambda: 0.0)
