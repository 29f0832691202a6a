"""`dormouse ingest, wait, compact, split, gc, work`: files on their way to rows, and what follows
by itself, asked for now.
"""

import hashlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import typer
from rich.progress import Progress
from rich.text import Text

from dormouse.client.inferring import check_file
from dormouse.client.ingesting import Ingested, files_to_drop, local_copies
from dormouse.client.instance import Instance
from dormouse.client.table import TableHandle
from dormouse.client.waiting import WAIT_SECONDS, dead_letter_error
from dormouse.errors import CorruptDataError, DiskFullError, InvalidRequestError, RefusedSourceError
from dormouse.features.dead_letters import list_letters
from dormouse.messages.stages import QUEUES
from dormouse.schema.row_tags import parse_tags
from dormouse.state.sources import format_of
from dormouse.tables.properties import SparkOptions, parse_settings, properties_of, property_named
from dormouse.tables.table import Table
from dormouse_cli import values
from dormouse_cli.session import computing_apart, table_named, the_instance
from dormouse_cli.terminal import counted, note, notes, progress_bars

Roles: TypeAlias = tuple[list[str] | None, list[str] | None, list[str] | None]
"""The row keys, sort keys and types of a table that is created."""
OnError: TypeAlias = Literal["refuse", "skip"]
"""What becomes of a file with rows that cannot be read."""

FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE…",
        help="A Parquet, Arrow, CSV or JSON file, by the end of its name, plain or .gz, .bz2 or "
        ".zst; a folder of them, with the folders in it; either also as s3://BUCKET/KEY, which is "
        "copied here first; or - for standard input, with --format.",
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="ENDING",
        help="What standard input is, as the ending of a file's name: csv, tsv, jsonl, csv.gz …",
    ),
]
PropertiesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="With --create, a property of the new table, such as csv_separator=; – else "
        "spark_executors, spark_executor_cores or spark_executor_memory_bytes for this job alone, "
        "which is then for Spark; repeat for more.",
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
        "--again",
        help="Also ingest files that were ingested before: their rows are then there twice.",
    ),
]
OnErrorOption = Annotated[
    OnError | None,
    typer.Option(
        help="What becomes of a CSV or JSON file with rows that cannot be read: it is refused, or "
        "they are left out and written to a file that is named then. By default the property "
        "ingest_on_error of the table decides.",
        show_default=False,
    ),
]
TagOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="KEY=VALUE",
        help="A row tag that all these rows get, such as day=2026-01-31: conditions ask for it by "
        "tag('day'). Repeatable.",
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
    name: values.TableName,
    files: FilesArgument = None,
    form: FormatOption = "",
    prefixes: PrefixesOption = None,
    spark: values.SparkOption = False,
    properties: PropertiesOption = None,
    again: AgainOption = False,
    on_error: OnErrorOption = None,
    tag: TagOption = None,
    create: CreateOption = False,
    row_keys: values.RowKeysOption = None,
    sort_keys: values.SortKeysOption = None,
    types: values.TypesOption = None,
    wait: WaitOption = None,
    timeout: values.TimeoutOption = WAIT_SECONDS,
) -> None:
    """Drop files into the ingest bucket. They become rows of the table shortly after.

    With --spark and --prefix they are one bulk import; for dropped files, a property of the table
    decides: ingest_spark_bytes.
    """
    options = values.parse_spark(spark, None if create else properties)
    _check_asked(files, prefixes, options, on_error)
    if not create and (row_keys or sort_keys or types):
        raise InvalidRequestError(
            "keys and types are those of a table that is created", hint="add --create"
        )
    tags = parse_tags(tag or [])
    instance = the_instance(makes=create)
    wait = instance.polling.works_here if wait is None else wait
    began_ms = instance.services.clock.now_ms()
    with _here(files or [], form) as local, progress_bars() as progress:
        if create:
            settings = values.parse_properties(properties or [])
            _create(instance, name, local, (row_keys, sort_keys, types), settings, on_error)
        if prefixes:
            keys = [_key_in(instance.bucket.name, prefix) for prefix in prefixes]
            drop = instance.ingest_files(name, keys, spark=options, again=again, tags=tags)
            verb = "on the way"
        else:
            handle = table_named(name)
            drop, verb = _drop(progress, handle, local, again, on_error, tags), "dropped"
        if wait:
            try:
                _watch(progress, drop, timeout)
            except RefusedSourceError:
                _tell_left_out(drop, began_ms, on_error)
                raise
        elif instance.folder is not None:
            instance.folder.background.was_woken = False  # leave the work to other processes
    _tell(drop, "ingested" if wait else verb)
    if wait:
        _tell_left_out(drop, began_ms, on_error)


def _check_asked(
    files: list[str] | None,
    prefixes: list[str] | None,
    options: SparkOptions | None,
    on_error: OnError | None,
) -> None:
    """Check that what is to be ingested was said in one way, and how in a way that it has."""
    if bool(files) == bool(prefixes):
        raise InvalidRequestError(
            "say what to ingest: either files from here, or keys of the ingest bucket",
            hint="give FILE…, or --prefix KEY",
        )
    if options and files:
        raise InvalidRequestError(
            "files that are dropped go where the table says",
            hint="set its property ingest_spark_bytes, or give --prefix",
        )
    if on_error and prefixes:
        raise InvalidRequestError(
            "of files that are in the bucket already, the table decides what becomes of bad rows",
            hint="set its property ingest_on_error",
        )


