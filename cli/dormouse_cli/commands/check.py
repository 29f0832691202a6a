"""`dormouse check`: whether a table's state and its shards agree, and what to do if not."""

from __future__ import annotations

from typing import Annotated

import typer

from dormouse.features.checking import CheckReport, Finding
from dormouse.features.checking import acknowledge as resolve_disputes
from dormouse_cli.listings import Format, print_listing
from dormouse_cli.session import table_of
from dormouse_cli.terminal import counted, note, print_json, progress_of
from dormouse_cli.values import FormatOption, TableName

_COLUMNS = ("damage", "subject", "detail", "remedy")


def check(
    ctx: typer.Context,
    name: TableName,
    acknowledge: Annotated[
        list[str] | None,
        typer.Option(
            "--acknowledge",
            metavar="SHARD",
            help="First resolve the dispute over this shard: it is merged or collected as others.",
        ),
    ] = None,
    form: FormatOption = Format.table,
    all_bytes: Annotated[
        bool,
        typer.Option("--bytes", help="Read every shard whole, and check each byte by its CRC."),
    ] = False,
) -> None:
    """Verify a table: its state in itself, and against the footer of every shard.

    With --bytes, the rest of the shards is read, too, and compared with what was written.

    Prints what is wrong and what to do about it; the exit code is 0 if nothing is, else 1. It can
    run while the table is in use, and changes nothing but what --acknowledge says, which may be
    given several times.
    """
    handle = table_of(ctx, name)
    if acknowledge:
        handle.queues.send(resolve_disputes(handle.services, handle.current(), acknowledge))
        note(f"{name}: resolved the disputes over {', '.join(acknowledge)}")
    with progress_of("shards checked") as watch:
        report = handle.check(watch, all_bytes=all_bytes)
    _show(name, report, form)
    if report.findings:
        raise typer.Exit(1)


def _show(name: str, report: CheckReport, form: Format) -> None:
    rows = [_row(finding) for finding in report.findings]
    if form is Format.json:
        facts = {"version": report.version, "shards": report.shards, "rows": report.rows}
        print_json({**facts, "findings": rows})
    elif rows:
        print_listing(_COLUMNS, rows, form)
    shards = counted(report.shards, "shard")
    looked = f"{shards} with {counted(report.rows, 'row')} at version {report.version}"
    verdict = counted(len(rows), "finding") if rows else "nothing is wrong"
    note(f"{name}: {looked}: {verdict}")


def _row(finding: Finding) -> dict[str, object]:
    return {
        "damage": finding.damage.name.lower(),
        "subject": finding.subject,
        "detail": finding.detail,
        "remedy": finding.damage.value,
    }
