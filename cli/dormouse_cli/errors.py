"""How errors end a command: a sentence and a hint for people, an exit code for scripts."""

import errno
from collections.abc import Sequence

import typer
from typer.core import TyperGroup

from dormouse import errors

_CODES: tuple[tuple[type[errors.DormouseError], int], ...] = (
    (errors.NotFoundError, 3),
    (errors.NoSuchInstanceError, 3),
    (errors.ServiceRefusedError, 4),
    (errors.InvalidRequestError, 4),
    (errors.ForbiddenError, 4),
    (errors.AlreadyExistsError, 4),
    (errors.LimitExceededError, 4),
    (errors.TimedOutError, 5),
    (errors.UnavailableError, 6),
    (errors.OutcomeUnknownError, 6),
)

EXIT_CODES = (
    "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 not found; 4 refused or invalid; "
    "5 not done in time; 6 unavailable, try again."
)
"""What `--help` says of them."""

INTERRUPTED, TERMINATED = 130, 143
"""The exit codes after Ctrl-C and SIGTERM, as shells have them: 128 and the signal's number."""


class TerminatedError(KeyboardInterrupt):
    """SIGTERM asked the command to end, as Ctrl-C does."""


_ASKING = ("apply", "compact", "copy", "export", "gc", "ingest", "purge", "split", "table", "wait")
"""The verbs that ask for work, or wait for some."""


def exit_code(error: errors.DormouseError) -> int:
    """Return the exit code of a command that failed with `error`."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), 1)


def end_if_damaged(damaged: Sequence[errors.CorruptDataError]) -> None:
    """Print what is damaged and end the command with exit code 1; return if nothing is.

    A command calls this after it has shown everything else: a listing that misses damaged items
    is not a success.
    """
    for error in damaged:
        print_error(error)
    if damaged:
        raise typer.Exit(1)


def print_error(error: errors.DormouseError) -> None:
    """Print an error as a sentence and a hint."""
    from dormouse_cli.terminal import note  # it takes a while to import

    note(f"error: {error}")
    if error.hint:
        note(f"hint: {error.hint}")


def _refused(error: OSError) -> errors.DormouseError | None:
    """Return what this machine refused; None of a closed pipe, which the library ends quietly."""
    from dormouse.storage import FREE_SPACE, FULL  # it takes a while to import

    where = f"{str(error.filename)!r}: " if error.filename else ""
    if error.errno in FULL:
        return errors.DiskFullError(f"{where}a disk is full", hint=FREE_SPACE)
    if error.errno == errno.EPIPE:
        return None
    kind = errors.ForbiddenError if isinstance(error, PermissionError) else errors.DormouseError
    return kind(f"{where}{error.strerror or error}")


def _print_interruption(ctx: typer.Context) -> None:
    """Say what goes on after Ctrl-C, and how to follow it."""
    from dormouse_cli.terminal import note  # it takes a while to import

    instance = getattr(ctx.obj, "instance", None)
    if instance is None or ctx.invoked_subcommand not in _ASKING:  # nothing was asked for
        note("interrupted")
        return
    folder = instance.folder
    if folder is None:
        goes_on = "goes on in the instance"
    else:
        folder.background.was_woken = False  # else this process would begin with it now
        goes_on = "is done by the next process that uses the folder, or by `dormouse work`"
    note(
        f"interrupted; what was asked for until then {goes_on}: `dormouse jobs NAME` shows it, "
        "`dormouse wait NAME` waits for it"
    )


class Commands(TyperGroup):
    """A group of commands that prints errors as a sentence and a hint, without a traceback."""

    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]  # its type is private
        """Run the command; an error of ours ends it with its own exit code."""
        try:
            return super().invoke(ctx)
        except errors.DormouseError as error:
            print_error(error)
            raise typer.Exit(exit_code(error)) from error
        except OSError as error:
            refused = _refused(error)
            if refused is None:
                raise
            print_error(refused)
            raise typer.Exit(exit_code(refused)) from error
        except KeyboardInterrupt as error:
            _print_interruption(ctx)
            is_told = isinstance(error, TerminatedError)
            raise typer.Exit(TERMINATED if is_told else INTERRUPTED) from None