@contextmanager
def _here(files: Sequence[str], form: str) -> Iterator[list[str | Path]]:
    """Yield paths of files here, also for those that are elsewhere and for standard input.

    Its file is named by its content, so that the same content is ingested once, and another never
    takes the place of one that waits.
    """
    if "-" in files and not form:
        raise InvalidRequestError(
            "standard input has no name that says what it is", hint="add --format csv, for example"
        )
    if form and "-" not in files:
        raise InvalidRequestError(
            "--format says what standard input is; files are what their names say",
            hint="give - for standard input",
        )
    if form:
        format_of(f"standard input.{form}")
    with local_copies([file for file in files if file != "-"]) as local:
        if "-" not in files:
            yield local
            return
        with tempfile.TemporaryDirectory() as folder:
            content = Path(folder) / "content"
            with content.open("wb") as sink:
                shutil.copyfileobj(typer.get_binary_stream("stdin"), sink)
            with content.open("rb") as source:
                digest = hashlib.file_digest(source, "sha256").hexdigest()
            yield [*local, content.rename(content.with_name(f"stdin-{digest[:32]}.{form}"))]


def _create(
    instance: Instance,
    name: str,
    files: Sequence[str | Path],
    roles: Roles,
    settings: Mapping[str, object],
    on_error: OnError | None,
) -> None:
    """Create a table for rows as those of the first file, unless it is there and as is asked for.

    The file is read to its end before: a table of which it would be refused is not created.
    """
    if not files:
        raise InvalidRequestError("--create needs files from here", hint="give FILE…")
    for setting in settings:
        property_named(setting)
    for handle in instance.tables():
        if handle.name == name:
            _check_agrees(handle.table, roles, settings)
            return
    first, reading = files_to_drop(name, files)[0][1], instance.settings_of(settings)
    reading |= {"ingest_on_error": on_error} if on_error else {}
    inferred = values.inferred_schema(first, *roles, reading)
    check_file(first, inferred.schema, properties_of(parse_settings(reading)))
    instance.create_table(name, inferred.schema, settings)
    values.print_inferred(inferred)
    note(f"table {name} was created")


def _check_agrees(table: Table, roles: Roles, settings: Mapping[str, object]) -> None:
    """Check that a table has the keys that are given for it, and the properties that never change.
    Raises InvalidRequestError: it has others, so its rows would become others too.
    """
    given: dict[str, object] = {
        name: value
        for name, value in parse_settings(settings).items()
        if property_named(name).is_fixed
    }
    there: dict[str, object] = {name: getattr(table.properties, name) for name in given}
    keys = (table.schema.row_keys, table.schema.sort_keys)
    for option, names, fields in zip(("--row-keys", "--sort-keys"), roles, keys, strict=False):
        if names:
            given[option] = ",".join(values.parse_names(names))
            there[option] = ",".join(field.name for field in fields) or "none"
    for what, value in there.items():
        if value != given[what]:
            raise InvalidRequestError(
                f"table {table.name!r} is there already, with {what}={value}, not {given[what]}",
                hint="choose another name for a new table, or ask for what this one has",
            )


def _tell(drop: Ingested, verb: str) -> None:
    """Say what becomes of files, and of which nothing does since they were ingested before."""
    repeats = sum(source.id in drop.known for source in drop.sources)
    fresh = len(drop.sources) - repeats
    if fresh:
        note(f"{counted(fresh, 'file')} {verb}")
    if repeats or not fresh:
        which = counted(repeats, "file") if repeats else "all files there are"
        note(f"{which} already ingested; --again adds the same rows once more")


def _tell_left_out(drop: Ingested, began_ms: int, on_error: OnError | None) -> None:
    """Say of which files rows were left out, by the table's filters or as unreadable."""
    properties = drop.handle.current().properties
    if not properties.filters and "skip" not in (on_error, properties.ingest_on_error):
        return
    for job in drop.handle.jobs():
        is_new = job.kind == "ingest" and job.updated_ms >= began_ms
        if is_new and job.rows_read > job.rows and job.reason:
            note(f"{job.subject}: {job.reason}")


def _key_in(bucket: str, text: str) -> str:
    """Return the key that a person means, who may have named the bucket too."""
    if not text.startswith("s3://"):
        return text
    name, _, key = text.removeprefix("s3://").partition("/")
    if name != bucket:
        raise InvalidRequestError(
            f"{text} is not in the ingest bucket {bucket!r}",
            hint="copy it there, or download it and ingest the files",
        )
    return key


def wait_until_done(
    name: values.AnyTableName = None, timeout: values.TimeoutOption = WAIT_SECONDS
) -> None:
    """Wait until nothing is pending: every file ingested or refused, no work in the queues."""
    wait_for(the_instance() if name is None else table_named(name), timeout)


