"""Which instance a command works on. Every command begins here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import typer

from dormouse.errors import DormouseError

if TYPE_CHECKING:
    from dormouse.client.instance import Instance
    from dormouse.client.table import TableHandle

UPKEEP_SECONDS = 30.0
"""When a command begins no more work that follows from its own; what it has begun, it ends."""


@dataclass
class Session:
    """The instance of one run of the command line: `name`d, or given (by tests) or by settings."""

    name: str | None = None
    instance: Instance | None = None


_CONTEXT: ContextVar[typer.Context] = ContextVar("context")
"""The context of the command that runs."""


def begin(ctx: typer.Context, name: str | None) -> None:
    """Begin a command, on the instance of a name unless the caller of the command line gave one."""
    if name is not None or ctx.obj is None:
        ctx.obj = Session(name)
    _CONTEXT.set(ctx)


def the_session() -> Session:
    """Return the session of the command that runs."""
    session: Session = _CONTEXT.get().obj
    return session


def the_instance(*, makes: bool = False, works: bool = False) -> Instance:
    """Return the instance to work on, connecting to it at the first call.

    A command that `works` on a folder does so in the background, for as long as it lives; it does
    not die of a file, a query or rows that end who reads or computes them.

    A folder becomes an instance only if the command `makes` things: with a
    mistyped name, a command that looks would find an empty instance and leave one behind.
    Raises NotFoundError: there is no instance in the folder.
    """
    # It takes longer to import than the rest of the command.
    from dormouse.client.instance import Instance

    session = the_session()
    if session.instance is None:
        # In a folder, a command does the work that it causes before it ends (`finish_work`).
        instance = session.instance = Instance.connect(session.name, background=False, create=makes)
        root = _CONTEXT.get().find_root()
        root.call_on_close(lambda: finish_work(session.instance or instance))
        if instance.folder is not None and instance.folder.was_made:
            from dormouse_cli.terminal import note  # it takes a while to import

            note(f"made an instance in {instance.folder.layout.root}")
        if works:
            instance = computing_apart(instance)
            if instance.folder is not None and instance.folder.process is not None:
                instance.folder.background.enabled = True
                instance.folder.background.wake()
    return session.instance


def computing_apart(instance: Instance) -> Instance:
    """Let other processes, which may die of them, run queries and ingest jobs from now on; return
    the instance of the session that does so.
    """
    from dormouse.client.computing import ComputingProcess
    from dormouse.client.reader import ReadingProcess
    from dormouse.settings import Settings

    services, folder = instance.services, instance.folder
    session = the_session()
    settings = Settings.from_environment(instance=session.name)
    name = settings.instance if folder is None else str(folder.layout.root)
    computing = ComputingProcess(name, services.scratch, os.environ)
    if folder is not None:
        folder.worker.reader = ReadingProcess(folder.layout.root, os.environ, services.clock)
        folder.worker.services = replace(folder.worker.services, compute=computing.compute)
    session.instance = replace(instance, computing=computing)
    return session.instance


def finish_work(instance: Instance) -> None:
    """Do the work that this process caused in a folder, and close it."""
    folder = instance.folder
    try:
        if folder is not None and folder.background.was_woken:
            from dormouse_cli.terminal import note, notes

            with notes().status("working on what follows; Ctrl-C leaves it for later"):
                folder.finish(UPKEEP_SECONDS)
    except KeyboardInterrupt:
        note("the next process that uses the folder goes on with it")
    except DormouseError as error:  # what was asked for is done and shown
        note(f"what follows is not done yet: {error.explanation}")
    finally:
        instance.close()


def table_named(name: str) -> TableHandle:
    """Return the table to work on. Raises NotFoundError: there is none of that name."""
    return the_instance().table(name)


def tables_beginning(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names that complete what was typed; none if the instance cannot be asked."""
    return _beginning(ctx, incomplete, lambda here: (table.name for table in here.tables()))


def queries_beginning(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of queries that complete what was typed; none if they cannot be listed."""
    return _beginning(ctx, incomplete, lambda here: (record.job_id for record in here.queries()))


def _beginning(
    ctx: typer.Context, incomplete: str, names: Callable[[Instance], Iterable[str]]
) -> list[str]:
    # a shell asks: nothing was run that would have chosen the instance
    begin(ctx, None if ctx.obj else ctx.find_root().params.get("instance"))
    try:
        return [name for name in names(the_instance()) if name.startswith(incomplete)]
    except DormouseError:
        return []
