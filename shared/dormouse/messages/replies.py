"""Replies to administrators, sent to the queue ``replies`` for requests that ask for one.

A request is ``accepted`` when the jobs that it causes are known, and ``finished`` or ``failed``
when all of them have ended. A request that causes no jobs is ``finished`` at once, and one that
cannot be done is ``refused``. The JSON schema in docs/messages is generated from this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from dormouse.messages.requests import AdminRequest, verb_of
from dormouse.messages.stages import Message, OutboundMessage
from dormouse.stored.names import REPLIES

MAX_JOBS_LISTED = 50
"""The most jobs that a reply lists."""
MAX_REASON_CHARACTERS, MAX_JOB_REASON_CHARACTERS = 10_000, 1000
Outcome = Literal["accepted", "finished", "failed", "refused"]
JobState = Literal["assigned", "refused", "failed", "unfinished"]


class Counts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a request caused, in numbers; zeros are left out.

    - `jobs`: how many it caused; each is `finished`, `failed` or `unfinished` at the time of the
      reply
    - `files`: files asked for, of which `known` were ingested before and `refused` cannot be
      ingested; of an export, the files written
    - `rows`: rows ingested, merged or exported; `removed`: rows purged
    - `shards`: shards merged, or deleted as garbage; `partitions`: partitions split
    - `size_bytes`: size of the exported files or of the deleted garbage
    - `messages`: dead letters redriven
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
    """A job, or a file of a job, in a reply. `id` is the job's id among the table's jobs, or the
    file's key.

    `state` is ``assigned`` when the request is accepted. At the end it is ``refused``, ``failed``,
    or ``unfinished``: not done at the time of the reply, though it may still be, as `reason` says.
    """

    kind: str
    id: str
    state: JobState = "assigned"
    reason: str = ""


class Reply(Message, frozen=True, kw_only=True, tag="reply"):
    """What happened to a request: ``accepted`` first if it causes jobs, then ``finished``, or
    ``failed`` if anything was not done; or ``refused``.

    A reply may be delivered more than once, with the same `id`. `jobs` lists the jobs caused, in an
    ``accepted`` reply, or those not done, in a ``failed`` one; `more` counts those left out of a
    long list.
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
    is_last_attempt: bool = False,
) -> Reply:
    """Return a reply; long lists and reasons are truncated."""
    meaning = "last attempt" if is_last_attempt else outcome != "accepted"
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
    """Return a reply as a message to the queue of replies."""
    return OutboundMessage(REPLIES, reply)


def refusal(request: AdminRequest, reason: str) -> list[OutboundMessage]:
    """Return the reply to a refused request, if the request asks for a reply."""
    if not request.reply:
        return []
    return [to_outbound(reply_to(request.request_id, verb_of(request), "refused", reason=reason))]
