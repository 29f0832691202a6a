"""How errors end a command: a sentence and a hint for people, an exit code for scripts."""

from __future__ import annotations

from collections.abc import Sequence

import typer
from typer.core import TyperGroup

from dormouse.errors import (
    AlreadyExistsError,
    CorruptDataError,
    DormouseError,
    InvalidRequestError,
    NotFoundError,
    OutcomeUnknownError,
    TimedOutError,
    UnavailableError,
)

_CODES: tuple[tuple[type[DormouseError], int], ...] = (
    (NotFoundError, 3),
    (InvalidRequestError, 4),
    (AlreadyExistsError, 4),
    (TimedOutError, 5),
    (UnavailableError, 6),
    (OutcomeUnknownError, 6),
)

EXIT_CODES = (
    "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 not found; 4 refused or invalid; "
    "5 not done in time; 6 unavailable, try again."
)
"""What `--help` says of them."""


def exit_code(error: DormouseError) -> int:
    """Return the exit code of a command that failed with `error`."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), 1)


def end_if_damaged(damaged: Sequence[CorruptDataError]) -> None:
    """Print what is damaged and end the command with exit code 1; return if nothing is.

    A command calls this after it has shown everything else: a listing that misses damaged items
    is not a success.
    """
    for error in damaged:
        _print_error(error)
    if damaged:
        raise typer.Exit(1)


def _print_error(error: DormouseError) -> None:
    from dormouse_cli.terminal import note  # it takes a while to import

    note(f"error: {error}")
    if error.hint:
        note(f"hint: {error.hint}")


class Commands(TyperGroup):
    """A group of commands that prints errors as a sentence and a hint, without a traceback."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # its type is private
        """Run the command; an error of ours ends it with its own exit code."""
        try:
            return super().invoke(ctx)
        except DormouseError as error:
            _print_error(error)
            raise typer.Exit(exit_code(error)) from error
