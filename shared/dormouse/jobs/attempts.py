"""The runs of a part of a job, a step or a task: which of them ended without a word.

The tracker knows that of jobs. Of their parts, of which there may be thousands, it is noted beside
the job: a note when a run begins, another when it ends or says why it failed. They go with the job.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from dormouse.errors import DormouseError
from dormouse.ports import Ids, Storage

_BEGUN, _TOLD = ".begun", ".told"


class AttemptStore(Protocol):
    """Where runs are noted; `ports.Services` have it."""

    @property
    def storage(self) -> Storage:
        """The data root."""

    @property
    def ids(self) -> Ids:
        """What makes the ids of runs."""


@contextmanager
def record_attempt(services: AttemptStore, prefix: str) -> Iterator[None]:
    """Note a run of the part whose notes lie at `prefix`; it is told of unless it dies in there."""
    run = f"{prefix}{services.ids.new()}"
    services.storage.put(run + _BEGUN, b"")
    try:
        yield
    except DormouseError:
        services.storage.put(run + _TOLD, b"")
        raise
    services.storage.put(run + _TOLD, b"")


def crashed_attempts(services: AttemptStore, prefix: str) -> list[str]:
    """Return the runs of a part that ended without a word, or still go on."""
    paths = {stored.path for stored in services.storage.list(prefix)}
    begun = (path.removesuffix(_BEGUN) for path in paths if path.endswith(_BEGUN))
    return sorted(run for run in begun if run + _TOLD not in paths)


def clear_crashes(services: AttemptStore, prefix: str) -> None:
    """Count what ended without a word no more: people were told, and may have it tried again."""
    for run in crashed_attempts(services, prefix):
        services.storage.put(run + _TOLD, b"")
