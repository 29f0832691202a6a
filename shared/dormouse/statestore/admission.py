"""Refuses, before anything is written, what the fold could never accept; used by `engine`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dormouse.errors import InvalidRequestError
from dormouse.fold.validation import entry_violations
from dormouse.model.state import TableState
from dormouse.model.transactions import (
    RULES,
    Entry,
    InitialisePartitions,
    RaiseRules,
    RestoreVersion,
)
from dormouse.schema.key_types import KeyTypes

_REASONS = 5


def admit(entries: Sequence[Entry], known: TableState, look: Callable[[], TableState]) -> None:
    """Refuse entries, all meant for one generation, that can hold in no state of a table.

    `known` is any version of it, `look` gives the newest.

    Raises:
        InvalidRequestError: some can hold in none, or are of rules that this release does not know.
    """
    key_types = _key_types(entries, known, look)
    for entry in entries:
        if broken := entry_violations(entry, key_types):
            reasons = "; ".join(map(str, broken[:_REASONS]))
            raise InvalidRequestError(
                f"a change of the table can never hold: {reasons}", hint="nothing was written"
            )
        if isinstance(entry.transaction, RestoreVersion):
            raise InvalidRequestError("a version is restored by `restore`, with its snapshot")
        if isinstance(entry.transaction, RaiseRules | InitialisePartitions):
            _check_rules(entry.transaction.rules)


def _key_types(
    entries: Sequence[Entry], known: TableState, look: Callable[[], TableState]
) -> KeyTypes:
    """Return the types of row keys in the generation of `entries`; none if that is not the newest.

    They stay as long as the generation, so any version of it knows them; else an entry is to give
    them to the table.
    """
    generation = entries[0].generation
    if known.key_types and known.generation == generation:
        return known.key_types
    made = (entry.transaction for entry in entries)
    given = next((m.key_types for m in made if isinstance(m, InitialisePartitions)), ())
    if given and not known.key_types:
        return given
    newest = look()
    return newest.key_types if newest.generation == generation else ()


def _check_rules(rules: int) -> None:
    if rules > RULES:
        raise InvalidRequestError(
            f"this release judges by rules {RULES}, and cannot raise those of a table to {rules}",
            hint="nothing was written; raise them with the release that knows them",
        )
