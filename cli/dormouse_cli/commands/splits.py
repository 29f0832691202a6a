"""`dormouse splits …`: where the partitions of a table meet, or should."""

from pathlib import Path
from typing import Annotated

import typer

from dormouse.client.inferring import estimate_splits
from dormouse.key_codec import KeyCodec
from dormouse.schema.schema import Schema
from dormouse_cli.session import table_of
from dormouse_cli.terminal import counted, note
from dormouse_cli.values import TableName, parse_properties, read_file, show_split_points


def estimate(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE…", help="Files as they would be ingested.")
    ],
    partitions: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many leaf partitions are wanted.")
    ],
    schema: Annotated[Path, typer.Option(metavar="FILE", help="The schema, as JSON.")],
    properties: Annotated[
        list[str] | None,
        typer.Option(
            "--property",
            metavar="NAME=VALUE",
            help="A property that the table will have, such as csv_separator. Repeatable.",
        ),
    ] = None,
) -> None:
    """Print the split points that cut the rows of files into equal parts.

    The files are read as an ingest reads them; of the keys, a sample is kept. What is printed is
    what `table add --splits` takes.
    """
    fields = Schema.loads(read_file(schema))
    sample = estimate_splits(
        fields, files, partitions, properties=parse_properties(properties or [])
    )
    points = map(KeyCodec(fields).from_python, sample.points)
    typer.echo(show_split_points(points, fields), nl=False)
    leaves = len(sample.points) + 1
    note(f"{counted(sample.rows, 'row')}, of {sample.sampled:,} of which the keys were compared")
    if leaves < partitions:
        note(
            f"{counted(leaves, 'partition')} instead of {partitions:,}: rows with equal keys stay "
            "together"
        )


def export(ctx: typer.Context, name: TableName) -> None:
    """Print the split points at which the leaf partitions of a table meet.

    What is printed is what `table add --splits` takes.
    """
    table = table_of(ctx, name)
    points = [leaf.range.min for leaf in table.state().partitions.leaves()][1:]
    typer.echo(show_split_points(points, table.schema), nl=False)
