"""Refuses, before anything is written, what the fold could never accept; used by `engine`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dormouse.errors import InvalidRequestError
from dormouse.model.key_types import KeyTypes
from dormouse.model.transactions import RULES, Entry, InitialisePartitions, RaiseRules
from dormouse.model.validation import faults

_REASONS = 5


def admit(entries: Sequence[Entry], known: KeyTypes, look: Callable[[], KeyTypes]) -> None:
    """Refuse entries that can hold in no state of a table.

    The types of its row keys stay as long as it lives, so those of any version will do: those
    `known`, else those that an entry is to give it, else what a `look` at the newest version shows.

    Raises:
        InvalidRequestError: some can hold in none, or are of rules that this release does not know.
    """
    made = (e.transaction for e in entries)
    given = [m.key_types for m in made if isinstance(m, InitialisePartitions)]
    key_types = known or next(iter(given), ()) or look()
    for entry in entries:
        if broken := faults(entry, key_types):
            reasons = "; ".join(map(str, broken[:_REASONS]))
            raise InvalidRequestError(
                f"a change of the table can never hold: {reasons}", hint="nothing was written"
            )
        if isinstance(entry.transaction, RaiseRules | InitialisePartitions):
            _check_rules(entry.transaction.rules)


def _check_rules(rules: int) -> None:
    if rules > RULES:
        raise InvalidRequestError(
            f"this release judges by rules {RULES}, and cannot raise those of a table to {rules}",
            hint="nothing was written; raise them with the release that knows them",
        )
