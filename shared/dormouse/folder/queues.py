"""The queues: messages that wait, are worked on, come again, and end as dead letters.

A message that was received is hidden from others as long as its process lives and works on it,
however long that takes; its death makes it visible again. Others of the same job are hidden
meanwhile: a file may be dropped by several processes at once, and a job that is run beside itself
would seem to have crashed. A message that was received as often as the policy allows, and would be
received again, moves to the dead-letter queue.
"""

import re
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass

from dormouse.errors import NotFoundError, UnavailableError, did_you_mean
from dormouse.folder.sqlite import Database
from dormouse.jobs import MAX_RECEIVES
from dormouse.messages.stages import QUEUES, OutboundMessage, encode
from dormouse.ports import DeadLetter, QueueCounts, cut_reason
from dormouse.stored.paths import REPLIES, dead_letter_queue
from dormouse.system import Clock

# What makes messages visible again: the death of their worker, or a clock that was set back.
#
# Both are looked for from time to time by every process that works in a folder. A process that dies
# may have begun what nothing but a sweep finds, such as a compaction that is assigned in the state
# and of which no message was sent yet. So a sweep is due with each release.

HELD_MS = 2**62
"""The time until which a message is hidden while its process works on it: for ever."""
SWEPT = "swept_ms"
"""The setting with the time of the last sweep."""
_JOB_QUEUES = ("compaction-jobs", "spark-jobs", "purges", "exports")
_JOB_ID = re.compile(r'"(?:job|purge|export)_id":"([^"]+)"')


def sweep_soon(connection: sqlite3.Connection) -> None:
    """Let the next process that looks sweep."""
    connection.execute("UPDATE settings SET value = '0' WHERE name = ?", (SWEPT,))


def jobs_in_queues(database: Database) -> Set[str]:
    """Return the ids of all jobs, purges and exports of which there is a message or dead letter."""
    queues = [*_JOB_QUEUES, *map(dead_letter_queue, _JOB_QUEUES)]
    with database.reading() as connection:
        bodies = connection.execute(
            f"SELECT body FROM messages WHERE queue IN ({', '.join('?' * len(queues))})", queues
        ).fetchall()
    return {job_id for (body,) in bodies for job_id in _JOB_ID.findall(body)}


_SENT_AT_ONCE = 100
NEWS = ("table-changes", "iceberg-changes")
"""The queues whose messages only say that a table has changed."""
_KNOWN = frozenset((*QUEUES, *map(dead_letter_queue, QUEUES), REPLIES))
_INSERT = (
    "INSERT INTO messages (queue, body, reason, sent_ms, since_ms, visible_ms)"
    " VALUES (?1, ?2, ?3, ?4, ?4, ?5)"
)
_JOB = "CASE WHEN json_valid({0}) THEN json_extract({0}, '$.job_id') END"
_ORDER = " ORDER BY visible_ms, number LIMIT ?3"
_SEEN = (
    "SELECT number, body, receives FROM messages WHERE queue = ?1 AND visible_ms <= ?2"
    f" AND coalesce({_JOB.format('body')} NOT IN (SELECT {_JOB.format('held.body')} AS job"
    " FROM messages AS held INDEXED BY messages_by_process WHERE held.process != ''"
    f" AND held.queue = ?1 AND job IS NOT NULL), TRUE){_ORDER}"
)
THIS = "WHERE number = ? AND queue = ? AND receipt = ?"
"""A message that was received and did not come again since."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message that this process works on. `receipt` is what deletes it, until it comes again."""

    id: str
    queue: str
    body: str
    receives: int
    receipt: str

    @property
    def place(self) -> tuple[str, str, str]:
        """What `THIS` needs."""
        return self.id, self.queue, self.receipt


