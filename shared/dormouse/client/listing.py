"""Lists of the client that show themselves."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar, Generic, TypeVar

from dormouse.client.table import TableHandle
from dormouse.client.waiting import WAIT_SECONDS, Awaited, Progress
from dormouse.showing import Listing
from dormouse.state.jobs import JobRecord
from dormouse.tables.table import Table


def listed_jobs(records: Iterable[JobRecord]) -> Listing[JobRecord]:
    """Return records as a list that shows itself."""
    columns = ("state", "kind", "subject", "rows", "seconds", "attempts", "reason")
    return Listing(records, "jobs", columns)


def listed_tables(tables: Iterable[TableHandle]) -> Listing[TableHandle]:
    """Return tables as a list that shows itself."""

    def row(handle: TableHandle) -> Sequence[object]:
        created = datetime.fromtimestamp(handle.table.created_ms // 1000, UTC)
        made = created.isoformat(sep=" ", timespec="minutes").removesuffix("+00:00")
        keys = ", ".join(field.name for field in handle.schema.row_keys)
        return handle.name, keys, len(handle.schema.fields), made

    return Listing(tables, "tables", ("name", "row keys", "columns", "created"), row)


# Work on a table that a caller has requested, and may wait for.

_Progress = TypeVar("_Progress", bound=Progress)
_Result = TypeVar("_Result")


@dataclass(frozen=True, repr=False)
class RequestedWork(ABC, Generic[_Progress, _Result]):
    """Requested work, which the instance does whether the caller waits or not.

    `id` is its id among the table's jobs. `queue` is that of its messages.
    """

    queue: ClassVar[str]
    handle: TableHandle
    table: Table
    id: str

    def __repr__(self) -> str:
        """Return which work it is, and of which table."""
        return f"{type(self).__name__}({self.id} of table {self.table.name!r})"

    @abstractmethod
    def progress(self) -> _Progress | None:
        """Return the progress; None once it has ended."""

    @abstractmethod
    def _result(self) -> _Result:
        """Return what has come of it; raise why it failed."""

    def wait(
        self,
        timeout_seconds: float = WAIT_SECONDS,
        *,
        watch: Callable[[_Progress], None] | None = None,
    ) -> _Result:
        """Wait until it has ended, and return what has come of it.

        Raises:
            DormouseError: it failed; the message says why.
            TimedOutError: it had not ended after `timeout_seconds`.
            DeadLetterError: only a dead letter is left of it.
        """
        self.handle.polling.until_ended(
            self.progress,
            timeout_seconds=timeout_seconds,
            watch=watch,
            awaited=Awaited(self.handle.services, (self.queue, "spark-jobs"), lambda: [(self.id,)]),
        )
        return self._result()
