"""Dead letters: shown with what is known of their end, sent back to their queue, or discarded.

Order: what a letter says is sent first, then the letter is deleted. One that could not be deleted
is remembered as sent, so that sending back again only deletes it. A process that dies in between
leaves a few that are sent twice, which every stage bears.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dormouse.errors import NotFoundError
from dormouse.ports import NO_TABLE, DeadLetter, JobRecord, Services
from dormouse.stored.names import QUEUES, dead_letter_queue
from dormouse.tables.table import can_be_name

MOST_AT_ONCE = 10_000
"""So many letters a call takes at most: it must be done with them before others see them again."""
SENT_AT_ONCE = 10
LEAVES_LOOKED_AT = 50
"""As many as a message about splits has; one that was made up may have any number."""
KIND = "redrive"


@dataclass(frozen=True, slots=True)
class Redriven:
    """What became of the letters of a queue, by id: each is in one of these.

    `sent` are in the queue again and deleted; `undeleted` are in the queue again, and still among
    the dead letters too, remembered as sent; `unsent` are dead letters as before.
    """

    sent: tuple[str, ...] = ()
    undeleted: tuple[str, ...] = ()
    unsent: tuple[str, ...] = ()


def queue_named(name: str) -> str:
    """Return the queue which is meant: by its own name or that of its dead-letter queue.

    Raises:
        NotFoundError: there is none.
    """
    queue = name.removesuffix(dead_letter_queue(""))
    if queue not in QUEUES:
        raise NotFoundError(f"there is no queue {name!r}", hint=f"there are {', '.join(QUEUES)}")
    return queue


def look(services: Services, queue: str, most: int = MOST_AT_ONCE) -> list[DeadLetter]:
    """Return dead letters of a queue, the oldest first, and leave them there.

    The reason of one that failed again and again is that of the job it is about, where the tracker
    has it. While they are looked at, for an instant, nobody else sees them.
    """
    taken = services.dead_letters.receive(queue, most)
    services.dead_letters.release(queue, taken)
    explained = [replace(each, reason=_reason(services, each)) for each in taken]
    return sorted(explained, key=lambda letter: (letter.sent_ms, letter.id))


def redrive(services: Services, queue: str, ids: Collection[str] = ()) -> Redriven:
    """Send letters back to their queue, those of `ids` or all there are, and delete them.

    Raises:
        NotFoundError: there is no letter of some id; then nothing was sent.
        UnavailableError: the queues do not answer; letters that were not deleted are there still.
    """
    letters = _take(services, queue, ids)
    result, left = Redriven(), list(letters)
    try:
        for start in range(0, len(letters), SENT_AT_ONCE):
            some = letters[start : start + SENT_AT_ONCE]
            done = _redrive_some(services, queue, some)
            result = Redriven(
                result.sent + done.sent,
                result.undeleted + done.undeleted,
                result.unsent + done.unsent,
            )
            left = [letter for letter in left if letter.id not in done.sent]
    finally:
        services.dead_letters.release(queue, left)
    return result


def discard(services: Services, queue: str, ids: Collection[str] = ()) -> Redriven:
    """Delete letters for good, those of `ids` or all there are; give which were, and which not.

    Raises:
        NotFoundError: there is no letter of some id; then nothing was deleted.
        UnavailableError: the queues do not answer; what was not deleted yet is there still.
    """
    letters = _take(services, queue, ids)
    left = list(letters)
    try:
        left = services.dead_letters.delete(queue, letters)
    finally:
        services.dead_letters.release(queue, left)
    kept = {letter.id for letter in left}
    gone = tuple(letter.id for letter in letters if letter.id not in kept)
    return Redriven(sent=gone, unsent=tuple(sorted(kept)))


def _take(services: Services, queue: str, ids: Collection[str]) -> list[DeadLetter]:
    """Take the letters that are meant; the others are given back at once."""
    taken = services.dead_letters.receive(queue, MOST_AT_ONCE)
    if not ids:
        return taken
    meant = [letter for letter in taken if letter.id in ids]
    missing = sorted({*ids} - {letter.id for letter in meant})
    if missing:
        services.dead_letters.release(queue, taken)
        raise NotFoundError(
            f"there is no dead letter {', '.join(missing)} of queue {queue!r}",
            hint="list them; somebody else may have them in hand just now",
        )
    services.dead_letters.release(queue, [each for each in taken if each.id not in ids])
    return meant


def _redrive_some(services: Services, queue: str, letters: Sequence[DeadLetter]) -> Redriven:
    before = [letter for letter in letters if _was_sent(services, letter)]
    fresh = [letter for letter in letters if letter not in before]
    landed = before + services.dead_letters.redrive(queue, fresh)
    undeleted = list(landed)
    try:
        undeleted = services.dead_letters.delete(queue, landed)
    finally:  # whatever keeps them from being deleted, they must not be sent again
        for letter in undeleted:
            _remember_sent(services, queue, letter)
    left = {letter.id for letter in undeleted}
    unsent = {letter.id for letter in letters} - {letter.id for letter in landed}
    return Redriven(
        tuple(letter.id for letter in landed if letter.id not in left),
        tuple(sorted(left)),
        tuple(sorted(unsent)),
    )


def _was_sent(services: Services, letter: DeadLetter) -> bool:
    return services.tracker.get(NO_TABLE, f"{KIND}-{letter.id}") is not None


def _remember_sent(services: Services, queue: str, letter: DeadLetter) -> None:
    services.tracker.record(
        JobRecord(
            NO_TABLE,
            f"{KIND}-{letter.id}",
            KIND,
            "finished",
            subject=queue,
            reason="sent back, but still among the dead letters",
            updated_ms=services.clock.now_ms(),
        )
    )


def _reason(services: Services, letter: DeadLetter) -> str:
    if letter.reason:
        return letter.reason
    job = _job_of(services, letter.body)
    if job is None:
        return "it was given up after several tries; the function's log says why"
    if job.reason:
        return job.reason
    if job.state == "running":
        return "its runs ended without a word: out of time or memory; see the function's log"
    return f"it was given up, but its job is {job.state}"


def _job_of(services: Services, body: str) -> JobRecord | None:
    """Return the record of the job that a message is about, if it is about one."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    match message:
        case (
            {"table_id": str(table_id), "job_id": str(job_id)}
            | {"table_id": str(table_id), "purge_id": str(job_id)}
            | {"table_id": str(table_id), "export_id": str(job_id)}
        ):
            return services.tracker.get(table_id, job_id)
        case {"table_id": str(table_id), "partitions": [*partitions]}:
            splits = (
                services.tracker.get(table_id, f"split-{each}")
                for each in partitions[:LEAVES_LOOKED_AT]
            )
            return next((job for job in splits if job and job.state == "failed"), None)
        case {"table_id": str(table_id), "request_id": str(request_id)}:
            return services.tracker.get(table_id, request_id)
        case {"request_id": str(request_id), "name": str(name)}:
            table = services.tables.named(name) if can_be_name(name) else None
            told = services.tracker.get(table.id, request_id) if table is not None else None
            return told or services.tracker.get(NO_TABLE, request_id)
        case {"request_id": str(request_id)}:
            return services.tracker.get(NO_TABLE, request_id)
    return None
