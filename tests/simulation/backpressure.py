"""How many compactions may be assigned at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from dormouse.state.state import TableState


@dataclass(frozen=True, slots=True)
class Turn:
    """A step in which a process had its turn, and the step at which it began what it does."""

    process: str = ""
    begun: int = 0
    step: int = 0


@dataclass
class Compactions:
    """The assigned compactions of one table, save those of purges, and who assigned which.

    `assigned` has the step and the process of each there ever was.
    """

    jobs: set[str] = field(default_factory=set)
    assigned: list[tuple[int, str]] = field(default_factory=list)

    def beyond_limit(self, state: TableState, limit: int, turn: Turn) -> str:
        """Return what is wrong with a version that came to be in a turn; nothing, if nothing is.

        Who assigns has looked since it began how many there are, and keeps to the limit with them.
        What others have assigned since it began it need not have seen.
        """
        jobs = {job.id for job in state.jobs.values() if job.purge_id is None}
        new, self.jobs = jobs - self.jobs, jobs
        self.assigned += [(turn.step, turn.process)] * len(new)
        raced = sum(
            step >= turn.begun and process != turn.process for step, process in self.assigned
        )
        if not new or len(jobs) <= limit + raced:
            return ""
        return f"{len(jobs)} compactions are assigned, though {limit} are the most"
