"""`dormouse queries`: queries over messages, their results, and their end."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from dormouse.client.waiting import WAIT_SECONDS
from dormouse.state.jobs import DAMAGED, JobRecord
from dormouse_cli.commands.jobs import times_of
from dormouse_cli.commands.query import (
    FormatOption,
    LimitOption,
    OutputOption,
    RowFormat,
    check_output,
    format_of,
    write_rows,
)
from dormouse_cli.listings import Format, ListFormat, print_facts, print_listing
from dormouse_cli.session import instance_of, queries_beginning
from dormouse_cli.terminal import note
from dormouse_cli.values import FormatOption as FactsFormatOption
from dormouse_cli.values import ListFormatOption, TimeoutOption

_COLUMNS = (
    "state",
    "query",
    "table",
    "who",
    "parts_done",
    "parts",
    "rows",
    "bytes_read",
    "requests",
    "started",
    "seconds",
    "reason",
)

QueryId = Annotated[
    str,
    typer.Argument(metavar="ID", help="A query's id.", autocompletion=queries_beginning),
]


def list_queries(
    ctx: typer.Context,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Only what has not ended.")
    ] = False,
    failed: Annotated[bool, typer.Option("--failed", help="Only what failed.")] = False,
    form: ListFormatOption = ListFormat.table,
) -> None:
    """Show the queries over messages of the last seven days, the newest first.

    Parts are the sub-queries of a query; bytes and requests are those that read shards. A query
    whose message still waits in the queue is not among them.
    """
    matches = [
        record
        for record in instance_of(ctx).queries()
        if not (unfinished or failed)
        or (unfinished and not record.is_finished)
        or (failed and record.state == "failed")
        or record.state == DAMAGED
    ]
    print_listing(_COLUMNS, [_row(record) for record in matches], form)
    if any(record.state == DAMAGED for record in matches):
        raise typer.Exit(1)


def show(ctx: typer.Context, query_id: QueryId, form: FactsFormatOption = Format.table) -> None:
    """Show one query: its progress and, once it has ended, the files of its result."""
    query = instance_of(ctx).asked(query_id)
    record = query.record()
    facts = _row(record)
    if record.state == "finished":
        end = query.end()
        facts |= {
            "format": end.format,
            "versions": dict(end.versions),
            "result_bytes": end.size_bytes,
            "function_seconds": round(end.function_milliseconds / 1000, 1),
            "files": [file.name for file in end.files],
            "where": query.uri,
        }
    print_facts(facts, form)


def result(
    ctx: typer.Context,
    query_id: QueryId,
    limit: LimitOption = None,
    form: FormatOption = None,
    output: OutputOption = None,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Wait for a query, and show or write the rows of its result, in any format."""
    row_format: RowFormat = form or format_of(output)
    check_output(row_format, output, explain=False)
    began = time.monotonic()
    rows = instance_of(ctx).asked(query_id).result(timeout)
    write_rows(rows, row_format, limit, output, began)


def cancel(ctx: typer.Context, query_id: QueryId, timeout: TimeoutOption = WAIT_SECONDS) -> None:
    """Cancel a query that has not ended; it has no result then.

    Only the caller that asked it can, and one that administers all tables by an access rule.
    """
    query = instance_of(ctx).asked(query_id)
    if query.progress() is not None:
        query.cancel()
        query.polling.until_ended(query.progress, timeout_seconds=timeout)
    state = query.record().state
    note(f"query {query_id} {'was cancelled' if state == 'cancelled' else f'is {state} already'}")


def _row(record: JobRecord) -> dict[str, object]:
    return {
        "state": record.state,
        "query": record.job_id,
        "table": record.subject,
        "who": record.who,
        "parts_done": record.parts_done,
        "parts": record.parts,
        "rows": record.rows,
        "bytes_read": record.size_bytes,
        "requests": record.requests,
        **times_of(record),
        "reason": record.reason,
    }
