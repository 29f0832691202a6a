"""Plan the changes that make tables match a declaration file; pure.

A declaration adds and changes, and never removes. Tables and columns that it does not name stay as
they are, and so does everything it does not mention about a table. Applying it a second time
changes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from dormouse.errors import InvalidRequestError
from dormouse.keys import Key, show_key
from dormouse.schema.evolution import declared_changes, widens
from dormouse.schema.schema import Field, Schema
from dormouse.schema.types import FieldType
from dormouse.tables.table import (
    Alteration,
    Table,
    apply_alteration,
    check_change,
    check_columns,
    check_name,
    check_properties,
    merge_settings,
)

Value = int | str


@dataclass(frozen=True, slots=True)
class TableDeclaration:
    """A table as a file declares it. None: not declared; a property that is None is to be unset."""

    name: str
    schema: Schema | None = None
    properties: Mapping[str, Value | None] = field(default_factory=dict)
    online: bool | None = None
    splits: tuple[Key, ...] | None = None


@dataclass(frozen=True, slots=True)
class DeclaredChange:
    """The changes that make one table match its declaration.

    `schema` and `splits` are those of a table to be created. `add` are columns and members of
    structs to add to an existing table, `units` the new units of existing columns, `types` the
    wider types of columns and what is nested in them, by paths. `properties` are those to set, or
    to unset if None; `before` holds their present values. `online` is None if it stays as it is.
    """

    name: str
    schema: Schema | None = None
    splits: tuple[Key, ...] = ()
    add: tuple[Field, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, FieldType] = field(default_factory=dict)
    properties: Mapping[str, Value | None] = field(default_factory=dict)
    before: Mapping[str, Value | None] = field(default_factory=dict)
    online: bool | None = None

    @property
    def is_empty(self) -> bool:
        """Return whether nothing has to change."""
        return self == DeclaredChange(self.name)


def plan_table_changes(
    declared: Sequence[TableDeclaration],
    tables: Iterable[Table],
    split_keys: Mapping[str, Set[Key]],
    defaults: Mapping[str, Value],
) -> list[DeclaredChange]:
    """Return the changes, in the order of the declarations, without the empty ones.

    `split_keys` maps the name of each existing table for which splits are declared to the keys at
    which its partitions were ever split. `defaults` are the instance's properties.
    Raises InvalidRequestError: a declaration cannot be met by adding and changing; the message
    names the table and the reason.
    """
    existing = {table.name: table for table in tables}
    changes = []
    names: set[str] = set()
    for spec in declared:
        if spec.name in names:
            raise InvalidRequestError(f"table {spec.name!r} is declared twice")
        names.add(spec.name)
        table = existing.get(spec.name)
        try:
            if table is None:
                change = _creation(spec, defaults)
            else:
                change = _change(spec, table, split_keys.get(spec.name, set()), defaults)
        except InvalidRequestError as error:
            raise InvalidRequestError(f"table {spec.name!r}: {error}", hint=error.hint) from error
        if not change.is_empty:
            changes.append(change)
    return changes


def _creation(spec: TableDeclaration, defaults: Mapping[str, Value]) -> DeclaredChange:
    check_name(spec.name)
    if spec.schema is None:
        raise InvalidRequestError("it does not exist; a schema is needed to create it")
    settings = {name: value for name, value in spec.properties.items() if value is not None}
    draft = Table("", spec.name, spec.schema).with_settings(settings, defaults)
    check_columns(spec.schema, draft.properties)
    check_properties(spec.schema, draft.properties)
    return DeclaredChange(
        spec.name,
        schema=spec.schema,
        splits=spec.splits or (),
        properties=settings,
        before=dict.fromkeys(settings),
        online=False if spec.online is False else None,
    )


def _change(
    spec: TableDeclaration, table: Table, split_keys: Set[Key], defaults: Mapping[str, Value]
) -> DeclaredChange:
    if table.deleting:
        raise InvalidRequestError("it is being deleted", hint="try again when it is gone")
    _check_splits(spec.splits or (), split_keys)
    add, types = _new_columns(spec.schema, table.schema.opened) if spec.schema else ((), {})
    units = _new_units(spec.schema, table.schema) if spec.schema else {}
    target = table
    alteration = Alteration(add=add, units=units, types=types)
    if alteration != Alteration():
        schema = apply_alteration(table.schema, alteration, table.properties)
        target = replace(target, schema=schema)
    settings = {
        name: value for name, value in spec.properties.items() if table.settings.get(name) != value
    }
    if settings:
        put = {name: value for name, value in settings.items() if value is not None}
        unset = settings.keys() - put.keys()
        own = merge_settings(table.settings, put, unset)
        target = target.with_settings(own, defaults)
        check_change(table, target)
    return DeclaredChange(
        table.name,
        add=add,
        units=units,
        types=types,
        properties=settings,
        before={name: getattr(table.properties, name) for name in settings},
        online=spec.online if spec.online not in (None, table.online) else None,
    )


def _check_splits(splits: Sequence[Key], there: Set[Key]) -> None:
    missing = [key for key in splits if key not in there]
    if missing:
        raise InvalidRequestError(
            f"it exists, and is not split at ({show_key(missing[0])})",
            hint="split points are for new tables; take them out of the file, or empty the table "
            "with `dormouse table reinitialise --splits`",
        )


def _new_columns(declared: Schema, there: Schema) -> tuple[tuple[Field, ...], dict[str, FieldType]]:
    """Return the columns and members to add, and the types that differ, by paths."""
    for part, fields, declared_fields in (
        ("row keys", there.row_keys, declared.row_keys),
        ("sort keys", there.sort_keys, declared.sort_keys),
    ):
        if len(fields) != len(declared_fields) or not all(
            f.name == g.name and widens(f.type, g.type)
            for f, g in zip(fields, declared_fields, strict=True)
        ):
            names = ", ".join(f.name for f in fields) or "none"
            raise InvalidRequestError(
                f"its {part} ({names}) cannot be changed: keys decide where rows are stored",
                hint="declare a table of another name, or empty this one with `dormouse table "
                "reinitialise --schema`, and ingest the rows into it",
            )
    by_name = {item.name: item for item in there.fields}
    for item in declared.values:
        if item.name not in by_name and (reason := there.explain_former_name(item.name)):
            raise InvalidRequestError(
                f"it has no column {item.name!r} any more: {reason}",
                hint="change the file, or add the column again with `dormouse table alter`",
            )
    add, types = declared_changes(there.fields, declared.fields)
    return tuple(add), types


def _new_units(schema: Schema, there: Schema) -> dict[str, str]:
    """Return the declared units that differ from the present ones, by column name."""
    units = {item.name: item.unit for item in there.fields}
    return {
        item.name: item.unit
        for item in schema.fields
        if item.unit and units.get(item.name, item.unit) != item.unit
    }
