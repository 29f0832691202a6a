"""`dormouse table, splits, instance`: tables, where their partitions meet or should, and the
properties of tables and of all of them.
"""

import datetime as dt
import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from dormouse.client.instance import Instance
from dormouse.client.operations import SparkStatus
from dormouse.client.table import TableHandle
from dormouse.errors import InvalidRequestError, needs_extra
from dormouse.key_codec import KeyCodec
from dormouse.schema.schema import Schema
from dormouse.schema.types import show_type
from dormouse.settings import library_version
from dormouse.tables.declaring import DeclaredChange
from dormouse.tables.properties import KNOWN, Properties, properties_of
from dormouse.tables.table import property_sources
from dormouse_cli import values
from dormouse_cli.errors import end_if_damaged
from dormouse_cli.session import table_named, the_instance
from dormouse_cli.terminal import (
    Format,
    confirm,
    counted,
    note,
    print_facts,
    print_items,
    print_json,
    print_listing,
    row_of,
    with_consent,
)

_LISTED = ("name", "online", "row_keys", "created")
_SIZES = ("rows", "size_bytes")


def add(
    name: values.NewTableName,
    schema: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|TEXT",
            help="The schema: JSON, or columns such as 'id:long, at:timestamp, name:string?', with "
            "--row-keys.",
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of a schema: a Parquet, Arrow, CSV or JSON lines file to infer it from.",
        ),
    ] = None,
    row_keys: values.RowKeysOption = None,
    sort_keys: values.SortKeysOption = None,
    types: values.TypesOption = None,
    splits: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Where its first partitions meet, ascending: on each line a value of the first "
            "row key, or a JSON list of the values of several.",
        ),
    ] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=VALUE", help="Sets a property; repeatable."),
    ] = None,
) -> None:
    """Create a table.

    Its schema is written, or inferred from a file: then it is shown, with what the file has.
    """
    settings = values.parse_properties(properties or [])
    if (schema is None) == (like is None):
        raise typer.BadParameter("give --schema FILE, or --like FILE --row-keys NAME,…")
    instance, inferred = the_instance(makes=True), None
    if like is not None:
        of_table = instance.settings_of(settings)
        inferred = values.inferred_schema(like, row_keys, sort_keys, types, of_table)
        fields = inferred.schema
    else:
        fields = values.written_schema(schema or "", row_keys, sort_keys, types)
    points = values.parse_split_points(values.read_file(splits), fields) if splits else []
    instance.create_table(name, fields, settings, points)
    if inferred is not None:
        values.print_inferred(inferred)
    note(f"table {name} was created")


def _sizes(table: TableHandle, is_damaged: bool) -> dict[str, object]:
    if is_damaged:
        return dict.fromkeys(_SIZES)
    state = table.state()
    return {"rows": state.rows, "size_bytes": state.size_bytes}


def list_tables(
    form: values.ListFormatOption = "table",
    sizes: Annotated[
        bool | None,
        typer.Option(
            "--sizes/--no-sizes",
            help="Whether to show rows and bytes, which reads the state of each table; by default, "
            "only for an instance in a folder, where that takes milliseconds.",
        ),
    ] = None,
) -> None:
    """List all tables.

    One whose entry in the registry is damaged is listed with what is wrong; then the exit code
    is 1.
    """
    instance = the_instance()
    sizes = instance.folder is not None if sizes is None else sizes
    tables, damaged = instance.list_readable()
    problems = {error.table_id or error.name: str(error) for error in damaged}
    rows: list[dict[str, object]] = [
        {
            "name": table.name,
            "online": table.table.online,
            "row_keys": [field.name for field in table.schema.row_keys],
        }
        | row_of(("created",), table.table)
        | (_sizes(table, table.table.id in problems) if sizes else {})
        | ({"damaged": problems.get(table.table.id, "")} if damaged else {})
        for table in tables
    ]
    columns = (*_LISTED, *(_SIZES if sizes else ()), *(["damaged"] if damaged else ()))
    ids = {table.table.id for table in tables}
    rows += [
        dict.fromkeys(columns) | {"name": error.what, "damaged": str(error)}
        for error in damaged
        if (error.name or error.table_id) and error.table_id not in ids
    ]
    print_listing(columns, rows, form)
    end_if_damaged(damaged)


