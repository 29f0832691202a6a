"""The arguments and options that many verbs share."""

from __future__ import annotations

from typing import Annotated

import typer

from dormouse_cli.listings import Format, ListFormat
from dormouse_cli.session import tables_beginning

TableName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The table's name.", autocompletion=tables_beginning),
]
NewTableName = Annotated[str, typer.Argument(metavar="NAME", help="The table's name.")]
FormatOption = Annotated[Format, typer.Option("--format", help="How to print it.")]
ListFormatOption = Annotated[ListFormat, typer.Option("--format", help="How to print it.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Do not ask.")]
ReleaseTagsOption = Annotated[
    bool, typer.Option("--release-tags", help="Remove the tags of the table with it.")
]
SparkOption = Annotated[
    bool, typer.Option("--spark", help="Have Spark do it, even if it is small.")
]
JobPropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="NAME=VALUE",
        help="spark_executors, spark_executor_cores or spark_executor_memory_bytes for this job "
        "alone, which is then for Spark; repeat for more.",
    ),
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait at most.")
]
