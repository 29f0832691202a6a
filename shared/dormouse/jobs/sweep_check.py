"""What a sweep knows when it looks for work of a table whose message may be lost.

Each stage of `messages.STAGES` that stores its work names a function, `overdue`, which gets a
`SweepCheck` and yields the messages to send again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass, field

from dormouse.errors import CorruptDataError, DormouseError, NotFoundError
from dormouse.model.state import TableState
from dormouse.ports.services import Services
from dormouse.tables.table import Table


def unknown(job_id: str) -> bool:
    """Return False: nobody can say whether a message of a job is lost."""
    return False


@dataclass(frozen=True, slots=True)
class SweepCheck:
    """One table in one sweep.

    `is_due` says whether work that began at a time is due to be sent again. `is_lost` says whether
    no queue has a message of a job, where queues can be looked into: it is then due at once.
    `spark_jobs` has the times at which Spark was asked for its jobs; `with_spark` also has jobs of
    which that cannot be read. Errors of stored work that is damaged are added to `damaged`: the
    sweep raises them after it has done everything else.
    """

    services: Services
    table: Table
    state: TableState
    is_due: Callable[[int], bool]
    spark_jobs: Mapping[str, int]
    with_spark: Set[str]
    is_lost: Callable[[str], bool] = unknown
    damaged: list[DormouseError] = field(default_factory=list)

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Do something; the sweep goes on if that fails because something is damaged or lost."""
        try:
            yield
        except (CorruptDataError, NotFoundError) as error:
            self.damaged.append(error)
