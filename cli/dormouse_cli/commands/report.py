"""`dormouse report`: a table on one page, for a browser that needs no network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dormouse.client.instance import Instance
from dormouse.errors import NotFoundError, needs_extra
from dormouse_cli.report.contents import Contents, contents_of
from dormouse_cli.session import instance_of
from dormouse_cli.terminal import note
from dormouse_cli.values import TableName


def report(
    ctx: typer.Context,
    name: TableName,
    output: Annotated[
        Path, typer.Option("--output", metavar="FILE", help="The page; replaced if it is there.")
    ],
) -> None:
    """Write a page about a table: its partitions, jobs, refused files, queues and properties.

    It holds all it needs, and opens in a browser without a network.
    """
    size_bytes = write_page(instance_of(ctx), name, output)
    note(f"{output}: {size_bytes / 1e6:.1f} MB")


def write_page(instance: Instance, name: str, output: Path) -> int:
    """Write the page about a table, and return its size in bytes.

    Raises:
        NotFoundError: there is no such table, or the file cannot be written.
        MissingPackageError: the packages of the extra are not installed.
    """
    html = _page(contents_of(instance, name))
    try:
        return output.write_bytes(html.encode())
    except OSError as error:
        raise NotFoundError(f"cannot write {str(output)!r}: {error.strerror}") from error


def _page(contents: Contents) -> str:
    with needs_extra("report", "a report"):
        from dormouse_cli.report.page import page
    return page(contents)
