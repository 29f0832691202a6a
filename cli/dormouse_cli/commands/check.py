"""`dormouse check`, `rebuild`: whether a table's state and its shards agree, and repairs."""

from typing import Annotated

import typer

from dormouse.client.contents import partitions_of
from dormouse.client.table import TableHandle
from dormouse.features.checking import CheckReport
from dormouse.features.checking import acknowledge as resolve_disputes
from dormouse.features.rebuild import RebuildReport
from dormouse.schema.schema import Schema
from dormouse_cli.errors import end_if_damaged
from dormouse_cli.session import table_named, tables_beginning, the_instance
from dormouse_cli.terminal import (
    Format,
    confirm,
    counted,
    note,
    print_facts,
    print_json,
    print_listing,
    progress_of,
    row_of,
)
from dormouse_cli.values import ForceOption, FormatOption, TableName

_COLUMNS = ("damage", "subject", "detail", "remedy")


def check(
    name: TableName,
    acknowledge: Annotated[
        list[str] | None,
        typer.Option(
            "--acknowledge",
            metavar="SHARD",
            help="First resolve the dispute over this shard: it is merged or collected as others.",
        ),
    ] = None,
    form: FormatOption = "table",
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
    handle = table_named(name)
    if acknowledge:
        handle.queues.send(resolve_disputes(handle.services, handle.current(), acknowledge))
        note(f"{name}: resolved the disputes over {', '.join(acknowledge)}")
    with progress_of("shards checked") as watch:
        report = handle.check(watch, all_bytes=all_bytes)
    _show(name, report, form)
    if report.findings:
        raise typer.Exit(1)


def _show(name: str, report: CheckReport, form: Format) -> None:
    rows = [
        {"damage": each.damage.name.lower(), **row_of(("subject", "detail"), each)}
        | {"remedy": each.damage.value}
        for each in report.findings
    ]
    if form == "json":
        facts = {"version": report.version, "shards": report.shards, "rows": report.rows}
        print_json({**facts, "findings": rows})
    elif rows:
        print_listing(_COLUMNS, rows, form)
    shards = counted(report.shards, "shard")
    looked = f"{shards} with {counted(report.rows, 'row')} at version {report.version}"
    verdict = counted(len(rows), "finding") if rows else "nothing is wrong"
    note(f"{name}: {looked}: {verdict}")


def rebuild(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A table, by name, or by id if its name is unknown; without one, all damaged "
            "entries of the registry are repaired, and no state.",
            autocompletion=tables_beginning,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show the state that would be built, and what it leaves out."
        ),
    ] = False,
    force: ForceOption = False,
    form: FormatOption = "table",
) -> None:
    """Rebuild a damaged or lost state from the shards, or repair a damaged registry entry.

    The new state is built from the footers of the shards and replaces what is left of the old one.
    If shards contradict each other, the command names them and changes nothing. If the table's
    entry in the registry is damaged, only that is restored, from its copy.
    """
    if dry_run and name is None:
        end_if_damaged(the_instance().list_readable()[1])
        return
    if not dry_run and _mended(name) or name is None:
        return
    handle = table_named(name)
    plan = _run(handle, dry_run=True)
    _show_plan(handle.schema, plan, form)
    if dry_run:
        return
    if not force:
        built = f"one built from its shards, with about {counted(plan.state.rows, 'row')}"
        confirm(f"Replace the state of table {name} by {built}?")
    result = _run(handle, dry_run=False)
    note(f"table {name} was rebuilt with {counted(result.state.reference_count, 'reference')}")


def _mended(name: str | None) -> bool:
    """Restore damaged entries of the registry; return whether there were any."""
    repaired = the_instance().repair(name or "")
    for what in repaired:
        note(f"restored from its copy, as it was damaged or lost: {what}")
    if repaired and name is not None:
        note("its state was not changed; if that is damaged too, run the command again")
    if not repaired and name is None:
        note("no entry of the registry is damaged")
    return bool(repaired)


def _run(handle: TableHandle, *, dry_run: bool) -> RebuildReport:
    with progress_of("shards read") as watch:
        return handle.rebuild(dry_run=dry_run, watch=watch)


def _show_plan(schema: Schema, plan: RebuildReport, form: Format) -> None:
    state = plan.state
    facts: dict[str, object] = {
        "partitions": len(state.partitions),
        "leaf_partitions": sum(1 for _ in state.partitions.leaves()),
        "shards": len(state.shards) - len(state.unreferenced),
        "merged_shards": len(state.unreferenced),
        "references": state.reference_count,
        "rows": state.rows,
        "sources": len(state.sources),
    }
    columns = ("partition", "range", "shards", "rows")
    leaves = [
        row_of(columns, each, partition="id")
        for each in partitions_of(schema, state, everything=False)
        if each.is_leaf
    ]
    left_out = [{"shard": shard, "reason": reason} for shard, reason in plan.left_out]
    if form == "json":
        print_json({**facts, "leaves": leaves, "left_out": left_out})
        return
    print_facts({**facts, "left_out": len(left_out)}, form)
    print_listing(columns, leaves, form)
    if left_out:
        print_listing(("shard", "reason"), left_out, form)
