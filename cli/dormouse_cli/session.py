"""Which instance a command works on. Every command begins here."""

from __future__ import annotations

from dataclasses import dataclass, field

import typer

from dormouse.client import Instance, TableHandle


@dataclass
class Session:
    """The instance of one run of the command line: `name`d, or given (by tests) or by settings."""

    name: str | None = None
    instance: Instance | None = field(default=None)


def instance_of(ctx: typer.Context) -> Instance:
    """Give the instance to work on, connecting to it at the first call."""
    session: Session = ctx.ensure_object(Session)
    if session.instance is None:
        session.instance = Instance.connect(session.name)
    return session.instance


def table_of(ctx: typer.Context, name: str) -> TableHandle:
    """Give the table to work on.

    Raises:
        NotFoundError: there is none of that name.
    """
    return instance_of(ctx).table(name)
