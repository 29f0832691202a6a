"""The port of Spark: runs that are started, and looked at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from dormouse.model.jobs.spark_threshold import ClusterSize


@dataclass(frozen=True, slots=True)
class SparkRun:
    """One attempt at a job, to be started. `token` makes starting it idempotent.

    `package` is the version of the Spark package, in the data bucket, to run with.
    """

    table_id: str
    job_id: str
    kind: str
    generation: int
    attempt: int
    token: str
    size: ClusterSize
    package: str


@dataclass(frozen=True, slots=True)
class SparkRunState:
    """The state of a run; `reason` is what Spark says about it, if anything.

    `outcome` is ``succeeded`` or ``failed``, and empty while the run waits or runs.
    """

    table_id: str
    job_id: str
    attempt: int
    outcome: str
    reason: str = ""


class Spark(Protocol):
    """Runs Spark jobs."""

    @property
    def package(self) -> Path | None:
        """The folder of the Spark package that was deployed with this process; None if runs use
        the library of this process.
        """

    def start(self, run: SparkRun) -> str:
        """Start a run, unless it was started before; return its id.

        Raises:
            UnavailableError: it cannot be started now.
            OutcomeUnknownError: it may have been started; starting it again with the same token
                tells.
            InvalidRequestError: it can never be started as it is.
        """

    def describe(self, run_id: str) -> SparkRunState | None:
        """Return the state of a run; None if there is none, or if it is not a run of such a job.

        Raises:
            UnavailableError: Spark does not answer.
        """
