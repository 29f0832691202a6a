"""Backends that remember what was done to them, for what looks at an instance from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from dormouse.state.jobs import JobEvent, JobRecord, Tracked, fold_event
from dormouse.system import Clock
from dormouse.tables.table import Table
from tests.support.adapters import MemoryTables, MemoryTracker
from tests.support.memory_storage import MemoryStorage


class WatchedStorage(MemoryStorage):
    """Storage that reports which objects were put and deleted.

    Objects may be `damaged`: then that is what all who read them get, until they are repaired.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin empty."""
        super().__init__(clock)
        self.damaged: dict[str, bytes] = {}
        self.changes: list[tuple[Literal["put", "clash", "delete"], str]] = []

    def get(self, path: str) -> bytes:
        """Return a whole object."""
        body = super().get(path)
        return self.damaged.get(path, body)

    def as_put(self, path: str) -> bytes:
        """Return what an object was when it was put."""
        return super().get(path)

    def put(self, path: str, body: bytes) -> bool:
        """Store an object if there is none of that path."""
        done = super().put(path, body)
        if done:
            self.changes.append(("put", path))
        elif self.as_put(path) != body:
            self.changes.append(("clash", path))
        return done

    def delete(self, paths: Sequence[str]) -> None:
        """Delete objects."""
        self.changes += [("delete", path) for path in paths if path in self._objects]
        super().delete(paths)
        for path in paths:
            self.damaged.pop(path, None)


class WatchedTables(MemoryTables):
    """The registry, with all tables it ever had, and what each request made of one."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.created: set[str] = set()
        self.became: dict[str, Table] = {}

    def create(self, table: Table) -> None:
        """Add a table."""
        super().create(table)
        self.created.add(table.id)

    def change(
        self, table_id: str, change: Callable[[Table], Table], *, request_id: str = ""
    ) -> Table:
        """Replace what is kept of a table; what a request makes of it first is what it did."""
        became = super().change(table_id, change, request_id=request_id)
        if request_id:
            self.became.setdefault(request_id, became)
        return became


class WatchedTracker(MemoryTracker):
    """The tracker, with the last event of each job, even if a newer record is kept."""

    def __init__(self) -> None:
        """Begin empty."""
        super().__init__()
        self.latest: dict[tuple[str, str], JobRecord] = {}

    def record(self, job: Tracked, event: JobEvent, at_ms: int) -> None:
        """Keep the record of a job, if the event is the newest."""
        super().record(job, event, at_ms)
        said = fold_event(None, job, event, at_ms)
        assert said is not None
        self.latest[job.table_id, job.id] = said


def last_record(kept: JobRecord, last: JobRecord, slack_ms: int) -> JobRecord:
    """Return the record of a job that came last: by clocks that are apart, it may be older than the
    one that is kept.
    """
    return last if 0 < kept.updated_ms - last.updated_ms <= slack_ms else kept
