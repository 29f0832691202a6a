"""Changes of a table's schema: columns added, dropped and renamed, units set; pure.

What can be done without touching a shard is allowed: readers find columns by the ids of fields, so
an added column is null in older shards, a dropped one is not looked for, a renamed one is found.
Who empties the table can give it any other schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Field, FormerName, Schema
from dormouse.schema.types import check_column_name
from dormouse.tables.properties import Properties
from dormouse.tables.row_rules import row_rules

NAMES_REMEMBERED = 100
"""For how many names given up it is explained, to who uses them still, what became of them."""
_NEW_TABLE = (
    "make a table with the schema you want, or give it to this one by `dormouse table reinitialise "
    "--schema`, and ingest the rows into it"
)


@dataclass(frozen=True, slots=True)
class Alteration:
    """What is to change; `drop`, `rename` and `units` go by the names before the change.

    `rename` has the new names by the old ones. Added fields come after the others, in order.
    `units` are those of fields, keys too; an empty one takes it away.
    """

    add: tuple[Field, ...] = ()
    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)


def altered(schema: Schema, alteration: Alteration, properties: Properties) -> Schema:
    """Return the schema with all of the changes; fields that stay keep their ids.

    Raises:
        InvalidRequestError: a change cannot be honoured, with the reason and what to do instead.
    """
    if alteration == Alteration():
        raise InvalidRequestError("no change is asked for", hint="add, drop or rename columns")
    _check_names(schema, alteration)
    for item in alteration.add:
        _check_addition(item)
    schema = _with_units(schema, alteration.units)
    kept = [
        replace(item, name=alteration.rename.get(item.name, item.name))
        for item in schema.values
        if item.name not in alteration.drop
    ]
    _check_distinct(schema, kept, alteration)
    given_up = {*alteration.drop, *alteration.rename}
    former = [FormerName(item.name, item.id) for item in schema.values if item.name in given_up]
    result = replace(
        schema,
        values=(*kept, *alteration.add),
        former=(*schema.former, *former)[-NAMES_REMEMBERED:],
    )
    if alteration.add:
        check_columns(result, properties)
    _check_rules(schema, result, properties)
    return result


def replaced(schema: Schema, wanted: Schema, properties: Properties) -> Schema:
    """Return a wanted schema for a table that is emptied, with ids that no field of it ever had.

    So no column of an older shard is ever taken for one of the new schema. Ids that `wanted` has
    are those of another table, or of this schema; they are not kept.

    Raises:
        InvalidRequestError: the table's properties do not allow it.
    """

    def without_ids(items: tuple[Field, ...]) -> tuple[Field, ...]:
        return tuple(replace(item, id=0) for item in items)

    result = Schema(
        row_keys=without_ids(wanted.row_keys),
        sort_keys=without_ids(wanted.sort_keys),
        values=without_ids(wanted.values),
        next_field_id=schema.next_field_id,
    )
    check_columns(result, properties)
    try:
        row_rules(result, properties)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"the table's properties do not fit the new schema: {error}",
            hint="change or unset its filters and aggregations first",
        ) from error
    return result


def check_columns(schema: Schema, properties: Properties) -> None:
    """Check that a schema has no more columns than the property `max_fields` allows.

    Raises:
        InvalidRequestError: it has.
    """
    if schema.leaf_columns > properties.max_fields:
        raise InvalidRequestError(
            f"the schema would have {schema.leaf_columns} columns, and max_fields is "
            f"{properties.max_fields}",
            hint="members of structs and both sides of maps count; raise the property max_fields",
        )


def _check_names(schema: Schema, alteration: Alteration) -> None:
    keys = {item.name for item in schema.keys}
    verbs = dict.fromkeys(alteration.drop, "dropped")
    for name, new_name in alteration.rename.items():
        check_column_name(new_name)
        if name in verbs:
            raise InvalidRequestError(f"column {name!r} is to be dropped and renamed at once")
        verbs[name] = "renamed"
    for name in alteration.units:
        schema.field_named(name)
        if name in alteration.drop:
            raise InvalidRequestError(f"column {name!r} is to be dropped and given a unit at once")
    for name, verb in verbs.items():
        schema.field_named(name)
        if name in keys:
            raise InvalidRequestError(
                f"column {name!r} is a key and cannot be {verb}: rows lie where keys put them",
                hint=_NEW_TABLE,
            )


def _with_units(schema: Schema, units: Mapping[str, str]) -> Schema:
    def changed(items: tuple[Field, ...]) -> tuple[Field, ...]:
        return tuple(replace(item, unit=units.get(item.name, item.unit)) for item in items)

    return replace(
        schema,
        row_keys=changed(schema.row_keys),
        sort_keys=changed(schema.sort_keys),
        values=changed(schema.values),
    )


def _check_addition(item: Field) -> None:
    if item.id:
        raise InvalidRequestError(
            f"column {item.name!r} cannot be added with an id", hint="the table gives ids itself"
        )
    if not item.nullable:
        raise InvalidRequestError(
            f"column {item.name!r} cannot be added as one that is never null: rows that are there "
            "already have no value in it",
            hint=f"add it as nullable, or {_NEW_TABLE}",
        )


def _check_distinct(schema: Schema, kept: list[Field], alteration: Alteration) -> None:
    taken = {item.name for item in schema.keys}
    for item in [*kept, *alteration.add]:
        if item.name in taken:
            raise InvalidRequestError(
                f"there would be two columns {item.name!r}",
                hint="choose another name; the type of a column cannot change, so for another "
                "type add a column of another name, or drop this one in the same request",
            )
        taken.add(item.name)


def _check_rules(before: Schema, after: Schema, properties: Properties) -> None:
    """Check that the table's filters and aggregations mean after the change what they meant."""
    try:
        rules = row_rules(after, properties)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"the table's properties do not allow it: {error}",
            hint="change its filters or aggregations first, for example take them away, alter the "
            "columns, and set them anew",
        ) from error
    operations = rules.aggregation.operations if rules.aggregation else ()
    for name in sorted(rules.filter_columns | {name for name, _ in operations}):
        if before.field_named(name).id != after.field_named(name).id:
            raise InvalidRequestError(
                f"the table's filters or aggregations use column {name!r}, which would be another "
                "column then",
                hint="change those properties first",
            )
