"""The work that a request causes: its stored form, its messages, and its outcomes.

Each feature has its own kind of work, in its `request` module. The stored form only names the jobs;
their outcomes are read from the table's state and the tracker. So it is put once, never changes,
and is correct however late a message is delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from dormouse.features.requests.outcomes import JobCheck, JobOutcome
from dormouse.messages.replies import Counts, ReplyJob
from dormouse.messages.stages import OutboundMessage
from dormouse.ports.services import Services
from dormouse.tables.table import Table


class Work(Protocol):
    """What a kind of work can do."""

    @property
    def kind(self) -> str:
        """The kind of its jobs, in the tracker and in replies."""

    @property
    def job_ids(self) -> list[str]:
        """The ids of its jobs, under which the tracker shows them."""

    def unfinished_messages(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the messages of the unfinished jobs, since those sent first may be lost."""

    def outcomes(self, check: JobCheck) -> Iterator[JobOutcome]:
        """Yield the outcome of each job; those that the state shows as pending come first."""

    def extra_wait_ms(self, table: Table) -> int:
        """Return how many more milliseconds than other work this may take."""


class StoredWork(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """The base of the stored forms of work, whose tag is the kind; each of them is a `Work`."""

    @property
    def kind(self) -> str:
        """The kind of the jobs, in the tracker and in replies."""
        return str(type(self).__struct_config__.tag)

    def extra_wait_ms(self, table: Table) -> int:
        """Return 0: most work takes no longer than other work."""
        return 0


def reply_jobs(work: Work) -> list[ReplyJob]:
    """Return the jobs of a request as a reply lists them."""
    return [ReplyJob(work.kind, job_id) for job_id in work.job_ids]


@dataclass(frozen=True, slots=True)
class RequestResult:
    """The result of carrying out a request: messages to send, and the `work` to wait for, if any.

    `counts` are those that are known at once.
    """

    messages: list[OutboundMessage] = field(default_factory=list)
    work: Work | None = None
    counts: Counts = Counts()
