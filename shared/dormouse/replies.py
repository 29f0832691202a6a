"""What those are told who asked for a reply: messages on the queue ``replies``.

A request is ``accepted`` when the jobs that it causes are known, and ``finished`` or ``failed``
when all of them have ended. One that causes none is ``finished`` at once, one that cannot be done
is ``refused``. docs/messages has the JSON schema, made from this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from dormouse.messages import Message, OutboundMessage
from dormouse.requests import AdminRequest, verb_of
from dormouse.stored.names import REPLIES

MAX_JOBS_LISTED = 50
"""So many jobs a reply names at most."""
MAX_REASON_CHARACTERS, MAX_JOB_REASON_CHARACTERS = 10_000, 1000
Outcome = Literal["accepted", "finished", "failed", "refused"]
JobState = Literal["assigned", "refused", "failed", "unfinished"]


class Counts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a request caused, in numbers; those that are 0 are left out.

    `jobs` is how many it caused; each of them `finished`, `failed`, or was `unfinished` when the
    reply was made. `files` were asked for, of which `known` were ingested before and `refused` are
    no good; of an export, files that were written. `rows` came out: ingested, merged or exported;
    `removed` were purged. `shards` were merged, or deleted as garbage; `partitions` were split.
    `size_bytes` are those of files exported or of garbage deleted. `messages` were sent back.
    """

    jobs: int = 0
    finished: int = 0
    failed: int = 0
    unfinished: int = 0
    files: int = 0
    known: int = 0
    refused: int = 0
    rows: int = 0
    removed: int = 0
    shards: int = 0
    partitions: int = 0
    size_bytes: int = 0
    messages: int = 0

    def __add__(self, other: Counts) -> Counts:
        """Return the sums."""
        return Counts(*(getattr(self, n) + getattr(other, n) for n in self.__struct_fields__))


class ReplyJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job, or a file of one, as a reply names it: `id` is that under which the table's jobs show
    it, or the key of a file. `state` is ``assigned`` when the request is accepted; at the end
    ``refused``, ``failed``, or ``unfinished``: then it was not done when the reply was made, and
    may still be, as `reason` says.
    """

    kind: str
    id: str
    state: JobState = "assigned"
    reason: str = ""


class Reply(Message, frozen=True, kw_only=True, tag="reply"):
    """What became of a request: ``accepted`` first if it causes jobs, then ``finished``, or
    ``failed`` if anything of it was not done; or ``refused``. Each may come more than once: then it
    has the same `id`. `jobs` are those caused, when it is accepted, and those that were not done,
    when it has failed; `more` counts those left out of a long list.
    """

    id: str
    request_id: str
    request: str
    outcome: Outcome
    table_id: str = ""
    reason: str = ""
    counts: Counts = Counts()
    jobs: tuple[ReplyJob, ...] = ()
    more: int = 0
    v: Literal[2] = 2


def reply_to(
    request_id: str,
    verb: str,
    outcome: Outcome,
    *,
    table_id: str = "",
    reason: str = "",
    counts: Counts | None = None,
    jobs: Sequence[ReplyJob] = (),
    is_given_up: bool = False,
) -> Reply:
    """Return a reply; long lists and reasons are cut.

    One that `is_given_up` may be followed by another last reply, so it has an id of its own.
    """
    meaning = "given up" if is_given_up else outcome != "accepted"
    text = f"{request_id}\n{verb}\n{table_id}\n{meaning}"
    return Reply(
        id=blake2b(text.encode(errors="surrogatepass"), digest_size=16).hexdigest(),
        request_id=request_id,
        request=verb,
        outcome=outcome,
        table_id=table_id,
        reason=reason[:MAX_REASON_CHARACTERS],
        counts=counts or Counts(),
        jobs=tuple(
            msgspec.structs.replace(job, reason=job.reason[:MAX_JOB_REASON_CHARACTERS])
            for job in jobs[:MAX_JOBS_LISTED]
        ),
        more=max(0, len(jobs) - MAX_JOBS_LISTED),
    )


def to_outbound(reply: Reply) -> OutboundMessage:
    """Return a reply as a message to the one queue that replies go to."""
    return OutboundMessage(REPLIES, reply)


def refusal(request: AdminRequest, reason: str) -> list[OutboundMessage]:
    """Return the reply to a request that is refused, if one was asked for."""
    if not request.reply:
        return []
    return [to_outbound(reply_to(request.request_id, verb_of(request), "refused", reason=reason))]
