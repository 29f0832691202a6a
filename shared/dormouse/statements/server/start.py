"""Where processes of statements begin: they import what statements need, and little more.

Arrow and DataFusion import numpy and pandas where these are installed, which takes longer than all
the rest, and nothing here uses them.
"""

from __future__ import annotations

import gc
import socket
import sys

from dormouse.statements.server.fork_server import FORKS, ForkServer


def main(*descriptors: int) -> None:
    """Serve a caller on a socket; given a socket and a pipe, run one statement."""
    for package in ("numpy", "pandas"):
        sys.modules[package] = None  # type: ignore[assignment]  # importing it fails
    if len(descriptors) == 2:
        _run(*descriptors)
        return
    if FORKS:
        _import_all()
    ForkServer(socket.socket(fileno=descriptors[0]), _run).serve()


def _run(channel: int, results: int) -> None:
    from dormouse.statements.child.computing import main as run

    run(channel, results)


def _import_all() -> None:
    """Import what forks use, and leave it where it is in memory: they share what nobody changes."""
    import dormouse.statements.child.computing  # noqa: F401
    from dormouse.schema.schema import Field, Primitive, Schema
    from dormouse.sql.conditions import parse_condition
    from dormouse.sql.statements import parse_statement
    from dormouse.statements.child.session import make_functions

    # what these import when they are first used, they import now: both readers of conditions, too
    parse_statement("SELECT 1")
    schema = Schema((), (), (Field("a", Primitive.LONG),), is_part=True)
    for condition in ("a = 1", "a + 1 = 2"):
        parse_condition(condition, schema)
    make_functions()
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
