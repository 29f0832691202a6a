"""The work that a request causes: what is stored of it, its messages, and how it ends.

Each feature has a kind of its own, in its `request` module. What is stored names what is to be
looked at, and never says how that goes: the state of the table does, and the tracker. So it is put
once, and however late a message comes, it is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from dormouse.features.requests.ends import End, Look
from dormouse.messages import OutboundMessage
from dormouse.ports import Services
from dormouse.replies import Counts, ReplyJob
from dormouse.tables.table import Table


class Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """The root of all kinds of work; its tag is what the tracker calls such jobs."""

    @property
    def kind(self) -> str:
        """What the tracker, and so a reply, calls the jobs."""
        return str(type(self).__struct_config__.tag)

    @property
    def jobs(self) -> list[ReplyJob]:
        """The jobs as a reply names them."""
        return [ReplyJob(self.kind, job_id) for job_id in self.job_ids]

    @property
    def job_ids(self) -> list[str]:
        """The ids of the jobs, under which the tracker shows them."""
        raise NotImplementedError

    def messages_again(self, services: Services, table: Table) -> list[OutboundMessage]:
        """Return the messages of what is left of the work: those of its beginning may be lost."""
        raise NotImplementedError

    def ends(self, look: Look) -> Iterator[End]:
        """Return how each job stands, those first of which the state says that they are pending."""
        raise NotImplementedError

    def extra_patience_ms(self, table: Table) -> int:
        """Return how much longer than other work this may take, in milliseconds."""
        return 0


@dataclass(frozen=True, slots=True)
class Begun:
    """What a request has begun: messages to send, and the `work` to wait for, if there is any.

    `counts` are what is known when it begins.
    """

    messages: list[OutboundMessage] = field(default_factory=list)
    work: Work | None = None
    counts: Counts = Counts()
