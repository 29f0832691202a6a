"""The dead-letter queues: `ports.DeadLetters`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dormouse.folder.queues import THIS, check, insert_message
from dormouse.folder.sqlite.database import Database
from dormouse.ports.services import Clock, DeadLetter
from dormouse.stored.names import dead_letter_queue

TAKEN_SECONDS = 300
"""How long others do not see a dead letter that was received."""


class SqliteDeadLetters:
    """The dead letters of an instance; safe for many threads and processes."""

    def __init__(
        self, database: Database, clock: Clock, sent: Callable[[], None] = lambda: None
    ) -> None:
        """Use `database`; `sent` is called after messages were sent."""
        self._database, self._clock, self._sent = database, clock, sent

    def receive(self, queue: str, most: int) -> list[DeadLetter]:
        """Receive dead letters; others do not see them for some minutes, unless they are
        released.
        """
        dead, now_ms = check(dead_letter_queue(queue)), self._clock.now_ms()
        letters: list[DeadLetter] = []
        with self._database.writing() as connection:
            found = connection.execute(
                "SELECT number, body, reason, receives, sent_ms FROM messages"
                " WHERE queue = ? AND visible_ms <= ? ORDER BY visible_ms, number LIMIT ?",
                (dead, now_ms, most),
            ).fetchall()
            for number, body, reason, receives, sent_ms in found:
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
