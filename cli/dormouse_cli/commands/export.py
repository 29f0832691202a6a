"""`dormouse export` and `copy`: rows of one version as Parquet files, or in another instance."""

import json
from pathlib import Path
from typing import Annotated

import typer

from dormouse.client.instance import Instance
from dormouse.client.requested import Export, StatementManifest, empty_folder
from dormouse.client.waiting import WAIT_SECONDS, TaskProgress
from dormouse.features.copying import CopyReport
from dormouse.features.export import ExportManifest
from dormouse.files.results import ResultFormat
from dormouse.state.versions import parse_as_of
from dormouse.tables.properties import SparkOptions
from dormouse_cli import values
from dormouse_cli.commands.query import ColumnsOption, KeyOption, RangeOption, WhereOption
from dormouse_cli.session import finish_work, table_named, tables_beginning, the_instance
from dormouse_cli.terminal import (
    Format,
    counted,
    note,
    print_facts,
    progress_bars,
    progress_of,
    row_of,
)

TableOption = Annotated[
    str, typer.Argument(metavar="[NAME]", help="The table's name.", autocompletion=tables_beginning)
]
SqlOption = Annotated[
    str, typer.Option("--sql", metavar="QUERY", help="The rows of this query, of any tables.")
]
FileFormatOption = Annotated[ResultFormat, typer.Option(help="The format of the files of --sql.")]
PrefixOption = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="PREFIX",
        help="Where in the bucket for results; by default below the table's name and the "
        "export's id.",
    ),
]
FolderOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Also copy the files into this new or empty folder."),
]
SkipDamagedOption = Annotated[
    bool,
    typer.Option(
        "--skip-damaged",
        help="Verify each shard first, and leave out all rows of those that are lost or damaged.",
    ),
]
WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until all files are there.")
]

_BESIDE_SQL = "--sql goes with --to, --file-format, --spark, --timeout; no NAME"


def export(
    name: TableOption = "",
    sql: SqlOption = "",
    file_format: FileFormatOption = ResultFormat.parquet,
    to: PrefixOption = "",
    key: KeyOption = None,
    key_range: RangeOption = None,
    where: WhereOption = None,
    columns: ColumnsOption = None,
    as_of: values.AsOfOption = None,
    output: FolderOption = None,
    spark: values.SparkOption = False,
    properties: values.JobPropertyOption = None,
    skip_damaged: SkipDamagedOption = False,
    wait: WaitOption = True,
    timeout: values.TimeoutOption = WAIT_SECONDS,
    form: values.FormatOption = "table",
) -> None:
    """Write rows to Parquet files, sorted, as they are at one version of the table.

    Keys, ranges, conditions and columns are as for query. The files are complete when the manifest
    is there, _manifest.json, which counts their rows. AWS deletes them after ResultsDays (30). If
    a shard is lost or damaged, the export fails; with --skip-damaged, the rows of all others are
    written, what is left out is listed, and the exit code is 1.

    With --sql, this process (or Spark, with --spark) runs the query, and needs no name of a table.
    """
    options = values.parse_spark(spark, properties)
    if sql:
        if any((name, key, key_range, where, columns, as_of, output, skip_damaged, not wait)):
            raise typer.BadParameter(_BESIDE_SQL)
        _export_sql(sql, to, file_format, timeout, form, options)
        return
    _check_table(name, file_format)
    if output is not None:
        if not wait:
            raise typer.BadParameter("--output needs to wait: it does not go with --no-wait")
        empty_folder(output)
    handle = table_named(name)
    job = handle.export(
        values.parse_ranges(key_range, handle.schema),
        to=to,
        exact=values.parse_keys(key, handle.schema) or None,
        where=where,
        columns=values.parse_columns(columns or [], handle.schema),
        as_of=None if as_of is None else parse_as_of(as_of),
        spark=options,
        skip_damaged=skip_damaged,
    )
    if not wait:
        note(f"export {job.id} to {job.uri} has begun")
        return
    manifest = _finish(job, timeout, output)
    facts = {"version": manifest.version, **_facts(job.uri, manifest)}
    if manifest.skipped:
        facts["skipped_shards"] = len(manifest.skipped)
        facts["skipped_rows"] = sum(shard.rows for shard in manifest.skipped)
    print_facts(facts | ({"copied_to": str(output)} if output else {}), form)
    _list_skipped(manifest)


def _list_skipped(manifest: ExportManifest) -> None:
    """List the shards that the export left out, and end the command with 1, if there are any."""
    for shard in manifest.skipped or ():
        note(
            f"left out {shard.shard}: {counted(shard.rows, 'row')}, keys {_key(shard.min_key)} to "
            f"{_key(shard.max_key)}: {shard.reason}"
        )
    if manifest.skipped:
        raise typer.Exit(1)


def _key(key: tuple[object, ...]) -> str:
    return json.dumps(key[0] if len(key) == 1 else key, ensure_ascii=False)


def _check_table(name: str, file_format: ResultFormat) -> None:
    if not name:
        raise typer.BadParameter("name a table, or give a query with --sql")
    if file_format is not ResultFormat.parquet:
        raise typer.BadParameter("a table is exported as Parquet; --file-format is for --sql")


def _export_sql(
    sql: str,
    to: str,
    file_format: ResultFormat,
    timeout: float,
    form: Format,
    spark: SparkOptions | None,
) -> None:
    result = the_instance().export_sql(
        sql, to=to, form=file_format.value, timeout_seconds=timeout, spark=spark
    )
    manifest = result.manifest
    print_facts({"versions": manifest.versions, **_facts(result.uri, manifest)}, form)


def _finish(job: Export, timeout_seconds: float, output: Path | None) -> ExportManifest:
    """Wait until an export has ended, and copy its files if that was asked for."""
    with progress_bars() as progress:
        task = progress.add_task("tasks done", total=None)

        def watch(now: TaskProgress) -> None:
            progress.update(task, completed=now.done, total=now.tasks)

        manifest = job.wait(timeout_seconds, watch=watch)
        progress.update(task, visible=False)
        if output is not None:
            copies = progress.add_task("files copied", total=len(manifest.files))
            job.download(output, watch=lambda _: progress.advance(copies))
    return manifest


def _facts(uri: str, manifest: ExportManifest | StatementManifest) -> dict[str, object]:
    files, rows, size_bytes = len(manifest.files), manifest.rows, manifest.size_bytes
    return {"files": files, "rows": rows, "bytes": size_bytes, "where": uri}


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
    form: values.FormatOption = "table",
) -> None:
    """Copy a table from one instance to another: `dormouse copy flights ./mice prod`.

    Rows, schema, properties, partitions and what was ingested are copied; the source stays as it
    is. The copy becomes visible when it is complete. If the command is interrupted, run it again:
    it continues.
    """
    with Instance.connect(source, background=False, create=False) as here:
        table = here.table(name)
        there = Instance.connect(target, background=False)
        try:
            if there.folder is not None and there.folder.was_made:
                note(f"made an instance in {there.folder.layout.root}")
            with progress_of("shards copied") as watch:
                _show(there.copy_table(table, new_name, watch=watch), form)
        finally:
            finish_work(there)


def _show(copy: CopyReport, form: Format) -> None:
    if copy.was_complete:
        note("the copy was complete already; nothing was copied")
    columns = ("version", "rows", "shards", "copied")
    print_facts({"table": copy.table.name, **row_of(columns, copy)}, form)
