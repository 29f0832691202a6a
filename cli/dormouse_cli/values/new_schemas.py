"""Schemas of new tables on the command line: written, or inferred from a file and shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Schema
from dormouse_cli.listings import Format, print_listing
from dormouse_cli.terminal import note
from dormouse_cli.values.arguments import read_file

if TYPE_CHECKING:
    from dormouse.client.ingesting.inferring import Inferred


MAX_PATH_CHARACTERS = 250
COLUMNS = ("column", "type", "role")

RowKeysOption = Annotated[
    list[str] | None,
    typer.Option("--row-keys", metavar="A,B", help="Columns that partition and sort the rows."),
]
SortKeysOption = Annotated[
    list[str] | None,
    typer.Option("--sort-keys", metavar="A,B", help="Columns that sort rows of equal row keys."),
]
TypesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        metavar="NAME:TYPE",
        help="The type of a column, in place of the inferred one; repeatable.",
    ),
]


def written_schema(
    text: str,
    row_keys: Sequence[str] | None,
    sort_keys: Sequence[str] | None,
    types: Sequence[str] | None,
) -> Schema:
    """Return the schema of a file, or of the text itself.

    Raises:
        NotFoundError: it is neither.
        InvalidRequestError: it is no schema.
    """
    from dormouse.schema.columns import parse_schema

    if types:
        raise InvalidRequestError(
            "--type goes with --like", hint="a schema says the type of each column itself"
        )
    # a path that is too long for the file system is text, and may not even be looked for
    is_text = ":" in text and (len(text) > MAX_PATH_CHARACTERS or not Path(text).is_file())
    content = text if is_text else _decoded(read_file(Path(text)), Path(text))
    return parse_schema(content, _names(row_keys), _names(sort_keys))


def inferred_schema(
    like: Path,
    row_keys: Sequence[str] | None,
    sort_keys: Sequence[str] | None,
    types: Sequence[str] | None,
    properties: Mapping[str, object],
) -> Inferred:
    """Return the schema inferred from a file.

    Raises:
        InvalidRequestError: it cannot be inferred.
    """
    from dormouse.client.ingesting.inferring import infer_schema

    wanted = {}
    for text in types or ():
        name, colon, kind = text.rpartition(":") if text.count(":") == 1 else text.partition(":")
        if not name or not colon:
            raise InvalidRequestError(f"{text!r} is no column", hint="write it as name:type")
        wanted[name] = kind
    keys, sorting = _names(row_keys), _names(sort_keys)
    return infer_schema(like, keys, sorting, wanted, properties=properties)


def print_inferred(inferred: Inferred) -> None:
    """Print what each column of a file was taken for."""
    found = {column.name: column.found for column in inferred.columns}
    rows = [
        {**row, "in the file": found[str(row["column"])]} for row in column_rows(inferred.schema)
    ]
    print_listing(("column", "in the file", "type", "role"), rows, Format.table)
    for remark in inferred.remarks:
        note(remark)
    if inferred.sampled_rows is not None:
        note(f"inferred from the first {inferred.sampled_rows:,} rows")


def column_rows(schema: Schema) -> list[dict[str, object]]:
    """Return the columns of a schema as rows of a listing."""
    return [dict(zip(COLUMNS, row, strict=True)) for row in schema.described()]


def _names(given: Sequence[str] | None) -> list[str]:
    """Return names that are given one an argument, or several with commas between."""
    return [name for text in given or () for name in text.split(",") if name]


def _decoded(content: bytes, path: Path) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(
            f"{str(path)!r} is no text, so it is no schema",
            hint=f"to infer the schema of a data file: --like {path} --row-keys NAME,…",
        ) from error