def unregistered(form: values.ListFormatOption = "table") -> None:
    """List what in the data bucket belongs to no known table; none of it is ever deleted.

    Each line is an id with neither an entry in the registry nor the tombstone of a table that was
    deleted: the entry may be lost. The exit code is 0 if there is none, else 1.
    """
    leftovers = the_instance().unregistered()
    print_items(("id", "objects", "size_bytes", "newest"), leftovers, form, id="table_id")
    if leftovers:
        raise typer.Exit(1)


def show(name: values.TableName, form: values.FormatOption = "table") -> None:
    """Show a table's columns and properties, and where each value comes from.

    A property is the table's own, or the instance's, or the default.
    """
    table = table_named(name)
    properties, own = table.table.properties, table.table.own
    defaults = the_instance().defaults()
    if form == "json":
        settings = {name: getattr(properties, name) for name in KNOWN}
        origins = property_sources(own, defaults)
        body = {"schema": table.schema.to_json(), "properties": settings, "set_by": origins}
        print_json({**_facts(table), **body})
        return
    print_facts(_facts(table), form)
    print_listing(values.COLUMNS, values.column_rows(table.table.schema), form)
    _print_properties(properties, own, defaults, KNOWN, form)


def alter(
    name: values.TableName,
    add_field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME:TYPE",
            help="Adds a column, null in the rows there are, or as COLUMN.MEMBER a member of a "
            "struct; types are spelled long, list<string>, decimal(10,2), map<string,long>, "
            "struct<a:long,b:date?>. Or a field as in a schema, as JSON. Repeatable.",
        ),
    ] = None,
    drop_field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Drops a column, or a member, with its values; repeatable."
        ),
    ] = None,
    rename_field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OLD=NEW", help="Renames a column, or a member, as COLUMN.OLD=NEW; repeatable."
        ),
    ] = None,
    types: values.WiderTypesOption = None,
    unit: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=UNIT",
            help="Says what numbers in files count since 1970 in a column of times (seconds, "
            "milliseconds, microseconds, nanoseconds) or dates (days); none refuses numbers again. "
            "Repeatable.",
        ),
    ] = None,
    form: values.FormatOption = "table",
) -> None:
    """Add, drop and rename a table's value columns and the members of structs, widen types, and
    show the columns it has afterwards.

    A member is named by its column, a dot and its own name. Between them, the elements of a list
    are called element, the values of a map value: points.element.x.
    """
    table = table_named(name)
    changed = table.alter(
        add=values.parse_new_fields(add_field or []),
        drop=drop_field or [],
        rename=values.parse_renames(rename_field or [], table.schema),
        units=values.parse_units(unit or []),
        types=values.parse_types(types or []),
    )
    if form == "json":
        print_json(changed.schema.to_json())
        return
    print_listing(values.COLUMNS, values.column_rows(changed.table.schema), form)


def delete(
    name: values.TableName,
    force: values.ForceOption = False,
    release_tags: values.ReleaseTagsOption = False,
) -> None:
    """Delete a table with all its rows. Files dropped for it stay in the ingest bucket."""
    if not force:
        confirm(f"Delete table {name}? {contents_of(table_named(name))} are lost.")
    the_instance().delete_table(name, release_tags=release_tags)
    note(f"table {name} was deleted")


def online(name: values.TableName) -> None:
    """Put a table online: it is compacted and split as needed."""
    the_instance().set_online(name, True)
    note(f"table {name} is online")


def offline(name: values.TableName) -> None:
    """Take a table offline: it ingests and answers, but is neither compacted nor split."""
    the_instance().set_online(name, False)
    note(f"table {name} is offline")


def contents_of(handle: TableHandle) -> str:
    """Say what a table holds, in numbers."""
    state = handle.state()
    shards = len(state.shards) - len(state.unreferenced)
    return f"Its {counted(state.rows, 'row')} in {counted(shards, 'shard')}"