class SqliteQueues:
    """All queues of an instance: `client.waiting.Queues`, and their other end.

    `process` is the name of this one among the processes of the folder, and `is_alive` says which
    others still are. `sent` is called after messages were sent.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        process: str,
        is_alive: Callable[[str], bool],
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        self._database, self._clock = database, clock
        self._process, self._is_alive, self._sent = process, is_alive, sent
        self._held: set[str] = set()
        self._lock = threading.Lock()

    def send(self, messages: Iterable[OutboundMessage], done: Sequence[Received] = ()) -> None:
        """Send all messages, some at a time, while the iterable is consumed.

        What is `done` by them is deleted with the last, at once. If the iterable raises, the
        messages before are sent all the same, and nothing is deleted.
        """
        waiting: list[OutboundMessage] = []
        try:
            for outgoing in messages:
                waiting.append(outgoing)
                if len(waiting) == _SENT_AT_ONCE:
                    self._put(waiting)
                    waiting = []
        except BaseException:
            self._put(waiting)
            raise
        self._put(waiting, done)

    def send_body(self, queue: str, body: str, *, reason: str = "") -> None:
        """Send the text of a message; to a dead-letter queue with the reason."""
        with self._database.writing() as connection:
            insert_message(connection, queue, body, self._clock.now_ms(), reason=reason)
        self._sent()

    def receive(self, queue: str, most: int) -> list[Received]:
        """Receive messages, the oldest first, which others do not see while this process works on
        them.
        """
        check(queue)
        now_ms = self._clock.now_ms()
        with self._database.reading() as connection:  # mostly there is nothing to write
            if not connection.execute(_SEEN, (queue, now_ms, 1)).fetchone():
                return []
        with self._lock:  # so that `release_unheld` never sees one that nobody seems to hold
            with self._database.writing(lazy=True) as connection:
                messages = self._taken(connection, queue, most, now_ms)
            self._held.update(message.receipt for message in messages)
        return messages

    def _taken(
        self, connection: sqlite3.Connection, queue: str, most: int, now_ms: int
    ) -> list[Received]:
        messages: list[Received] = []
        while not messages:
            rows = connection.execute(_SEEN, (queue, now_ms, most)).fetchall()
            if not rows:
                break
            for number, body, receives in rows:
                if receives >= MAX_RECEIVES:
                    connection.execute(
                        "UPDATE messages SET queue = ?, receipt = '' WHERE number = ?",
                        (dead_letter_queue(queue), number),
                    )
                    continue
                receipt = f"{number}-{receives + 1}"
                connection.execute(
                    "UPDATE messages SET visible_ms = ?, since_ms = ?, receives = receives + 1,"
                    " receipt = ?, process = ? WHERE number = ?",
                    (HELD_MS, now_ms, receipt, self._process, number),
                )
                messages.append(Received(str(number), queue, body, receives + 1, receipt))
        return messages

    def delete(self, messages: Sequence[Received]) -> None:
        """Delete messages that are done; one that came again since stays with its new receiver."""
        self._put((), messages)

    def retry_in(self, message: Received, seconds: float, *, is_counted: bool = True) -> None:
        """Let a message be seen again in so many seconds; unless `is_counted`, as if it had not
        been received.
        Raises UnavailableError: it is worked on by another process by now.
        """
        now_ms = self._clock.now_ms()
        with self._ending([message]) as connection:
            update = connection.execute(
                "UPDATE messages SET visible_ms = ?, since_ms = ?, receives = receives - ?,"
                f" process = '' {THIS}",
                (now_ms + int(seconds * 1000), now_ms, not is_counted, *message.place),
            )
            if not update.rowcount:
                raise UnavailableError(f"a message of queue {message.queue!r} came again since")

    def give_back(self, messages: Sequence[Received]) -> None:
        """Let messages be seen at once, as if they had not been received."""
        with self._ending(messages) as connection:
            sweep_soon(connection)
            connection.executemany(
                "UPDATE messages SET visible_ms = sent_ms, receives = receives - 1, receipt = '',"
                f" process = '' {THIS}",
                [message.place for message in messages],
            )

    def leave(self) -> None:
        """Let be seen what this process still holds, as if it had not received it: it was
        interrupted on the way from the queue to the work, or back.
        """
        with self._lock:
            receipts, self._held = self._held, set()
        if not receipts:
            return
        with self._database.writing() as connection:
            messages = connection.execute(
                "UPDATE messages SET visible_ms = sent_ms, receives = receives - 1, receipt = '',"
                " process = '' WHERE process = ?",
                (self._process,),
            )
            if messages.rowcount > 0:
                sweep_soon(connection)

    def bury(self, message: Received, reason: str) -> None:
        """Move a message that can never succeed to its dead-letter queue, with the reason."""
        now_ms, dead = self._clock.now_ms(), dead_letter_queue(message.queue)
        with self._ending([message]) as connection:
            connection.execute(
                "UPDATE messages SET queue = ?, reason = ?, visible_ms = ?, since_ms = ?,"
                f" receipt = '', process = '' {THIS}",
                (dead, cut_reason(reason) or "unknown", now_ms, now_ms, *message.place),
            )

    def release_unheld(self) -> int:
        """Let messages be seen on which nobody works any more; return how many.

        Their process has died, or it is this one and could not write how its work ended.
        """
        now_ms = self._clock.now_ms()
        with self._lock:
            with self._database.reading() as connection:
                messages = connection.select(
                    "SELECT process, number, receipt FROM messages WHERE process != ''"
                )
                is_set_back = connection.select(
                    "SELECT 1 FROM messages WHERE since_ms > ? LIMIT 1", (now_ms,)
                )
            others = {process for process, _, _ in messages} - {self._process}
            dead = {name for name in others if not self._is_alive(name)}
            unheld = [
                (now_ms, now_ms, number, receipt)
                for process, number, receipt in messages
                if process in dead or (process == self._process and receipt not in self._held)
            ]
            if not unheld and not is_set_back:
                return 0
            with self._database.writing() as connection:
                # What was delayed before the clock was set back waits for as long, from now.
                connection.execute(
                    "UPDATE messages SET visible_ms = ?1 + visible_ms - since_ms, since_ms = ?1"
                    " WHERE since_ms > ?1 AND process = ''",
                    (now_ms,),
                )
                freed = connection.executemany(
                    "UPDATE messages SET visible_ms = min(sent_ms, ?), since_ms = ?, process = ''"
                    " WHERE number = ? AND receipt = ? AND process != ''",
                    unheld,
                )
                if freed.rowcount > 0:
                    sweep_soon(connection)
                return max(0, freed.rowcount)

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Return how many messages of each queue are waiting or in flight, without delayed ones."""
        counts = self.counts(queues)
        return {queue: count.waiting + count.in_flight for queue, count in counts.items()}

    def counts(self, queues: Sequence[str]) -> dict[str, QueueCounts]:
        """Return how many messages of each queue are waiting, in flight and delayed."""
        now_ms = self._clock.now_ms()
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT queue, sum(visible_ms <= ?1), sum(visible_ms > ?1 AND receipt != ''),"
                " sum(visible_ms > ?1 AND receipt = '') FROM messages GROUP BY queue",
                (now_ms,),
            ).fetchall()
        by_queue = {queue: QueueCounts(*counts) for queue, *counts in rows}
        return {queue: by_queue.get(check(queue), QueueCounts(0, 0, 0)) for queue in queues}

    def ages(self, queues: Sequence[str], now_ms: int) -> dict[str, float]:
        """Return the age in seconds of the oldest message of each queue that has any."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT queue, min(sent_ms) FROM messages WHERE visible_ms <= ? OR receipt != ''"
                " GROUP BY queue",
                (now_ms,),
            ).fetchall()
        return {queue: (now_ms - sent_ms) / 1000 for queue, sent_ms in rows if queue in queues}

    @contextmanager
    def _ending(
        self, messages: Sequence[Received], *, lazy: bool = True
    ) -> Iterator[sqlite3.Connection]:
        """Run the block as a transaction that ends the work on messages, whether or not it can. A
        power failure that undoes it lets them come again, as any crash before it does.
        """
        try:
            with self._database.writing(lazy=lazy) as connection:
                yield connection
        finally:
            with self._lock:
                self._held.difference_update(message.receipt for message in messages)

    def _put(self, messages: Sequence[OutboundMessage], done: Sequence[Received] = ()) -> None:
        if not messages and not done:
            return
        now_ms = self._clock.now_ms()
        rows = [
            (
                check(each.queue),
                encode(each.message),
                cut_reason(each.reason),
                now_ms,
                now_ms + each.delay_seconds * 1000,
            )
            for each in messages
        ]
        places = [message.place for message in done]
        rows = [row for row in rows if row[0] not in NEWS or not self._is_unread(*row[:2], now_ms)]
        if rows or places:
            is_news = all(queue in NEWS for queue, *_ in rows)  # which a sweep sends again
            with self._ending(done, lazy=is_news or bool(places)) as connection:
                connection.executemany(_INSERT, rows)
                connection.executemany(f"DELETE FROM messages {THIS}", places)
        if messages:
            self._sent()

    def _is_unread(self, queue: str, body: str, now_ms: int) -> bool:
        """Return whether the same message waits: who receives it sees all committed before."""
        same = "queue = ? AND body = ? AND visible_ms <= ?"
        select = f"SELECT 1 FROM messages WHERE {same} LIMIT 1"
        return bool(self._database.select(select, (queue, body, now_ms)))


def insert_message(
    connection: sqlite3.Connection, queue: str, body: str, now_ms: int, *, reason: str = ""
) -> None:
    """Send the text of a message in a transaction that does more."""
    connection.execute(_INSERT, (check(queue), body, cut_reason(reason), now_ms, now_ms))


def check(queue: str) -> str:
    """Return the name of a queue. Raises NotFoundError: there is no such queue."""
    if queue not in _KNOWN:
        hint = f"there are {', '.join(QUEUES)}"
        raise NotFoundError(f"there is no queue {queue!r}", hint=did_you_mean(queue, QUEUES, hint))
    return queue


TAKEN_SECONDS = 300
"""How long others do not see a dead letter that was received."""


class SqliteDeadLetters:
    """The dead letters of an instance; safe for many threads and processes."""

    def __init__(
        self, database: Database, clock: Clock, sent: Callable[[], None] = lambda: None
    ) -> None:
        self._database, self._clock, self._sent = database, clock, sent

    def receive(self, queue: str, most: int) -> list[DeadLetter]:
        """Receive dead letters; others do not see them for some minutes, unless released."""
        dead, now_ms = check(dead_letter_queue(queue)), self._clock.now_ms()
        letters: list[DeadLetter] = []
        with self._database.writing() as connection:
            rows = connection.execute(
                "SELECT number, body, reason, receives, sent_ms FROM messages"
                " WHERE queue = ? AND visible_ms <= ? ORDER BY visible_ms, number LIMIT ?",
                (dead, now_ms, most),
            ).fetchall()
            for number, body, reason, receives, sent_ms in rows:
                receipt = f"{number}-{receives + 1}"
                connection.execute(
                    "UPDATE messages SET visible_ms = ?, since_ms = ?, receives = ?, receipt = ?"
                    " WHERE number = ?",
                    (now_ms + TAKEN_SECONDS * 1000, now_ms, receives + 1, receipt, number),
                )
                letters.append(
                    DeadLetter(str(number), body, reason, receives + 1, sent_ms, receipt)
                )
        return letters

    def release(self, queue: str, letters: Sequence[DeadLetter]) -> None:
        """Make received dead letters visible to others at once."""
        now_ms, dead = self._clock.now_ms(), check(dead_letter_queue(queue))
        with self._database.writing() as connection:
            connection.executemany(
                f"UPDATE messages SET visible_ms = ? {THIS}",
                [(now_ms, letter.id, dead, letter.receipt) for letter in letters],
            )

    def redrive(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Send the messages to their queue again; return the dead letters, all of which were."""
        now_ms = self._clock.now_ms()
        with self._database.writing() as connection:
            for letter in letters:
                insert_message(connection, queue, letter.body, now_ms)
        self._sent()
        return list(letters)

    def delete(self, queue: str, letters: Sequence[DeadLetter]) -> list[DeadLetter]:
        """Delete received dead letters; return those that could not be deleted, which is none."""
        dead = check(dead_letter_queue(queue))
        with self._database.writing() as connection:
            connection.executemany(
                f"DELETE FROM messages {THIS}",
                [(letter.id, dead, letter.receipt) for letter in letters],
            )
        return []
