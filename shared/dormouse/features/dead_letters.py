"""Dead letters: list them with the reason of their failure, redrive them, or discard them.

Order: a redrive sends the message first, then deletes the dead letter. If the deletion fails, the
tracker records that the message was sent, so that another redrive only deletes it. A crash in
between means that a few messages are sent twice, which every stage tolerates.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dormouse.errors import NotFoundError, UnavailableError, did_you_mean
from dormouse.features.requests import RequestResult
from dormouse.jobs import grouped
from dormouse.messages.requests import Counts, Redrive
from dormouse.messages.stages import QUEUES
from dormouse.ports import NO_TABLE, DeadLetter, Services
from dormouse.state.jobs import Finished, JobRecord, TrackedRequest
from dormouse.stored.paths import dead_letter_queue, split_job_id
from dormouse.tables.table import can_be_name

MAX_LETTERS = 10_000
"""The most dead letters of one call: it must finish before they become visible to others again."""
BATCH_LETTERS = 10
MAX_SPLITS_CHECKED = 50
"""The most partitions in a message about splits; a forged message may have any number."""
KIND = "redrive"


@dataclass(frozen=True, slots=True)
class Redriven:
    """The result of a redrive: the ids of the dead letters, each in one of three groups.

    `sent` are in their queue again and deleted; `undeleted` are in their queue again but still dead
    letters too, recorded as sent; `unsent` are dead letters as before.
    """

    sent: tuple[str, ...] = ()
    undeleted: tuple[str, ...] = ()
    unsent: tuple[str, ...] = ()


def resolve_queue(name: str) -> str:
    """Return the queue with a name, which may be that of its dead-letter queue.
    Raises NotFoundError: there is no such queue.
    """
    queue = name.removesuffix(dead_letter_queue(""))
    if queue not in QUEUES:
        hint = f"there are {', '.join(QUEUES)}"
        raise NotFoundError(f"there is no queue {name!r}", hint=did_you_mean(name, QUEUES, hint))
    return queue


def list_letters(services: Services, queue: str, most: int = MAX_LETTERS) -> list[DeadLetter]:
    """Return dead letters of a queue, the oldest first, and leave them there.

    A dead letter without a reason of its own gets the reason of its job's record, if there is one.
    While this call reads them, they are invisible to others for an instant.
    """
    letters = services.dead_letters.receive(queue, most)
    services.dead_letters.release(queue, letters)
    explained = [replace(each, reason=_reason(services, each)) for each in letters]
    return sorted(explained, key=lambda letter: (letter.sent_ms, letter.id))


def redrive(services: Services, queue: str, ids: Collection[str] = ()) -> Redriven:
    """Send dead letters back to their queue and delete them: those of `ids`, or all.

    Raises:
        NotFoundError: there is no dead letter with some id; nothing was sent.
        UnavailableError: the queues do not answer; dead letters that were not deleted remain.
    """
    letters = _receive(services, queue, ids)
    result = Redriven()
    try:
        for some in grouped(letters, BATCH_LETTERS):
            outcome = _redrive_some(services, queue, some)
            result = Redriven(
                result.sent + outcome.sent,
                result.undeleted + outcome.undeleted,
                result.unsent + outcome.unsent,
            )
    finally:
        deleted = {*result.sent}
        rest = [letter for letter in letters if letter.id not in deleted]
        services.dead_letters.release(queue, rest)
    return result


def discard(services: Services, queue: str, ids: Collection[str] = ()) -> Redriven:
    """Delete dead letters for good, those of `ids` or all; return which were deleted and which not.

    Raises:
        NotFoundError: there is no dead letter with some id; nothing was deleted.
        UnavailableError: the queues do not answer; dead letters that were not deleted remain.
    """
    letters = _receive(services, queue, ids)
    rest = list(letters)
    try:
        rest = services.dead_letters.delete(queue, letters)
    finally:
        services.dead_letters.release(queue, rest)
    rest_ids = {letter.id for letter in rest}
    gone = tuple(letter.id for letter in letters if letter.id not in rest_ids)
    return Redriven(sent=gone, unsent=tuple(sorted(rest_ids)))


def _receive(services: Services, queue: str, ids: Collection[str]) -> list[DeadLetter]:
    """Receive the dead letters with `ids`, or all; the others are made visible again at once."""
    letters = services.dead_letters.receive(queue, MAX_LETTERS)
    if not ids:
        return letters
    meant = [letter for letter in letters if letter.id in ids]
    missing = sorted({*ids} - {letter.id for letter in meant})
    if missing:
        services.dead_letters.release(queue, letters)
        raise NotFoundError(
            f"there is no dead letter {', '.join(missing)} of queue {queue!r}",
            hint="list them; another process may have received them just now",
        )
    services.dead_letters.release(queue, [each for each in letters if each.id not in ids])
    return meant


def _redrive_some(services: Services, queue: str, letters: Sequence[DeadLetter]) -> Redriven:
    get = services.tracker.get
    before = [letter for letter in letters if get(NO_TABLE, f"{KIND}-{letter.id}") is not None]
    fresh = [letter for letter in letters if letter not in before]
    landed = before + services.dead_letters.redrive(queue, fresh)
    undeleted = list(landed)
    try:
        undeleted = services.dead_letters.delete(queue, landed)
    finally:  # even if the deletion fails, they must not be sent again
        event = Finished("sent back, but still among the dead letters", subject=queue)
        for letter in undeleted:
            sent = TrackedRequest(NO_TABLE, f"{KIND}-{letter.id}", KIND)
            services.tracker.record(sent, event, services.clock.now_ms())
    rest_ids = {letter.id for letter in undeleted}
    unsent = {letter.id for letter in letters} - {letter.id for letter in landed}
    return Redriven(
        tuple(letter.id for letter in landed if letter.id not in rest_ids),
        tuple(sorted(rest_ids)),
        tuple(sorted(unsent)),
    )


def _reason(services: Services, letter: DeadLetter) -> str:
    if letter.reason:
        return letter.reason
    job = _job_of(services, letter.body)
    if job is None:
        return "it failed, or its process died, at each delivery; see the log of what ran it"
    if job.reason:
        return job.reason
    if job.state == "running":
        return "its runs crashed: killed, or out of time or memory; see the log of what ran it"
    return f"it failed at each delivery, but its job is {job.state}"


def _job_of(services: Services, body: str) -> JobRecord | None:
    """Return the record of the job that a message is about, if any."""
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
                services.tracker.get(table_id, split_job_id(each))
                for each in partitions[:MAX_SPLITS_CHECKED]
            )
            return next((job for job in splits if job and job.state == "failed"), None)
        case {"table_id": str(table_id), "request_id": str(request_id)}:
            return services.tracker.get(table_id, request_id)
        case {"request_id": str(request_id), "name": str(name)}:
            table = services.tables.named(name) if can_be_name(name) else None
            record = services.tracker.get(table.id, request_id) if table is not None else None
            return record or services.tracker.get(NO_TABLE, request_id)
        case {"request_id": str(request_id)}:
            return services.tracker.get(NO_TABLE, request_id)
    return None


def redrive_dead_letters(services: Services, request: Redrive) -> RequestResult:
    """Redrive the requested dead letters, and return their number.

    Raises:
        NotFoundError: there is no such queue, or no such dead letter.
        UnavailableError: some could not be sent or deleted; retry the request.
    """
    outcome = redrive(services, resolve_queue(request.queue), request.ids)
    if rest := len(outcome.unsent) + len(outcome.undeleted):
        raise UnavailableError(f"{rest} dead letters of queue {request.queue!r} are still there")
    return RequestResult(counts=Counts(messages=len(outcome.sent)))
