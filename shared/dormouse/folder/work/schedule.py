"""What is done from time to time: the sweep, the audit, and the removal of what has expired.

The times of the last runs are in the SQLite file, so that of all processes one does it, whichever
comes first when it is due. A run that dies is made up for by the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial

from dormouse.errors import DormouseError
from dormouse.folder.queues import SqliteQueues
from dormouse.folder.recovery import SWEPT, jobs_in_queues
from dormouse.folder.sqlite.database import Database
from dormouse.folder.sqlite.items import remove_expired
from dormouse.folder.work.deliveries import logger
from dormouse.folder.work.leaving import Leaving, LeavingError
from dormouse.jobs.retry_policy import SWEEP_SECONDS
from dormouse.messages.stages import QUEUES
from dormouse.ports.services import Services
from dormouse.tables.table import Table

AUDIT_SECONDS = 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of an instance."""

    database: Database
    leaving: Leaving = field(default_factory=Leaving)

    def run_due(self, services: Services, queues: SqliteQueues) -> None:
        """Do what is due. If the process leaves meanwhile, it is due for the next one."""
        now_ms = services.clock.now_ms()
        audit = self._claim("audited_ms", now_ms, AUDIT_SECONDS)
        if not self._claim(SWEPT, now_ms, SWEEP_SECONDS) and not audit:
            return
        is_idle = not any(queues.depths(QUEUES).values())  # else what is free is used soon
        with self.database.writing() as connection:
            remove_expired(connection, now_ms)
        try:
            _each_table(services, queues, self.database, audit=audit)
        except Exception:
            if self.leaving:
                self._put_off(SWEPT, *(["audited_ms"] if audit else []))
            raise
        if is_idle:
            self.database.shrink()

    def _put_off(self, *names: str) -> None:
        with self.database.writing() as connection:
            connection.executemany(
                "UPDATE settings SET value = '0' WHERE name = ?", [(name,) for name in names]
            )

    def _claim(self, name: str, now_ms: int, seconds: int) -> bool:
        """Return whether something is due, and this is the process to do it.

        A folder begins with everything done: there is nothing yet to repair. What was done in the
        future, before the clock was set back, is due.
        """
        select = "SELECT CAST(value AS INTEGER) FROM settings WHERE name = ?"
        with self.database.reading() as connection:
            row = connection.execute(select, (name,)).fetchone()
        if row is not None and _is_recent(row[0], now_ms, seconds):
            return False
        with self.database.writing() as connection:
            row = connection.execute(select, (name,)).fetchone()
            if row is not None and _is_recent(row[0], now_ms, seconds):
                return False
            connection.execute(
                "INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", (name, str(now_ms))
            )
        return row is not None


def _is_recent(done_ms: int, now_ms: int, seconds: int) -> bool:
    return 0 <= now_ms - done_ms < seconds * 1000


def _each_table(
    services: Services, queues: SqliteQueues, database: Database, *, audit: bool
) -> None:
    from dormouse.features.sweep.sweep import sweep
    from dormouse.features.tables.leftovers import collect_leftovers

    if audit:
        _logged("an audit of leftovers", lambda: collect_leftovers(services))
    tables, damaged = services.tables.list_readable()
    for error in damaged:
        logger.error("damaged: %s", error.explanation)

    def sweep_one(table: Table) -> None:
        queues.send(sweep(services, table, audit=audit, is_lost=_lost_jobs(database)))

    for table in tables:
        _logged(f"the sweep of table {table.name}", partial(sweep_one, table))


def _lost_jobs(database: Database) -> Callable[[str], bool]:
    """Return a test of whether no queue has a message of a job.

    The queues are looked into once, with the first job: after the state was read that has it.
    """
    known = cache(partial(jobs_in_queues, database))
    return lambda job_id: job_id not in known()


def _logged(what: str, run: Callable[[], object]) -> None:
    """Run one part; if it fails, the others have their turn all the same."""
    try:
        run()
    except LeavingError:
        raise
    except DormouseError as error:
        logger.warning("%s failed: %s", what, error.explanation)
