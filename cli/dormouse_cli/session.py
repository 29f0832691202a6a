"""Which instance a command works on. Every command begins here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import typer

from dormouse.errors import DormouseError

if TYPE_CHECKING:
    from dormouse.client import Instance, TableHandle


@dataclass
class Session:
    """The instance of one run of the command line: `name`d, or given (by tests) or by settings."""

    name: str | None = None
    instance: Instance | None = field(default=None)


def instance_of(ctx: typer.Context) -> Instance:
    """Return the instance to work on, connecting to it at the first call."""
    from dormouse.client import Instance  # takes longer to import than the rest of the command

    session: Session = ctx.ensure_object(Session)
    if session.instance is None:
        session.instance = Instance.connect(session.name)
    return session.instance


def table_of(ctx: typer.Context, name: str) -> TableHandle:
    """Return the table to work on.

    Raises:
        NotFoundError: there is none of that name.
    """
    return instance_of(ctx).table(name)


def tables_beginning(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names that complete what was typed; none if the instance cannot be asked."""
    if ctx.obj is None:  # a shell asks: nothing was run that would have chosen the instance
        ctx.obj = Session(ctx.find_root().params.get("instance"))
    try:
        names = [table.name for table in instance_of(ctx).tables()]
    except DormouseError:
        return []
    return [name for name in names if name.startswith(incomplete)]
