"""The interface of a state store: read a version, commit transactions, get their outcome."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from dormouse.errors import InvalidRequestError
from dormouse.keys import KeyRange
from dormouse.state.partitions import Shard
from dormouse.state.rules import Violation
from dormouse.state.state import Deletion, TableState, Transaction
from dormouse.state.versions import Pin, PinOwner

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


class VersionPins(Protocol):
    """The pins of one table. Every method may raise UnavailableError or OutcomeUnknownError."""

    def add(self, owner: PinOwner, state: TableState, *, expires_ms: int | None = None) -> Pin:
        """Pin the version of `state`, and return the pin once the version is known to be whole.

        An owner that has a pin keeps it, and it is returned, whatever its version.

        Raises:
            NotFoundError: shards of that version are deleted, or may be at any moment.
            ContendedError: it took too long; nothing is pinned.
        """

    def remove(self, owner: PinOwner) -> bool:
        """Delete the pin of an owner; return whether there was one."""

    def all(self, *, expired: bool = False) -> list[Pin]:
        """Return confirmed pins by owner; with `expired`, old ones too. Raises CorruptDataError."""

    def state(self, pin: Pin) -> TableState:
        """Return the pinned version.

        Raises:
            NotFoundError: the pin was removed.
            CorruptDataError: its snapshot is lost or damaged.
        """

    def states(self) -> Iterator[TableState]:
        """Yield every pinned version, of pins that are not confirmed too."""

    def held(self) -> Iterator[tuple[Pin, TableState]]:
        """Yield every pinned version with its pin, also if that is not confirmed or has expired."""

    def remove_expired(self) -> None:
        """Delete the pins that have expired."""


class StateStore(Protocol):
    """The state of one table. Many processes may have a store of the same table at once.

    Once the state is terminated or destroyed, every other method raises NotFoundError.
    """

    @property
    def pins(self) -> VersionPins:
        """The pinned versions."""

    def history(self) -> list[VersionRecord]:
        """Return the versions that are kept without a pin, the oldest first."""

    def current(self) -> TableState:
        """Return the newest version: it includes every commit that ended before this call began."""

    def is_newest(self, version: int) -> bool:
        """Return whether no commit followed a version: one read, and no state is loaded."""

    def part(self, ranges: Callable[[], Sequence[KeyRange]]) -> TableState:
        """Return the newest version as `current` does, or of it what readers of these ranges of
        keys need: its `partitions_to_read` and `shards`, without a tree, jobs and totals.

        `ranges` are asked for only where it makes a difference.
        """

    def at(self, *, version: int | None = None, time_ms: int | None = None) -> TableState:
        """Return a version, or the version that was current at a time, as long as it is kept.

        Raises:
            NotFoundError: it is no longer kept, or lies in the future.
            InvalidRequestError: neither or both arguments are given.
        """

    def commit(self, *transactions: Transaction, generation: int) -> tuple[Outcome, ...]:
        """Commit transactions in one delta, each judged by itself, and return the outcome of each.

        Raises:
            InvalidRequestError: a transaction is invalid in every state of the table; nothing was
                written.
            ContendedError: all attempts lost; nothing was committed.
            UnavailableError: nothing was committed.
            OutcomeUnknownError: they may have been committed. Commit the same ones again to find
                out.
        """

    def restore(self, earlier: TableState, *, generation: int) -> Outcome:
        """Begin a generation of the table with the partitions, rows and sources of an earlier
        version, which stays pinned until then; return the outcome.

        Jobs of that version are released. Repeatable: a generation begins once.

        Raises: as `commit`.
        """

    def begin(self, state: TableState) -> None:
        """Begin with a state instead of an empty one; its version ends a page of the log.

        Raises:
            NotFoundError: the state was destroyed.
            ContendedError: another process has begun it.
        """

    def maintain(self) -> None:
        """Keep reads cheap, as by a snapshot, if that is due. Processes may overlap."""

    def log_length(self) -> int:
        """Return the number of versions since the newest snapshot: what a new process folds."""

    def terminate(self) -> None:
        """End the state for every process: it can be neither read nor changed any more.

        This is done before a state is rebuilt from the shards, so that no commit lands that the
        rebuild would miss.
        """

    def destroy(self) -> None:
        """Delete the state, when its table is deleted. Idempotent."""

    def delete_late(self) -> None:
        """Delete what concurrent commits wrote while the state was destroyed. Idempotent.
        Raises InvariantError: the state was not destroyed; nothing was deleted.
        """
