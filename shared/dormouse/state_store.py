"""The state store as its callers see it: read a version, commit transactions, learn the outcome."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from dormouse.errors import InvalidRequestError
from dormouse.fold.rules import Violation
from dormouse.model.state import TableState
from dormouse.model.transactions import Transaction

REBUILD = "`dormouse rebuild NAME` makes the state of the table anew from its shards"
"""What to do about a state that is damaged or lost."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction is part of the table from `version` on."""

    version: int


@dataclass(frozen=True, slots=True)
class AlreadyCommitted:
    """The same transaction landed before, by this writer or another; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The transaction broke rules at its place in the order; nothing was changed."""

    violations: tuple[Violation, ...]

    def __str__(self) -> str:
        """Return the reasons as one line."""
        return "; ".join(str(v) for v in self.violations)


Outcome = Committed | AlreadyCommitted | Rejected


@dataclass(frozen=True, slots=True)
class CommitReport:
    """What one delta cost that landed, or that was refused whole before it was written.

    `attempts` counts the updates of the log, `size_bytes` the bytes stored over all of them;
    `transactions` are those of all threads that travelled in it, `rejected` those that broke rules.
    """

    version: int
    attempts: int
    size_bytes: int
    milliseconds: int
    transactions: int
    rejected: int


class RejectedError(InvalidRequestError):
    """A commit that had to hold was rejected. `violations` name each rule and what broke it."""

    def __init__(self, rejected: Rejected) -> None:
        """Say what was broken, for a caller that has no other way on."""
        super().__init__(f"the commit was rejected: {rejected}")
        self.violations = rejected.violations


def accepted(outcome: Outcome) -> Committed | AlreadyCommitted:
    """Return an outcome that is no rejection.

    Raises:
        RejectedError: it is one; nothing was changed.
    """
    if isinstance(outcome, Rejected):
        raise RejectedError(outcome)
    return outcome


class StateStore(Protocol):
    """One table's state. Many processes may hold a store of one table at once.

    Once the state was terminated or destroyed, all but those two raise NotFoundError.
    """

    def current(self) -> TableState:
        """Return the newest version: at least every commit that ended before the call began."""

    def at(self, *, version: int | None = None, time_ms: int | None = None) -> TableState:
        """Return a version, or the one that was current at a time, as long as it is kept.

        Raises:
            NotFoundError: it is not kept any more, or is yet to come.
            InvalidRequestError: neither or both are given.
        """

    def commit(self, *transactions: Transaction, generation: int) -> tuple[Outcome, ...]:
        """Commit transactions in one delta, each for itself, and give the outcome of each.

        Raises:
            InvalidRequestError: one of them can hold in no state of the table; nothing was written.
            ContendedError: all attempts lost; nothing was committed.
            UnavailableError: nothing was committed.
            OutcomeUnknownError: they may have been committed. Commit the same again to find out.
        """

    def maintain(self) -> None:
        """Do what keeps reads cheap, such as a snapshot, if it is due. Any number may at once."""

    def log_length(self) -> int:
        """Count the versions since the newest snapshot: what a new process has to fold."""

    def reopen(self) -> None:
        """Drop what is kept in memory: the next look reads what is stored."""

    def terminate(self) -> None:
        """End the state for everybody: nobody can commit or read any more, for good.

        Used before a state is made from the shards, so that no commit lands that would be missed.
        """

    def destroy(self) -> None:
        """Delete the state of the table. Repeatable; used only when the table itself is deleted."""

    def delete_late(self) -> None:
        """Delete what commits put that were under way while the state was destroyed. Repeatable.

        Raises:
            InvariantError: the state was not destroyed; nothing was deleted.
        """