def _facts(handle: TableHandle) -> dict[str, object]:
    return row_of(("name", "id", "online", "created"), handle.table)


Settings = Annotated[
    list[str],
    typer.Argument(metavar="KEY=VALUE…", help="Properties; `dormouse instance show` lists all."),
]
Names = Annotated[list[str], typer.Argument(metavar="KEY…", help="Names of properties.")]


def rename(
    old: values.TableName, new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
) -> None:
    """Rename a table. Files are dropped for it under the new name from then on.

    Files dropped under the old name that no job has taken up yet are refused.
    """
    the_instance().rename_table(old, new)
    note(f"table {old} is called {new} now")


def set_properties(
    name: values.TableName,
    settings: Settings,
    force: values.ForceOption = False,
    form: values.FormatOption = "table",
) -> None:
    """Set properties of a table. They hold at once, for what begins from now on.

    Asks first if new filters or aggregations hide rows that the table has.
    """
    properties = values.parse_properties(settings)
    instance = the_instance()
    with_consent(partial(instance.set_properties, name, properties), force)
    _show_changed(instance, name, properties, form)


def unset_properties(
    name: values.TableName,
    names: Names,
    force: values.ForceOption = False,
    form: values.FormatOption = "table",
) -> None:
    """Unset properties of a table: those of the instance hold again, or the defaults.

    Asks first if filters or aggregations of the instance hide rows that the table has.
    """
    instance = the_instance()
    with_consent(partial(instance.set_properties, name, unset=names), force)
    _show_changed(instance, name, names, form)


def reinitialise(
    name: values.TableName,
    splits: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where its partitions meet then, as `table add` has it."),
    ] = None,
    delete_partitions: Annotated[
        bool,
        typer.Option("--delete-partitions", help="Leave it a single partition, without --splits."),
    ] = False,
    schema: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The schema it has then, as JSON; ids in it are ignored."
        ),
    ] = None,
    force: values.ForceOption = False,
    release_tags: values.ReleaseTagsOption = False,
) -> None:
    """Empty a table: its rows are lost, its name and properties stay.

    Its partitions and schema stay, too, unless they are given by files, or the partitions are
    deleted. Files that were ingested can be ingested again; those dropped for it and not ingested
    yet are refused. Versions with a tag can still be read, unless the tags are released.
    """
    table = table_named(name)
    new_schema = Schema.loads(values.read_file(schema)) if schema else None
    points = (
        values.parse_split_points(values.read_file(splits), new_schema or table.schema)
        if splits
        else []
    )
    replaces = delete_partitions or splits is not None  # by a file without any, too
    if not force:
        leaves = sum(1 for _ in table.state().partitions.leaves())
        fate = f"become {len(points) + 1:,}" if replaces else "stay"
        loss = f"{contents_of(table)} are lost; its {leaves:,} leaf partitions {fate}."
        loss += " It gets another schema." if new_schema else ""
        confirm(f"Empty table {name}? {loss}")
    the_instance().reinitialise_table(
        name, points, delete_partitions=replaces, schema=new_schema, release_tags=release_tags
    )
    note(f"table {name} is empty")


def _show_changed(instance: Instance, name: str, names: Container[str], form: Format) -> None:
    table = instance.table(name).table
    _print_properties(table.properties, table.own, instance.defaults(), names, form)


def _print_properties(
    properties: Properties,
    own: Container[str],
    defaults: Container[str],
    names: Container[str],
    form: Format,
) -> None:
    """List some properties, each with its value, and who set it."""
    rows: list[dict[str, object]] = [
        {"property": name, "value": getattr(properties, name), "set_by": origin}
        for name, origin in property_sources(own, defaults).items()
        if name in names
    ]
    print_listing(("property", "value", "set_by"), rows, form)


def show_defaults(form: values.FormatOption = "table") -> None:
    """Show the properties of the instance, which of them are set, and what it has of Spark."""
    instance = the_instance()
    _show_defaults(instance.defaults(), KNOWN, form)
    standing = instance.spark()
    if form == "json":
        print_json({"spark": asdict(standing)})
    else:
        print_facts({"Spark": _application(standing), "package": _package(standing)}, form)