def wait_for(target: Instance | TableHandle, timeout_seconds: float) -> None:
    """Wait until nothing is pending of a table or of all, and say so."""
    with notes().status("looking") as status:
        target.wait(timeout_seconds, watch=lambda count: status.update(f"{count:,} pending"))
    note("nothing is pending")


def _drop(
    progress: Progress,
    handle: TableHandle,
    files: Sequence[str | Path],
    again: bool,
    on_error: OnError | None,
    tags: Mapping[str, str],
) -> Ingested:
    task = progress.add_task("uploaded", total=len(files_to_drop(handle.name, files)))
    return handle.ingest(
        files,
        again=again,
        on_error=on_error,
        tags=tags,
        wait=False,
        watch=lambda source: progress.advance(task),
    )


def _watch(progress: Progress, drop: Ingested, timeout_seconds: float) -> None:
    total = len(drop.sources)
    task = progress.add_task("ingested", total=total)
    drop.wait(timeout_seconds, watch=lambda count: progress.update(task, completed=total - count))


PendingOption = Annotated[bool, typer.Option("--wait", help="Wait until nothing is pending.")]


def compact(
    name: values.TableName,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Merge all that each leaf holds, whatever the strategy says."),
    ] = False,
    spark: values.SparkOption = False,
    properties: values.JobPropertyOption = None,
    wait: PendingOption = False,
    timeout: values.TimeoutOption = WAIT_SECONDS,
) -> None:
    """Begin the compactions of a table that are due now, or merge all of each leaf partition.

    It works on tables that are offline too. A leaf with very many shards takes several
    compactions: run it again until it begins none. If the table has iceberg=on, --all also
    rewrites lone shards that old readers read slowly, or whose rows are partly dead.
    """
    options = values.parse_spark(spark, properties)
    count = the_instance().compact(name, everything=everything, spark=options)
    note(f"{counted(count, 'compaction')} of table {name} started")
    if wait:
        handle = table_named(name)
        wait_for(handle, timeout)
        if disputed := handle.state().disputed:
            raise CorruptDataError(
                f"{counted(len(disputed), 'shard')} of table {name} cannot be merged",
                hint=f"`dormouse check {name}` says why, and what to do",
            )


def split(
    name: values.TableName,
    partition: Annotated[
        str, typer.Argument(metavar="[PARTITION]", help="A leaf; by default all that are due.")
    ] = "",
    forced: Annotated[bool, typer.Option("--forced", help="Also those with few rows.")] = False,
    wait: PendingOption = False,
    timeout: values.TimeoutOption = WAIT_SECONDS,
) -> None:
    """Split the leaf partitions of a table that have too many rows now, or one of them.

    It works on tables that are offline too. A leaf whose rows all share one key stays whole.
    """
    count = the_instance().split(name, partition, forced=forced)
    note(f"{counted(count, 'split')} of table {name} started")
    if wait:
        wait_for(table_named(name), timeout)


def collect(name: values.TableName) -> None:
    """Delete the shards of a table that nothing needs any more and whose delay is over."""
    shards = the_instance().collect_garbage(name)
    note(f"{counted(shards, 'shard')} of table {name} will be deleted in a moment")


LOOK_SECONDS = 1.0
FULL_SECONDS = 5.0
"""How long a worker waits for room on a full disk before it looks again."""


def work(
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing is left to do now.")
    ] = False,
) -> None:
    """Do the work of an instance in a folder: ingest the files of its inbox, split, compact,
    collect.

    Every process that uses the folder does some of this work while it runs; this one does nothing
    else. Any number of them may run. Ctrl-C ends it at any time: others continue what it began.

    With `--until-idle`, it does not wait for dead letters: it names them, and the exit code is 1.
    """
    instance = the_instance()
    folder = instance.folder
    if folder is None:
        raise InvalidRequestError(
            "a deployment does its work by itself",
            hint="`dormouse work` is for an instance in a folder: --instance ./mice",
        )
    folder.database.check_writable()
    instance = computing_apart(instance)
    with notes().status("looking for work") as status:
        try:
            seconds = 0.0
            while True:
                try:
                    folder.worker.work_for(seconds)
                except DiskFullError as error:
                    if until_idle:
                        raise
                    # a path may have what Rich would take for markup
                    status.update(Text(error.explanation))
                    time.sleep(FULL_SECONDS)
                seconds = LOOK_SECONDS
                depth = sum(instance.queues.depths(QUEUES).values())
                status.update(f"{depth:,} messages to work on" if depth else "waiting for work")
                if until_idle and not depth:
                    _check_dead_letters(instance)
                    if not instance.pending():
                        note("nothing is left to do")
                        return
        except KeyboardInterrupt:
            folder.background.was_woken = False  # else it would go on before it ends
            note("stopped; what is left is done by the next process that uses the folder")


def _check_dead_letters(instance: Instance) -> None:
    """Raise DeadLetterError, once no message is left but dead letters: nobody works on those."""
    for queue in QUEUES:
        for letter in list_letters(instance.services, queue, 1):
            raise dead_letter_error("some work was not done", queue, letter)
