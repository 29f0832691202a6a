"""`dormouse ingest` and `dormouse wait`: files on their way to rows, and watching them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from dormouse.client import Ingested, Instance, TableHandle
from dormouse.client.ingesting.dropping import files_to_drop
from dormouse.client.ingesting.inferring import check_file
from dormouse.client.waiting import WAIT_SECONDS
from dormouse.errors import InvalidRequestError
from dormouse_cli.session import instance_of, table_of, tables_beginning
from dormouse_cli.terminal import note, notes, progress_bars
from dormouse_cli.values.arguments import parse_spark
from dormouse_cli.values.new_schemas import (
    RowKeysOption,
    SortKeysOption,
    TypesOption,
    inferred_schema,
    print_inferred,
)
from dormouse_cli.values.parameters import JobPropertyOption, SparkOption, TableName, TimeoutOption

FilesArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE",
        help="A Parquet, Arrow, CSV or JSON lines file, by the end of its name, plain or .gz, .bz2 "
        "or .zst; or a folder of them, with the folders in it.",
    ),
]
PrefixesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prefix",
        metavar="KEY",
        help="Instead of files from here: an object, or a folder, that lies in the ingest "
        "bucket already, anywhere in it; also as s3://BUCKET/KEY. Can be given several times.",
    ),
]
AgainOption = Annotated[
    bool,
    typer.Option(
        "--again", help="Ingest files once more that were ingested before, to have them twice."
    ),
]
CreateOption = Annotated[
    bool,
    typer.Option(
        "--create",
        help="Create the table first if there is none, with the schema that the first file "
        "has; with --row-keys.",
    ),
]
WaitOption = Annotated[
    bool | None,
    typer.Option(
        "--wait/--no-wait",
        help="Whether to wait until each file is ingested or refused; by default, only for an "
        "instance in a folder, where this process does the work.",
    ),
]


def ingest(
    ctx: typer.Context,
    name: TableName,
    files: FilesArgument = None,
    prefixes: PrefixesOption = None,
    spark: SparkOption = False,
    properties: JobPropertyOption = None,
    again: AgainOption = False,
    create: CreateOption = False,
    row_keys: RowKeysOption = None,
    sort_keys: SortKeysOption = None,
    types: TypesOption = None,
    wait: WaitOption = None,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Drop files into the ingest bucket. They become rows of the table shortly after.

    With --spark and --prefix they are one bulk import; for dropped files, a property of the table
    decides: ingest_spark_bytes.
    """
    asked = parse_spark(spark, properties)
    if bool(files) == bool(prefixes):
        raise InvalidRequestError(
            "say what to ingest: either files from here, or keys of the ingest bucket",
            hint="give FILE…, or --prefix KEY",
        )
    if asked and files:
        raise InvalidRequestError(
            "files that are dropped go where the table says",
            hint="set its property ingest_spark_bytes, or give --prefix",
        )
    if not create and (row_keys or sort_keys or types):
        raise InvalidRequestError(
            "keys and types are those of a table that is created", hint="add --create"
        )
    instance = instance_of(ctx, makes=create)
    wait = instance.polling.works_here if wait is None else wait
    began_ms = instance.services.clock.now_ms()
    if create:
        _create(instance, name, files or [], (row_keys, sort_keys, types))
    with progress_bars() as progress:
        if prefixes:
            keys = [_key_in(instance.bucket.name, prefix) for prefix in prefixes]
            chosen, done = instance.ingest_files(name, keys, spark=asked, again=again), "on the way"
        else:
            handle = table_of(ctx, name)
            chosen, done = _drop(progress, handle, files or [], again), "dropped"
        if wait:
            _watch(progress, chosen, timeout)
        elif instance.folder is not None:
            instance.folder.background.was_woken = False  # leave the work to other processes
    _tell(chosen, "ingested" if wait else done)
    if wait:
        _tell_left_out(chosen, began_ms)


def _create(
    instance: Instance,
    name: str,
    files: list[Path],
    asked: tuple[list[str] | None, list[str] | None, list[str] | None],
) -> None:
    """Create a table for rows as those of the first file, unless it is there.

    The file is read to its end before: a table of which it would be refused is not created.
    """
    if not files:
        raise InvalidRequestError("--create needs files from here", hint="give FILE…")
    if any(table.name == name for table in instance.tables()):
        return
    first = files_to_drop(name, files)[0][1]
    inferred = inferred_schema(first, *asked, {})
    check_file(first, inferred.schema)
    instance.create_table(name, inferred.schema)
    print_inferred(inferred)
    note(f"table {name} was created")


def _tell(chosen: Ingested, done: str) -> None:
    """Say what becomes of files, and of which nothing does since they were ingested before."""
    known = sum(source.id in chosen.known for source in chosen.sources)
    fresh = len(chosen.sources) - known
    if fresh:
        note(f"{_files(fresh)} {done}")
    if known or not fresh:
        which = _files(known) if known else "all files there are"
        note(f"{which} already ingested; --again adds the same rows once more")


def _tell_left_out(chosen: Ingested, began_ms: int) -> None:
    """Say of which files the table's filters left out rows."""
    if not chosen.handle.current().properties.filters:
        return
    for job in chosen.handle.jobs():
        if job.kind == "ingest" and job.rows_read > job.rows and job.updated_ms >= began_ms:
            note(f"{job.subject}: {job.reason}")


def _files(count: int) -> str:
    return f"{count} file{'s'[: count != 1]}"


def _key_in(bucket: str, text: str) -> str:
    """Return the key that a person means, who may have named the bucket too."""
    if not text.startswith("s3://"):
        return text
    named, _, key = text.removeprefix("s3://").partition("/")
    if named != bucket:
        raise InvalidRequestError(
            f"{text} is not in the ingest bucket {bucket!r}",
            hint="copy it there, or download it and ingest the files",
        )
    return key


def wait_until_done(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]", help="A table; by default all.", autocompletion=tables_beginning
        ),
    ] = None,
    timeout: TimeoutOption = WAIT_SECONDS,
) -> None:
    """Wait until nothing is pending: every file ingested or refused, no work in the queues."""
    wait_for(instance_of(ctx) if name is None else table_of(ctx, name), timeout)


def wait_for(target: Instance | TableHandle, timeout_seconds: float) -> None:
    """Wait until nothing is pending of a table or of all, and say so."""
    with notes().status("looking") as status:
        target.wait(timeout_seconds, watch=lambda left: status.update(f"{left:,} pending"))
    note("nothing is pending")


def _drop(progress: Progress, handle: TableHandle, files: list[Path], again: bool) -> Ingested:
    task = progress.add_task("uploaded", total=len(files_to_drop(handle.name, files)))
    return handle.ingest(
        files, again=again, wait=False, watch=lambda source: progress.advance(task)
    )


def _watch(progress: Progress, dropped: Ingested, timeout_seconds: float) -> None:
    total = len(dropped.sources)
    task = progress.add_task("ingested", total=total)
    dropped.wait(timeout_seconds, watch=lambda left: progress.update(task, completed=total - left))
