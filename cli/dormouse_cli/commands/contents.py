"""What a table is and was: its versions and tags, what each consists of, and its jobs.

`dormouse status, partitions, shards, files, row-tags, metrics, versions, tag, untag, tags, restore,
jobs`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from operator import attrgetter
from typing import Annotated, get_args

import typer

from dormouse.client.table import TableHandle
from dormouse.errors import CorruptDataError, InvalidRequestError, NotFoundError, did_you_mean
from dormouse.features.versions import read_as_of
from dormouse.messages.requests import AdminRequest
from dormouse.state.jobs import DAMAGED, JobKind, JobRecord
from dormouse.state.versions import AsOf, parse_as_of
from dormouse_cli.errors import end_if_damaged
from dormouse_cli.session import table_named, tables_beginning, the_instance
from dormouse_cli.terminal import (
    confirm,
    counted,
    note,
    print_facts,
    print_items,
    print_listing,
    row_of,
)
from dormouse_cli.values import AnyTableName, AsOfOption, ForceOption, ListFormatOption, TableName


def status(name: TableName, form: ListFormatOption = "table") -> None:
    """Show a table in numbers: rows, bytes, shards, partitions, version, what is pending."""
    print_facts(asdict(table_named(name).status()), form)


_PARTITION = ("partition", "range", "leaf", "depth", "rows", "shards")
_SHARD = ("shard", "rows", "live_rows", "size_bytes", "min_key", "max_key", "partitions", "jobs")
_FILE = ("uri", "size_bytes", "rows", "live_rows")


def partitions(
    name: TableName,
    everything: Annotated[
        bool, typer.Option("--all", help="Also partitions that were split and hold no rows now.")
    ] = False,
    as_of: AsOfOption = None,
    form: ListFormatOption = "table",
) -> None:
    """List a table's partitions in key order, with the ranges that `query --range` takes."""
    parts = table_named(name).partitions(everything=everything, as_of=_version(as_of))
    print_items(_PARTITION, parts, form, partition="id", leaf="is_leaf")


def shards(name: TableName, as_of: AsOfOption = None, form: ListFormatOption = "table") -> None:
    """List a table's shards by their first key, with the keys that `query --key` takes.

    live_rows are those of its rows that were not compacted into other shards yet.
    """
    items = table_named(name).shards(as_of=_version(as_of))
    print_items(_SHARD, items, form, shard="id", min_key="first", max_key="last")


def row_tags(name: TableName, as_of: AsOfOption = None, form: ListFormatOption = "table") -> None:
    """List which row tags rows of a table have, and how many rows have just these.

    Rows get them when they are ingested; `tags` lists those of versions.
    """
    print_items(("tags", "rows"), table_named(name).row_tags(as_of=_version(as_of)), form)


def files(name: TableName, as_of: AsOfOption = None, form: ListFormatOption = "table") -> None:
    """List a table's Parquet files as URIs, by their first key.

    A reader of the files alone sees all rows, live_rows of which are rows of the table.
    """
    items = table_named(name).files(as_of=_version(as_of))
    print_listing(_FILE, [row_of((*_FILE, "shard"), each) for each in items], form)


def _version(text: str | None) -> AsOf | None:
    return None if text is None else parse_as_of(text)


def metrics(name: AnyTableName = None, form: ListFormatOption = "table") -> None:
    """Show the metrics that each table publishes every minute.

    The row of a table that cannot be read says why; then the exit code is 1.
    """
    if name is not None:
        print_facts(_status_row(table_named(name)), form)
        return
    tables, entries = the_instance().list_readable()
    rows: list[Mapping[str, object]] = []
    damaged: list[CorruptDataError] = list(entries)
    for table in tables:
        try:
            rows.append(_status_row(table))
        except CorruptDataError as error:
            rows.append({"table": table.name, "damaged": str(error)})
            damaged.append(error)
    names = {table.name for table in tables}
    rows += [
        {"table": error.what, "damaged": str(error)}
        for error in entries
        if (error.name or error.table_id) and error.name not in names
    ]
    columns = dict.fromkeys(name for row in rows for name in row) or ["table"]
    print_listing(list(columns), [{**dict.fromkeys(columns), **r} for r in rows], form)
    end_if_damaged(damaged)


def _status_row(table: TableHandle) -> dict[str, object]:
    levels = {
        measure.name.lower(): value if value % 1 else int(value)
        for measure, value in table.metrics().items()
    }
    return {"table": table.name, **levels}


VersionArgument = Annotated[
    str, typer.Argument(metavar="VERSION", help="Its number, a tag of it, or a time.")
]
TagArgument = Annotated[str, typer.Argument(metavar="TAG", help="The name of the tag.")]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="Only the newest of them.")
]


def versions(name: TableName, limit: LimitOption = 50, form: ListFormatOption = "table") -> None:
    """Show the versions of a table that can be read, the newest first.

    Versions are kept for gc_delay_seconds of the table, those with a tag until it is removed.
    """
    columns = ("version", "time", "changes", "rows", "job", "tags")
    print_items(columns, table_named(name).versions()[:limit], form, job="jobs")


def tag(
    name: TableName,
    version: VersionArgument,
    tag: TagArgument,
    move: Annotated[
        bool, typer.Option("--move", help="Move the tag if another version has it.")
    ] = False,
) -> None:
    """Keep a version of a table, under a name, until it is untagged.

    Its shards are not deleted meanwhile, so storage grows by what is rewritten since.
    """
    entry = table_named(name).tag(parse_as_of(version), tag, move=move)
    note(f"version {entry.version} of table {name} is kept as {tag!r}")


def untag(name: TableName, tag: TagArgument) -> None:
    """Remove a tag from a table: its version is no longer kept."""
    table_named(name).untag(tag)
    note(f"table {name} has no tag {tag} any more")


def tags(name: TableName, form: ListFormatOption = "table") -> None:
    """Show the tags of a table, by version."""
    columns = ("tag", "version", "time", "rows", "tagged")
    print_items(columns, table_named(name).tags(), form)


def restore(name: TableName, version: VersionArgument, force: ForceOption = False) -> None:
    """Make an earlier version of a table its newest.

    Later changes are undone. Files that were ingested since can be ingested again.
    """
    table = table_named(name)
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
    form: ListFormatOption = "table",
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
    instance = the_instance()
    records = instance.jobs() if name is None else instance.table(name).jobs()
    if job_id is not None:
        shown = [_of_id(records, job_id, name)]
        print_facts(_job_row(shown[0]), form)
    else:
        some = records_of(records, unfinished=unfinished, failed=failed, refused=refused)
        shown = [r for r in some if r.state == DAMAGED or kind in (None, r.kind)]
        rows = [_job_row(r) for r in sorted(shown, key=attrgetter("began_ms"))]
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


def _job_row(record: JobRecord) -> dict[str, object]:
    return row_of((*_COLUMNS, *_MORE), record, job="job_id", purge="purge_id")
