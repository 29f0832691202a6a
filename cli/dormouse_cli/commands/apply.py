"""`dormouse table apply`: tables as a file declares them."""

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from dormouse.errors import InvalidRequestError, needs_extra
from dormouse.schema.types import show_type
from dormouse.tables.declaring import DeclaredChange
from dormouse_cli.listings import Format, print_listing
from dormouse_cli.session import instance_of
from dormouse_cli.terminal import confirm, counted, note, with_consent
from dormouse_cli.values import ForceOption, FormatOption, read_file, show_split_points

MOST_VALUES = 100_000
_COLUMNS = ("table", "change", "before", "after")


def apply(
    ctx: typer.Context,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The tables, as YAML; or as JSON, if it ends in .json."
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    force: ForceOption = False,
    form: FormatOption = Format.table,
) -> None:
    """Make and change tables until they are as a file says; none is deleted.

    The file has a list `tables:` of tables, each with its `name`, and as needed a `schema` (inline,
    or the name of a JSON file beside this one), `properties` (null unsets one), `online`, and for
    new tables `splits` (a list of keys). What would change is shown first. Columns are added only;
    what the file does not name stays. Run again, it changes nothing.
    """
    declared = read_declarations(file)
    instance = instance_of(ctx)
    changes = instance.plan_declared(declared)
    rows = [row for change in changes for row in _rows(change)]
    if rows or form is Format.json:
        print_listing(_COLUMNS, rows, form)
    if not changes:
        note("nothing is to be changed")
    if dry_run or not changes:
        return
    if not force:
        confirm(f"Make these changes to {counted(len(changes), 'table')}?")
    for change in changes:
        with_consent(partial(instance.apply, change), force)
        note(f"table {change.name} {'changed' if change.schema is None else 'created'}")


def read_declarations(path: Path) -> object:
    """Return what a file of tables says, with the schemas of the files that it names.

    Raises:
        InvalidRequestError: it is not YAML, or not JSON; or a schema is not JSON.
        NotFoundError: a file cannot be read.
        MissingPackageError: it is YAML, which no installed package reads.
    """
    if path.suffix == ".json":
        return _plain(_json(path), path.parent, count(1))
    with needs_extra("yaml", "a file of tables in YAML"):
        import yaml  # 3 MB that nothing else needs
    try:
        return _plain(yaml.safe_load(read_file(path)), path.parent, count(1))
    except RecursionError as error:
        raise InvalidRequestError(f"{path} is nested too deep, or in itself") from error
    except (yaml.YAMLError, ValueError) as error:
        raise InvalidRequestError(f"{path} is not valid YAML: {error}") from error


def _plain(value: object, folder: Path, counted: Iterator[int]) -> object:
    """Return the value as JSON would have it: dates as text, schemas read from their files.

    What an alias repeats is there as often as it is named, so a few lines can be more than any
    memory holds: values are `counted`.
    """
    if next(counted) > MOST_VALUES:
        raise InvalidRequestError(f"a file of tables has at most {MOST_VALUES:,} values")
    if isinstance(value, Mapping):
        return {
            str(name): _json(folder / part)
            if name == "schema" and isinstance(part, str)
            else _plain(part, folder, counted)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [_plain(part, folder, counted) for part in value]
    return value.isoformat() if isinstance(value, dt.date) else value


def _json(path: Path) -> object:
    try:
        return json.loads(read_file(path))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path} is not valid JSON: {error}") from error


def _rows(change: DeclaredChange) -> Iterator[dict[str, object]]:
    def row(what: str, before: object, after: object) -> dict[str, object]:
        return dict(zip(_COLUMNS, (change.name, what, before, after), strict=True))

    if change.schema is not None:
        keys = ", ".join(item.name for item in change.schema.row_keys)
        yield row("created", None, f"{len(change.schema.fields)} columns, by {keys}")
    if change.schema is not None and change.splits:
        first = show_split_points(change.splits[:1], change.schema).rstrip("\n")
        yield row("partitions", None, f"{len(change.splits) + 1}, the second from {first} on")
    for item in change.add:
        yield row(f"column {item.name}", None, show_type(item.type))
    for path, kind in change.types.items():
        yield row(f"type of column {path}", None, show_type(kind))
    for name, unit in change.units.items():
        yield row(f"numbers of column {name}", None, unit)
    for name, value in change.properties.items():
        yield row(name, change.before[name], "(unset)" if value is None else value)
    if change.online is not None:
        before = None if change.schema is not None else not change.online
        yield row("online", before, change.online)
