"""Attempts at one part of a job, a step or a task: find those that crashed.

The tracker records the attempts at jobs. A job may have thousands of parts, so the attempts at
parts are marked beside the job: one marker when an attempt begins, another when it ends or says why
it failed. A crashed attempt leaves only the first. The markers are deleted with the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Protocol

from dormouse.errors import DormouseError
from dormouse.ports.services import Ids, Storage

_BEGUN, _ENDED = ".begun", ".ended"


class AttemptStore(Protocol):
    """Where attempts are marked; `ports.Services` provides it."""

    @property
    def storage(self) -> Storage:
        """The data root."""

    @property
    def ids(self) -> Ids:
        """Generates the ids of attempts."""


@contextmanager
def record_attempt(services: AttemptStore, prefix: str) -> Iterator[None]:
    """Mark the begin and the end of an attempt at the part whose markers are below `prefix`.

    Within the block, a DormouseError counts as an end. After a crash, the marker of the end is
    missing.
    """
    run = f"{prefix}{services.ids.new()}"
    services.storage.put(run + _BEGUN, b"")
    try:
        yield
    except DormouseError:
        services.storage.put(run + _ENDED, b"")
        raise
    services.storage.put(run + _ENDED, b"")


def crashed_attempts(services: AttemptStore, prefix: str) -> list[str]:
    """Return the newest attempts at a part, in a row, that crashed or are still running.

    A part may take many attempts, each of which makes progress and may crash at another place.
    """
    paths = {stored.path for stored in services.storage.list(prefix)}
    begun = (path.removesuffix(_BEGUN) for path in paths if path.endswith(_BEGUN))
    newest_first = sorted(begun, reverse=True)
    return list(takewhile(lambda run: run + _ENDED not in paths, newest_first))


def clear_crashes(services: AttemptStore, prefix: str) -> None:
    """Mark all attempts as ended, so that a person who was informed of the crashes can have the
    part retried.
    """
    for run in crashed_attempts(services, prefix):
        services.storage.put(run + _ENDED, b"")
