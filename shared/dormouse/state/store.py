"""What a state store returns: outcomes and reports of commits, and records of versions."""

from dataclasses import dataclass

from dormouse.errors import InvalidRequestError
from dormouse.state.partitions import Shard
from dormouse.state.rules import Violation
from dormouse.state.state import Deletion

REBUILD = "`dormouse rebuild NAME` rebuilds the state of the table from its shards"
"""What to do about a state that is damaged or lost."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction is part of the table from `version` on."""

    version: int


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """This or another writer committed the same transaction before; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The transaction broke rules at its position in the log; nothing was changed."""

    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        return "; ".join(str(v) for v in self.violations)


Outcome = Committed | AlreadyCommitted | Rejected


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What it cost to commit one delta, or to refuse it as a whole before it was written.

    `attempts` counts the updates of the log, `size_bytes` the bytes stored in all attempts.
    `transactions` counts those of all threads that shared the delta, `rejected` broke rules.
    """

    version: int
    attempts: int
    size_bytes: int
    milliseconds: int
    transactions: int
    rejected: int


class RejectedError(InvalidRequestError):
    """A commit that was required to succeed was rejected; `violations` say why."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(f"the commit was rejected: {rejected}")
        self.violations = rejected.violations


def accepted(outcome: Outcome) -> Committed | AlreadyCommitted:
    """Return an outcome other than a rejection. Raises RejectedError: nothing was changed."""
    if isinstance(outcome, Rejected):
        raise RejectedError(outcome)
    return outcome


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A kept version: when it was made, by which changes and jobs, and how many rows it has.

    `changes` has the kind of each accepted transaction, and is empty if none was accepted. `added`
    are the shards that ingests added; a compaction adds none. `deleted` are the deletions.
    """

    version: int
    time_ms: int
    changes: tuple[str, ...]
    jobs: tuple[str, ...]
    rows: int
    added: tuple[Shard, ...] = ()
    deleted: tuple[Deletion, ...] = ()
