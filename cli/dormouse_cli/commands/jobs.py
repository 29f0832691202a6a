"""`dormouse jobs`: what happened to a table's files, compactions, splits and requests."""

from collections.abc import Iterable
from operator import attrgetter
from typing import Annotated, get_args

import typer

from dormouse.errors import InvalidRequestError, NotFoundError, did_you_mean
from dormouse.messages.requests import AdminRequest
from dormouse.state.jobs import DAMAGED, JobKind, JobRecord
from dormouse_cli.listings import ListFormat, print_facts, print_listing, row_of
from dormouse_cli.session import instance_of, tables_beginning
from dormouse_cli.values import ListFormatOption

_COLUMNS = (
    "state",
    "job",
    "kind",
    "subject",
    "files",
    "started",
    "finished",
    "seconds",
    "rows",
    "rows_per_second",
    "attempts",
    "reason",
)

_MORE = ("purge", "size_bytes", "updated", "rows_read")
"""What is shown of a single job, and to programs."""

KINDS = (*get_args(JobKind), *(kind.__struct_config__.tag for kind in get_args(AdminRequest)))
"""What a record may be of: a job, or a request, by its verb."""


def jobs(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A table; without, what belongs to no table.",
            autocompletion=tables_beginning,
        ),
    ] = None,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Only what is assigned or running.")
    ] = False,
    failed: Annotated[
        bool, typer.Option("--failed", help="Only what failed when it was last tried.")
    ] = False,
    refused: Annotated[
        bool, typer.Option("--refused", help="Only what was refused, such as a broken file.")
    ] = False,
    job_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Only the job of this id, in full.")
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Only jobs of a kind, such as ingest, compaction or split.",
        ),
    ] = None,
    form: ListFormatOption = ListFormat.table,
) -> None:
    """Show the jobs of the last seven days, the oldest first, and refused files with the reason.

    Given together, --unfinished, --failed and --refused show what any of them would. A damaged
    record is always shown as such, and the exit code is then 1.
    """
    if kind not in (None, *KINDS):
        raise InvalidRequestError(
            f"there is no kind {kind!r} of jobs",
            hint=did_you_mean(str(kind), KINDS, "kinds: " + ", ".join(KINDS)),
        )
    instance = instance_of(ctx)
    records = instance.jobs() if name is None else instance.table(name).jobs()
    if job_id is not None:
        shown = [_of_id(records, job_id, name)]
        print_facts(_row(shown[0]), form)
    else:
        some = records_of(records, unfinished=unfinished, failed=failed, refused=refused)
        shown = [r for r in some if r.state == DAMAGED or kind in (None, r.kind)]
        rows = [_row(r) for r in sorted(shown, key=attrgetter("began_ms"))]
        print_listing(_COLUMNS, rows, form)
    if any(record.state == DAMAGED for record in shown):
        raise typer.Exit(1)


def records_of(
    records: Iterable[JobRecord], *, unfinished: bool, failed: bool, refused: bool = False
) -> list[JobRecord]:
    """Return the records that are asked for: all unless any is; those that are damaged always."""
    states = {DAMAGED} | ({"failed"} if failed else set()) | ({"refused"} if refused else set())
    everything = not (unfinished or failed or refused)
    return [
        r for r in records if everything or r.state in states or unfinished and not r.is_finished
    ]


def _of_id(records: list[JobRecord], job_id: str, table: str | None) -> JobRecord:
    for record in records:
        if record.job_id == job_id:
            return record
    where = f"table {table!r}" if table else "no table"
    raise NotFoundError(
        f"there is no job {job_id!r} of {where}",
        hint="records live for seven days; name the table the job was for",
    )


def _row(record: JobRecord) -> dict[str, object]:
    return row_of((*_COLUMNS, *_MORE), record, job="job_id", purge="purge_id")
