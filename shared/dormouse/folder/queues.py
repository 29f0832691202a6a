"""The queues: messages that wait, are worked on, come again, and end as dead letters.

A message that was received is hidden from others until its time is over, as in SQS. If the process
that received it has died, it is visible at once (`processes` knows who lives). A message that was
received as often as the policy allows, and would be received again, moves to the dead-letter queue.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dormouse.errors import NotFoundError, UnavailableError
from dormouse.folder.database import Database
from dormouse.jobs.retry_policy import MAX_RECEIVES
from dormouse.messages import QUEUES, OutboundMessage, encode
from dormouse.ports import Clock, QueueCounts
from dormouse.stored.names import REPLIES, dead_letter_queue

MAX_REASON_CHARACTERS = 1000
_SENT_AT_ONCE = 100
_KNOWN = frozenset((*QUEUES, *map(dead_letter_queue, QUEUES), REPLIES))
_NO_TEXT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INSERT = "INSERT INTO messages (queue, body, reason, sent_ms, visible_ms) VALUES (?, ?, ?, ?, ?)"

IsAlive = Callable[[str], bool]


def _all_alive(process: str) -> bool:
    """Take every process for alive: its messages come again when their time is over."""
    return True


@dataclass(frozen=True, slots=True)
class Received:
    """A message that this process works on. `receipt` is what deletes it, until it comes again."""

    id: str
    queue: str
    body: str
    receives: int
    receipt: str


class SqliteQueues:
    """All queues of an instance: `ports.Outbox` and `client.ports.Queues`, and their other end.

    `process` is the name of this one among the processes of the folder, and `is_alive` says which
    others still are. `sent` is called after messages were sent.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        process: str = "",
        is_alive: IsAlive = _all_alive,
        sent: Callable[[], None] = lambda: None,
    ) -> None:
        """Use `database`."""
        self._database, self._clock = database, clock
        self._process, self._is_alive, self._sent = process, is_alive, sent

    def send(self, messages: Iterable[OutboundMessage]) -> None:
        """Send all messages, some at a time, while the iterable is consumed.

        If the iterable raises, the messages before are sent all the same.
        """
        waiting: list[OutboundMessage] = []
        iterator = iter(messages)
        try:
            for outgoing in iterator:
                waiting.append(outgoing)
                if len(waiting) == _SENT_AT_ONCE:
                    self._put(waiting)
                    waiting = []
        finally:
            self._put(waiting)

    def send_body(self, queue: str, body: str, *, reason: str = "") -> None:
        """Send the text of a message; to a dead-letter queue with the reason."""
        with self._database.writing() as connection:
            insert_message(connection, queue, body, self._clock.now_ms(), reason=reason)
        self._sent()

    def receive(self, queue: str, most: int, visibility_seconds: int) -> list[Received]:
        """Receive messages, the oldest first, which others do not see for so long."""
        check(queue)
        now_ms = self._clock.now_ms()
        seen = (
            "SELECT number, body, receives FROM messages WHERE queue = ? AND visible_ms <= ?"
            " ORDER BY number LIMIT ?"
        )
        with self._database.reading() as connection:  # mostly there is nothing to write
            if not connection.execute(seen, (queue, now_ms, 1)).fetchone():
                return []
        taken: list[Received] = []
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE messages SET queue = ?, receipt = '', process = ''"
                " WHERE queue = ? AND visible_ms <= ? AND receives >= ?",
                (dead_letter_queue(queue), queue, now_ms, MAX_RECEIVES),
            )
            for number, body, receives in connection.execute(
                seen, (queue, now_ms, most)
            ).fetchall():
                receipt = f"{number}-{receives + 1}"
                connection.execute(
                    "UPDATE messages SET visible_ms = ?, receives = receives + 1, receipt = ?,"
                    " process = ? WHERE number = ?",
                    (now_ms + visibility_seconds * 1000, receipt, self._process, number),
                )
                taken.append(Received(str(number), queue, body, receives + 1, receipt))
        return taken

    def delete(self, messages: Sequence[Received]) -> None:
        """Delete messages that are done; one that came again since stays with its new receiver."""
        with self._database.writing() as connection:
            connection.executemany(
                "DELETE FROM messages WHERE queue = ? AND receipt = ?",
                [(message.queue, message.receipt) for message in messages],
            )

    def retry_in(self, message: Received, seconds: float) -> None:
        """Let a message be seen again in so many seconds.

        Raises:
            UnavailableError: it is worked on by another process by now.
        """
        visible_ms = self._clock.now_ms() + int(seconds * 1000)
        with self._database.writing() as connection:
            changed = connection.execute(
                "UPDATE messages SET visible_ms = ? WHERE queue = ? AND receipt = ?",
                (visible_ms, message.queue, message.receipt),
            )
            if not changed.rowcount:
                raise UnavailableError(f"a message of queue {message.queue!r} came again since")

    def give_back(self, messages: Sequence[Received]) -> None:
        """Let messages be seen at once, as if they had not been received."""
        now_ms = self._clock.now_ms()
        with self._database.writing() as connection:
            connection.executemany(
                "UPDATE messages SET visible_ms = ?, receives = receives - 1, receipt = '',"
                " process = '' WHERE queue = ? AND receipt = ?",
                [(now_ms, message.queue, message.receipt) for message in messages],
            )

    def bury(self, message: Received, reason: str) -> None:
        """Move a message that can never succeed to its dead-letter queue, with the reason."""
        now_ms = self._clock.now_ms()
        with self._database.writing() as connection:
            connection.execute(
                "UPDATE messages SET queue = ?, reason = ?, visible_ms = ?, receipt = '',"
                " process = '' WHERE queue = ? AND receipt = ?",
                (
                    dead_letter_queue(message.queue),
                    _cut(reason) or "unknown",
                    now_ms,
                    message.queue,
                    message.receipt,
                ),
            )

    def release_of_dead(self) -> int:
        """Let the messages be seen that processes received which died since; return how many."""
        now_ms = self._clock.now_ms()
        hidden = "process != '' AND visible_ms > ?"
        with self._database.reading() as connection:
            found = connection.execute(
                f"SELECT DISTINCT process FROM messages WHERE {hidden}", (now_ms,)
            ).fetchall()
        dead = [process for (process,) in found if not self._is_alive(process)]
        if not dead:
            return 0
        with self._database.writing() as connection:
            freed = connection.executemany(
                f"UPDATE messages SET visible_ms = ?, process = '' WHERE process = ? AND {hidden}",
                [(now_ms, process, now_ms) for process in dead],
            )
            return freed.rowcount

    def depths(self, queues: Sequence[str]) -> dict[str, int]:
        """Return how many messages of each queue are waiting or in flight, without delayed ones."""
        counts = self.counts(queues)
        return {queue: found.waiting + found.in_flight for queue, found in counts.items()}

    def counts(self, queues: Sequence[str]) -> dict[str, QueueCounts]:
        """Return how many messages of each queue are waiting, in flight and delayed."""
        now_ms = self._clock.now_ms()
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT queue, sum(visible_ms <= ?1), sum(visible_ms > ?1 AND receipt != ''),"
                " sum(visible_ms > ?1 AND receipt = '') FROM messages GROUP BY queue",
                (now_ms,),
            ).fetchall()
        found = {queue: QueueCounts(*counts) for queue, *counts in rows}
        return {queue: found.get(check(queue), QueueCounts(0, 0, 0)) for queue in queues}

    def ages(self, queues: Sequence[str], now_ms: int) -> dict[str, float]:
        """Return the age in seconds of the oldest message of each queue that has any."""
        with self._database.reading() as connection:
            rows = connection.execute(
                "SELECT queue, min(sent_ms) FROM messages WHERE visible_ms <= ? OR receipt != ''"
                " GROUP BY queue",
                (now_ms,),
            ).fetchall()
        return {queue: (now_ms - sent_ms) / 1000 for queue, sent_ms in rows if queue in queues}

    def next_due_ms(self) -> int | None:
        """Return when the next message can be seen; None if there is no message."""
        with self._database.reading() as connection:
            (due_ms,) = connection.execute(
                "SELECT min(visible_ms) FROM messages WHERE queue IN"
                f" ({', '.join('?' * len(QUEUES))})",
                QUEUES,
            ).fetchone()
        return None if due_ms is None else int(due_ms)

    def _put(self, messages: Sequence[OutboundMessage]) -> None:
        if not messages:
            return
        now_ms = self._clock.now_ms()
        rows = [
            (
                check(each.queue),
                encode(each.message),
                _cut(each.reason),
                now_ms,
                now_ms + each.delay_seconds * 1000,
            )
            for each in messages
        ]
        with self._database.writing() as connection:
            connection.executemany(_INSERT, rows)
        self._sent()


def insert_message(
    connection: sqlite3.Connection, queue: str, body: str, now_ms: int, *, reason: str = ""
) -> None:
    """Send the text of a message in a transaction that does more."""
    connection.execute(_INSERT, (check(queue), body, _cut(reason), now_ms, now_ms))


def check(queue: str) -> str:
    """Return the name of a queue.

    Raises:
        NotFoundError: there is no such queue.
    """
    if queue not in _KNOWN:
        raise NotFoundError(f"there is no queue {queue!r}", hint=f"there are {', '.join(QUEUES)}")
    return queue


def _cut(reason: str) -> str:
    """Return the reason of a dead letter: a part that every terminal and store accepts."""
    return _NO_TEXT.sub("\ufffd", reason[:MAX_REASON_CHARACTERS])
