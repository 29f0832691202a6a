"""`dormouse export`: rows of one version as Parquet files, in the bucket for results and here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from dormouse.client import Export, ExportProgress
from dormouse.client.exporting import empty_folder
from dormouse.client.waiting import WAIT_SECONDS
from dormouse.features.export.manifests import Manifest
from dormouse.key_forms.codec import KeyCodec
from dormouse.key_forms.python import KeyLike
from dormouse.model.as_of import parse_as_of
from dormouse_cli.commands.query import (
    AsOfOption,
    ColumnsOption,
    KeyOption,
    RangeOption,
    WhereOption,
)
from dormouse_cli.listings import Format, print_facts
from dormouse_cli.session import table_of
from dormouse_cli.terminal import note, progress_bars
from dormouse_cli.values.arguments import parse_columns, parse_spark
from dormouse_cli.values.parameters import (
    FormatOption,
    JobPropertyOption,
    SparkOption,
    TableName,
    TimeoutOption,
)


def export(
    ctx: typer.Context,
    name: TableName,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="PREFIX",
            help="Where in the bucket for results; by default below the table's name and the "
            "export's id.",
        ),
    ] = "",
    key: KeyOption = None,
    key_range: RangeOption = None,
    where: WhereOption = None,
    columns: ColumnsOption = None,
    as_of: AsOfOption = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also copy the files into this new or empty folder."),
    ] = None,
    spark: SparkOption = False,
    properties: JobPropertyOption = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until all files are there.")
    ] = True,
    timeout: TimeoutOption = WAIT_SECONDS,
    form: FormatOption = Format.table,
) -> None:
    """Write rows to Parquet files, sorted, as they are at one version of the table.

    Keys, ranges, conditions and columns are as for query. The files are complete when the manifest
    is there, _manifest.json, which counts their rows. They are deleted after some days.
    """
    if output is not None:
        if not wait:
            raise typer.BadParameter("--output needs to wait: it does not go with --no-wait")
        empty_folder(output)
    handle = table_of(ctx, name)
    codec = KeyCodec(handle.schema)
    keys: list[KeyLike] = [codec.from_assignments(text) for text in key or ()]
    begun = handle.export(
        [codec.range_from_assignments(text) for text in key_range or ()] or None,
        to=to,
        exact=keys or None,
        where=where,
        columns=parse_columns(columns or [], handle.schema),
        as_of=None if as_of is None else parse_as_of(as_of),
        spark=parse_spark(spark, properties),
    )
    if not wait:
        note(f"export {begun.id} to {begun.uri} has begun")
        return
    with progress_bars() as progress:
        manifest = _watch(progress, begun, timeout)
        if output is not None:
            _download(progress, begun, manifest, output)
    print_facts(_facts(begun, manifest, output), form)


def _watch(progress: Progress, begun: Export, timeout_seconds: float) -> Manifest:
    task = progress.add_task("tasks done", total=None)

    def watch(now: ExportProgress) -> None:
        progress.update(task, completed=now.done, total=now.tasks)

    manifest = begun.wait(timeout_seconds, watch=watch)
    progress.update(task, visible=False)
    return manifest


def _download(progress: Progress, begun: Export, manifest: Manifest, folder: Path) -> None:
    task = progress.add_task("files copied", total=len(manifest.files))
    begun.download(folder, watch=lambda _: progress.advance(task))


def _facts(begun: Export, manifest: Manifest, output: Path | None) -> dict[str, object]:
    facts: dict[str, object] = {
        "version": manifest.version,
        "files": len(manifest.files),
        "rows": manifest.rows,
        "bytes": manifest.size_bytes,
        "where": begun.uri,
    }
    return facts if output is None else {**facts, "copied_to": str(output)}
