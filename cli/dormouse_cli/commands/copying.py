"""`dormouse copy`: copy a table to another instance, in a folder or on AWS."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from dormouse.client.administration import Copied, copy_table
from dormouse.client.instance import Instance
from dormouse.errors import NotFoundError
from dormouse.folder.layout import FolderLayout
from dormouse.settings import Settings
from dormouse_cli.listings import Format, print_facts
from dormouse_cli.session import finish_work
from dormouse_cli.terminal import note, progress_of
from dormouse_cli.values import FormatOption

_Source = Annotated[
    str, typer.Argument(metavar="FROM", help="The instance that has it: a folder or a name.")
]
_Target = Annotated[
    str, typer.Argument(metavar="TO", help="The instance to copy it to; a new folder is made.")
]


def copy(
    name: Annotated[str, typer.Argument(metavar="TABLE", help="The table to copy.")],
    source: _Source,
    target: _Target,
    new_name: Annotated[
        str, typer.Option("--name", metavar="NEW", help="The name of the copy; else the same.")
    ] = "",
    form: FormatOption = Format.table,
) -> None:
    """Copy a table from one instance to another: `dormouse copy flights ./mice prod`.

    Rows, schema, properties, partitions and what was ingested are copied; the source stays as it
    is. The copy becomes visible when it is complete. If the command is interrupted, run it again:
    it continues.
    """
    with closing(_existing(source)) as here:
        table = here.table(name)
        there = Instance.connect(target, background=False)
        try:
            if there.folder is not None and there.folder.was_made:
                note(f"made an instance in {there.folder.layout.root}")
            with progress_of("shards copied") as watch:
                copied = copy_table(table, there, new_name, watch=watch)
            _show(copied, form)
        finally:
            finish_work(there)


def _existing(name: str) -> Instance:
    """Connect to an instance; make none.

    Raises:
        NotFoundError: there is none in the folder.
    """
    folder = Settings.from_environment(instance=name).folder
    if folder is not None and not FolderLayout(folder).database.exists():
        raise NotFoundError(
            f"there is no instance in {str(folder)!r}",
            hint="name the instance that the table is in",
        )
    return Instance.connect(name, background=False)


def _show(copied: Copied, form: Format) -> None:
    if copied.was_complete:
        note("the copy was complete already; nothing was copied")
    facts = {
        "table": copied.table.name,
        "version": copied.version,
        "rows": copied.rows,
        "shards": copied.shards,
        "copied": copied.copied,
    }
    print_facts(facts, form)
