"""What makes messages visible again: the death of their worker, or a clock that was set back.

Both are looked for from time to time by every process that works in a folder. A process that dies
may have begun what nothing but a sweep finds, such as a compaction that is assigned in the state
and of which no message was sent yet. So a sweep is due with each release.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Set

from dormouse.folder.sqlite.database import Database
from dormouse.stored.names import dead_letter_queue

HELD_MS = 2**62
"""The time until which a message is hidden while its process works on it: for ever."""
SWEPT = "swept_ms"
"""The setting with the time of the last sweep."""
_JOB_QUEUES = ("compaction-jobs", "spark-jobs")
_JOB_ID = re.compile(r'"job_id":"([^"]+)"')


def release(
    database: Database,
    now_ms: int,
    this: str,
    held: Set[str],
    is_alive: Callable[[str], bool],
) -> int:
    """Let messages be seen on which nobody works any more; return how many.

    `this` is the name of this process, `held` has the receipts of what it works on, and `is_alive`
    says which other processes live.
    """
    with database.reading() as connection:
        found = _held_by_others(connection, this, is_alive) + _unheld(connection, this, held)
        is_set_back = connection.execute(
            "SELECT 1 FROM messages WHERE since_ms > ? LIMIT 1", (now_ms,)
        ).fetchone()
    if not found and not is_set_back:
        return 0
    with database.writing() as connection:
        # What was delayed before the clock was set back waits for as long as it was to, from now.
        connection.execute(
            "UPDATE messages SET visible_ms = ?1 + visible_ms - since_ms, since_ms = ?1"
            " WHERE since_ms > ?1 AND process = ''",
            (now_ms,),
        )
        freed = connection.executemany(
            "UPDATE messages SET visible_ms = min(sent_ms, ?), since_ms = ?, process = ''"
            " WHERE number = ? AND receipt = ? AND process != ''",
            [(now_ms, now_ms, number, receipt) for number, receipt in found],
        )
        if freed.rowcount > 0:
            sweep_soon(connection)
        return max(0, freed.rowcount)


def sweep_soon(connection: sqlite3.Connection) -> None:
    """Let the next process that looks sweep."""
    connection.execute("UPDATE settings SET value = '0' WHERE name = ?", (SWEPT,))


def jobs_in_queues(database: Database) -> Set[str]:
    """Return the ids of all jobs of which there is a message, or a dead letter."""
    queues = [*_JOB_QUEUES, *map(dead_letter_queue, _JOB_QUEUES)]
    with database.reading() as connection:
        bodies = connection.execute(
            f"SELECT body FROM messages WHERE queue IN ({', '.join('?' * len(queues))})", queues
        ).fetchall()
    return {job_id for (body,) in bodies for job_id in _JOB_ID.findall(body)}


def _held_by_others(
    connection: sqlite3.Connection, this: str, is_alive: Callable[[str], bool]
) -> list[tuple[int, str]]:
    names = connection.execute("SELECT DISTINCT process FROM messages WHERE process != ''")
    dead = [name for (name,) in names.fetchall() if name != this and not is_alive(name)]
    return [found for name in dead for found in _of(connection, name)]


def _unheld(connection: sqlite3.Connection, this: str, held: Set[str]) -> list[tuple[int, str]]:
    """Return what this process has by name, and no thread of it: its end could not be written."""
    return [found for found in _of(connection, this) if found[1] not in held] if this else []


def _of(connection: sqlite3.Connection, process: str) -> list[tuple[int, str]]:
    return connection.execute(
        "SELECT number, receipt FROM messages WHERE process = ? AND process != ''", (process,)
    ).fetchall()
