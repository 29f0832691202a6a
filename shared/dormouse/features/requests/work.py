"""The work that a request causes: its stored form, its messages, and its outcome.

Each feature has its own kind of work, in its `request` module. The stored form only names the jobs;
their outcome is read from the table's state and the tracker. So it is put once, never changes, and
is correct however late a message is delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from dormouse.features.requests.outcomes import End, Look
from dormouse.messages import OutboundMessage
from dormouse.ports import Services
from dormouse.replies import Counts, ReplyJob
from dormouse.tables.table import Table


class Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """The base class of all kinds of work; its tag is the kind of its jobs in the tracker."""

    @property
    def kind(self) -> str:
        """The kind of the jobs, in the tracker and in replies."""
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
        """Return the messages of the unfinished work, since the first ones may be lost."""
        raise NotImplementedError

    def ends(self, look: Look) -> Iterator[End]:
        """Yield the outcome of each job; those that the state shows as pending come first."""
        raise NotImplementedError

    def extra_patience_ms(self, table: Table) -> int:
        """Return how many more milliseconds than other work this may take."""
        return 0


@dataclass(frozen=True, slots=True)
class Begun:
    """What a request has begun: messages to send, and the `work` to wait for, if any.

    `counts` are the counts that are known at the beginning.
    """

    messages: list[OutboundMessage] = field(default_factory=list)
    work: Work | None = None
    counts: Counts = Counts()
