"""Changes of a table's schema: columns added, dropped and renamed, units set; pure.

A change is allowed if no shard has to be rewritten. Readers find columns by field id, so an added
column is null in older shards, a dropped one is not read, and a renamed one is found. A table that
is reset can get any other schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import Field, FormerName, Schema
from dormouse.schema.types import check_column_name
from dormouse.tables.bloom_columns import bloom_columns
from dormouse.tables.properties import Properties
from dormouse.tables.published import check_published
from dormouse.tables.row_rules import row_rules

RETAINED_NAMES = 100
"""The number of former column names that a schema keeps, so that errors can say what happened to
them."""
_NEW_TABLE = (
    "make a table with the schema you want, or give it to this one by `dormouse table reinitialise "
    "--schema`, and ingest the rows into it"
)


@dataclass(frozen=True, slots=True)
class Alteration:
    """The changes to make. `drop`, `rename` and `units` use the names from before the change.

    `rename` maps old names to new ones. Added fields come after the others, in order. `units` apply
    to keys, too; an empty unit removes the present one.
    """

    add: tuple[Field, ...] = ()
    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)


def apply_alteration(schema: Schema, alteration: Alteration, properties: Properties) -> Schema:
    """Return the schema with all of the changes. Fields that stay keep their ids.

    Raises:
        InvalidRequestError: a change is not possible; the message says why, the hint what to do
            instead.
    """
    if alteration == Alteration():
        raise InvalidRequestError("the request has no change", hint="add, drop or rename columns")
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
    lost = {*alteration.drop, *alteration.rename}
    former = [FormerName(item.name, item.id) for item in schema.values if item.name in lost]
    result = replace(
        schema,
        values=(*kept, *alteration.add),
        former=(*schema.former, *former)[-RETAINED_NAMES:],
    )
    if alteration.add:
        check_columns(result, properties)
    _check_rules(schema, result, properties)
    check_published(result, properties)
    return result


def replace_schema(schema: Schema, wanted: Schema, properties: Properties) -> Schema:
    """Return `wanted` as the schema of a table that is reset, with field ids that the table never
    used.

    Without new ids, a column of an older shard could be taken for one of the new schema. Ids in
    `wanted` come from another table, or from this schema, and are dropped.

    Raises:
        InvalidRequestError: the table's properties do not allow this schema.
    """

    def without_ids(items: tuple[Field, ...]) -> tuple[Field, ...]:
        return tuple(item.without_ids() for item in items)

    result = Schema(
        row_keys=without_ids(wanted.row_keys),
        sort_keys=without_ids(wanted.sort_keys),
        values=without_ids(wanted.values),
        next_field_id=schema.next_field_id,
    )
    check_columns(result, properties)
    try:
        row_rules(result, properties)
        bloom_columns(result, properties)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"the table's properties do not fit the new schema: {error}",
            hint="change or unset its filters, aggregations and bloom_columns first",
        ) from error
    check_published(result, properties)
    return result


def check_columns(schema: Schema, properties: Properties) -> None:
    """Check that a schema has no more columns than the property `max_fields` allows.

    Raises:
        InvalidRequestError: it has more.
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
            raise InvalidRequestError(f"column {name!r} cannot be dropped and renamed at once")
        verbs[name] = "renamed"
    for name in alteration.units:
        schema.field_named(name)
        if name in alteration.drop:
            raise InvalidRequestError(f"column {name!r} cannot be dropped and given a unit at once")
    for name, verb in verbs.items():
        schema.field_named(name)
        if name in keys:
            raise InvalidRequestError(
                f"column {name!r} is a key and cannot be {verb}: keys decide where rows are stored",
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
    if item.id or item.nested_ids:
        raise InvalidRequestError(
            f"column {item.name!r} cannot be added with an id", hint="the table assigns ids itself"
        )
    if not item.nullable:
        raise InvalidRequestError(
            f"column {item.name!r} cannot be added as not nullable: existing rows have no "
            "value in it",
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
    """Check that the table's filters, aggregations and columns with Bloom filters mean the same
    after the change.
    """
    try:
        rules = row_rules(after, properties)
        filtered = bloom_columns(after, properties)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"the table's properties do not allow it: {error}",
            hint="change its filters, aggregations or bloom_columns first, for example unset "
            "them, alter the columns, and set them again",
        ) from error
    operations = rules.aggregation.operations if rules.aggregation else ()
    for name in sorted(rules.filter_columns | {name for name, _ in operations} | {*filtered}):
        if before.field_named(name).id != after.field_named(name).id:
            raise InvalidRequestError(
                f"the table's filters, aggregations or bloom_columns use column {name!r}, which "
                "would be another column then",
                hint="change those properties first",
            )
