"""`dormouse status` and `dormouse jobs`: how a table stands, and what happened to its files."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from dormouse.ports import JobRecord
from dormouse_cli.session import instance_of, table_of
from dormouse_cli.terminal import Format, iso_time, print_facts, print_listing

FormatOption = Annotated[Format, typer.Option("--format", help="How to print it.")]

_COLUMNS = ("updated", "kind", "state", "subject", "rows", "reason")


def status(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The table's name.")],
    form: FormatOption = Format.table,
) -> None:
    """Show a table in numbers: rows, shards, references, partitions, version, what is pending."""
    print_facts(asdict(table_of(ctx, name).status()), form)


def jobs(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A table; without, what belongs to no table."),
    ] = None,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only what was refused, such as a broken file.")
    ] = False,
    form: FormatOption = Format.table,
) -> None:
    """Show the jobs of the last seven days, the oldest first, and refused files with the reason."""
    instance = instance_of(ctx)
    records = instance.jobs() if name is None else instance.table(name).jobs()
    kept = [r for r in records if r.state == "refused" or not refused]
    print_listing(_COLUMNS, [_row(r) for r in sorted(kept, key=lambda r: r.updated_ms)], form)


def _row(record: JobRecord) -> dict[str, object]:
    return {
        "job_id": record.job_id,
        "kind": record.kind,
        "state": record.state,
        "subject": record.subject,
        "reason": record.reason,
        "rows": record.rows,
        "updated": iso_time(record.updated_ms),
    }
