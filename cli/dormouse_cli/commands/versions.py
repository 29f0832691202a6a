"""`dormouse versions, tag, untag, tags, restore`: earlier versions of a table."""

from typing import Annotated

import typer

from dormouse.features.versions import read_as_of
from dormouse.state.versions import parse_as_of
from dormouse_cli.listings import ListFormat, print_items
from dormouse_cli.session import table_of
from dormouse_cli.terminal import confirm, counted, note
from dormouse_cli.values import ForceOption, ListFormatOption, TableName

TagArgument = Annotated[str, typer.Argument(metavar="TAG", help="The name of the tag.")]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="Only the newest of them.")
]


def versions(
    ctx: typer.Context,
    name: TableName,
    limit: LimitOption = 50,
    form: ListFormatOption = ListFormat.table,
) -> None:
    """Show the versions of a table that can be read, the newest first.

    Versions are kept for gc_delay_seconds of the table, those with a tag until it is removed.
    """
    columns = ("version", "time", "changes", "rows", "job", "tags")
    print_items(columns, table_of(ctx, name).versions()[:limit], form, job="jobs")


def tag(
    ctx: typer.Context,
    name: TableName,
    version: Annotated[
        str, typer.Argument(metavar="VERSION", help="Its number, another tag of it, or a time.")
    ],
    tag: TagArgument,
    move: Annotated[
        bool, typer.Option("--move", help="Move the tag if another version has it.")
    ] = False,
) -> None:
    """Keep a version of a table, under a name, until it is untagged.

    Its shards are not deleted meanwhile, so storage grows by what is rewritten since.
    """
    entry = table_of(ctx, name).tag(parse_as_of(version), tag, move=move)
    note(f"version {entry.version} of table {name} is kept as {tag!r}")


def untag(ctx: typer.Context, name: TableName, tag: TagArgument) -> None:
    """Remove a tag from a table: its version is no longer kept."""
    table_of(ctx, name).untag(tag)
    note(f"table {name} has no tag {tag} any more")


def tags(ctx: typer.Context, name: TableName, form: ListFormatOption = ListFormat.table) -> None:
    """Show the tags of a table, by version."""
    columns = ("tag", "version", "time", "rows", "tagged")
    print_items(columns, table_of(ctx, name).tags(), form)


def restore(
    ctx: typer.Context,
    name: TableName,
    version: Annotated[
        str, typer.Argument(metavar="VERSION", help="Its number, a tag of it, or a time.")
    ],
    force: ForceOption = False,
) -> None:
    """Make an earlier version of a table its newest.

    Later changes are undone. Files that were ingested since can be ingested again.
    """
    table = table_of(ctx, name)
    as_of = parse_as_of(version)
    _, state = read_as_of(table.services, table.current(), as_of)
    now = table.state()
    if not force and now.version != state.version:
        confirm(
            f"Restore table {name} from version {now.version} ({counted(now.rows, 'row')}) to "
            f"version {state.version} ({counted(state.rows, 'row')})?"
        )
    newest = table.restore(state.version)
    note(f"version {newest} of table {name} has the rows of version {state.version}")