def _application(standing: SparkStatus) -> str:
    if standing.unknown:
        return f"not known: {standing.unknown}"
    if not standing.application:
        return "no application: functions do heavy jobs, too"
    return f"application {standing.application}, {standing.state}"


def _package(standing: SparkStatus) -> str:
    match standing.package:
        case "missing":
            return "missing: the first job for Spark brings it"
        case "fits":
            return f"fits: {standing.version}, of this version of the library, {standing.library}"
        case "other version":
            return (
                f"other version: {standing.version}, of version {standing.library} of the library; "
                f"this command is of {library_version()}"
            )


def set_defaults(
    settings: Settings, force: values.ForceOption = False, form: values.FormatOption = "table"
) -> None:
    """Set properties of the instance. They hold at once for tables that do not set them.

    Asks first if new filters or aggregations hide rows that a table has.
    """
    instance, properties = the_instance(), values.parse_properties(settings)
    with_consent(partial(instance.set_defaults, properties), force)
    _show_defaults(instance.defaults(), properties, form)


def unset_defaults(names: Names, form: values.FormatOption = "table") -> None:
    """Unset properties of the instance: their defaults hold again."""
    _show_defaults(the_instance().set_defaults(unset=names), names, form)


def _show_defaults(defaults: dict[str, int | str], names: Container[str], form: Format) -> None:
    _print_properties(properties_of(defaults), (), defaults, names, form)


MOST_VALUES = 100_000
_COLUMNS = ("table", "change", "before", "after")


def apply(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="The tables, as YAML; or as JSON, if it ends in .json."
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change.")
    ] = False,
    force: values.ForceOption = False,
    form: values.FormatOption = "table",
) -> None:
    """Make and change tables until they are as a file says; none is deleted.

    The file has a list `tables:` of tables, each with its `name`, and as needed a `schema` (inline,
    or the name of a JSON file beside this one), `properties` (null unsets one), `online`, and for
    new tables `splits` (a list of keys). What would change is shown first. Columns are added only;
    what the file does not name stays. Run again, it changes nothing.
    """
    declared = read_declarations(file)
    instance = the_instance()
    changes = instance.plan_declared(declared)
    rows = [row for change in changes for row in _rows(change)]
    if rows or form == "json":
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
        return _plain(yaml.safe_load(values.read_file(path)), path.parent, count(1))
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
        return json.loads(values.read_file(path))
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{path} is not valid JSON: {error}") from error


def _rows(change: DeclaredChange) -> Iterator[dict[str, object]]:
    def row(what: str, before: object, after: object) -> dict[str, object]:
        return dict(zip(_COLUMNS, (change.name, what, before, after), strict=True))

    if change.schema is not None:
        keys = ", ".join(item.name for item in change.schema.row_keys)
        yield row("created", None, f"{len(change.schema.fields)} columns, by {keys}")
    if change.schema is not None and change.splits:
        first = values.show_split_points(change.splits[:1], change.schema).rstrip("\n")
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
    from dormouse.client.inferring import estimate_splits  # Arrow, and all forms of files

    fields = Schema.loads(values.read_file(schema))
    sample = estimate_splits(
        fields, files, partitions, properties=values.parse_properties(properties or [])
    )
    points = map(KeyCodec(fields).from_python, sample.points)
    typer.echo(values.show_split_points(points, fields), nl=False)
    leaves = len(sample.points) + 1
    note(f"{counted(sample.rows, 'row')}, of {sample.sampled:,} of which the keys were compared")
    if leaves < partitions:
        note(
            f"{counted(leaves, 'partition')} instead of {partitions:,}: rows with equal keys stay "
            "together"
        )


def export(name: values.TableName) -> None:
    """Print the split points at which the leaf partitions of a table meet.

    What is printed is what `table add --splits` takes.
    """
    table = table_named(name)
    points = [leaf.range.min for leaf in table.state().partitions.leaves()][1:]
    typer.echo(values.show_split_points(points, table.schema), nl=False)
