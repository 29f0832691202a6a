"""A table as the registry records it: name, immutable id, schema, properties, online or offline."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal

from dormouse.errors import DamagedEntryError, InvalidRequestError, NotFoundError, did_you_mean
from dormouse.schema.evolution import SchemaChanges, changes_of, keeps_names
from dormouse.schema.iceberg import check_publishable
from dormouse.schema.schema import OF_ROWS, Field, FormerName, Schema
from dormouse.schema.types import NANOSECONDS, FieldType, Primitive
from dormouse.tables.encryption import check_encryption, check_not_encrypted, column_uses
from dormouse.tables.properties import (
    KNOWN,
    Properties,
    check_change_data,
    csv_dialect,
    properties_of,
)
from dormouse.tables.row_rules import row_rules


@dataclass(frozen=True, slots=True)
class Origin:
    """The bucket and the name under which files were ingested for a table before it was copied or
    renamed; an empty bucket is that of the table's instance.
    """

    bucket: str
    table_name: str


# Which tables can be published for readers of Iceberg; a table that cannot is refused by name.
#
# Readers from outside get the rows that are stored. Of a table with row rules these are not its
# rows: some are parts of one, others should be hidden. So its owner has to say that readers get
# those.


def is_published(properties: Properties) -> bool:
    """Return whether a table is published."""
    return properties.iceberg == "on"


def is_mirrored(properties: Properties) -> bool:
    """Return whether a table is to have an entry in Glue."""
    return is_published(properties) and properties.iceberg_glue == "on"


def glue_name(name: str) -> str:
    """Return the name that a published table has in Glue, whose names are in lower case.
    Raises InvalidRequestError: it has a dot, which ends the name of a database there.
    """
    if "." in name:
        raise InvalidRequestError(
            f"a table with a dot in its name, as {name!r}, can have no entry in Glue",
            hint="rename the table, or leave iceberg_glue off",
        )
    return name.lower()


PARTS = "__parts"
"""The end of the name under which readers find the stored rows of a table with rules."""


def published_name(table: Table) -> str:
    """Return the name under which readers of Iceberg find the stored rows of a table."""
    has_rules = not row_rules(table.schema, table.properties).after_publishing().is_empty
    return table.name + PARTS if has_rules else table.name


def check_published(schema: Schema, properties: Properties) -> None:
    """Check that a table with these properties can be published, if it is to be.
    Raises InvalidRequestError: a column cannot, by its type or its name; or the table has row
    rules.
    """
    if not is_published(properties):
        return
    check_publishable(schema, int(properties.iceberg_format))
    rules = row_rules(schema, properties).after_publishing()
    if rules.is_empty or properties.iceberg_parts == "yes":
        return
    if rules.aggregates:
        problem = "readers of Iceberg would get the stored parts of aggregated rows"
    else:
        problem = "readers of Iceberg would get stored rows that the filters hide"
    raise InvalidRequestError(
        f"a table with {'aggregations' if rules.aggregates else 'filters'} is not published: "
        f"{problem}",
        hint="set iceberg_parts=yes as well if they are to get what is stored",
    )


RETAINED_REQUESTS = 16
"""The number of requests that a table remembers. A request is repeated within moments, and
seldom after another one."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Table:
    """One table. Its `id` never changes and is never reused; its name may change.

    `own` names the properties set for this table; the others come from the instance or the
    defaults. A table that is being deleted keeps its name until everything of it is gone.

    `log` distinguishes the log of its state from earlier logs, if the state was ever rebuilt;
    `logs` lists every log that a rebuild began, so that deletion finds all of them.

    `generation` counts the resets of the table, and `reset_ms` is the time of the last one:
    messages and files from before are refused. The schema has been the same since
    `schema_generation`; shards of earlier generations have none of its columns. `tree` is the id of
    the stored partition tree that the generation started with, empty if the reset kept the
    partitions. `restored` is the id of the stored record of the version that the generation
    started with, empty if it started without rows. `purged_version` is the version at which the
    last purge ended: earlier ones may have rows that it removed, and do not come back.

    `renamed_ms` is the time of the last renaming: files dropped before were for another table of
    this name. Until `finer_until_ms`, nothing is ingested: an alteration looks whether all times of
    the table can be nanoseconds (`features.finer_times`). `applied_requests` holds the ids of the
    last requests that changed the table, newest last. `origins` are the tables that it was copied
    from, with what they had ingested, and the names that it had.
    """

    id: str
    name: str
    schema: Schema
    properties: Properties = field(default_factory=Properties)
    own: frozenset[str] = frozenset()
    online: bool = True
    deleting: bool = False
    created_ms: int = 0
    log: str = ""
    logs: tuple[str, ...] = ()
    generation: int = 0
    schema_generation: int = 0
    reset_ms: int = 0
    tree: str = ""
    restored: str = ""
    purged_version: int = 0
    renamed_ms: int = 0
    finer_until_ms: int = 0
    applied_requests: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()

    @property
    def state_id(self) -> str:
        """The id of the table's state. What that stores in the data bucket has its prefix."""
        return f"{self.id}/{self.log}" if self.log else self.id

    def states(self) -> Iterator[Table]:
        """Yield the table once for each state ever begun for it, to open each one's store."""
        for log in dict.fromkeys(("", *self.logs, self.log)):
            yield replace(self, log=log)

    @property
    def files_since_ms(self) -> int:
        """The time from which files under the table's name are for this table and generation."""
        return max(self.created_ms, self.reset_ms, self.renamed_ms)

    @property
    def settings(self) -> dict[str, int | str]:
        """The properties set for this table itself."""
        return {name: getattr(self.properties, name) for name in KNOWN if name in self.own}

    def with_settings(
        self, settings: Mapping[str, int | str], defaults: Mapping[str, int | str]
    ) -> Table:
        """Return the table with exactly these properties, over the instance's defaults."""
        return replace(self, properties=properties_of(defaults, settings), own=frozenset(settings))


def property_sources(
    own: Container[str], defaults: Container[str]
) -> dict[str, Literal["table", "instance", "default"]]:
    """Return where each property's value comes from: the table, the instance, or the default."""
    return {
        name: "table" if name in own else "instance" if name in defaults else "default"
        for name in KNOWN
    }


def with_applied_request(table: Table, request_id: str) -> Table:
    """Return the table with a request recorded as applied; the same one without an id."""
    if not request_id:
        return table
    return replace(
        table, applied_requests=(*table.applied_requests, request_id)[-RETAINED_REQUESTS:]
    )


def merge_settings(
    before: Mapping[str, int | str], put: Mapping[str, int | str], unset: Iterable[str]
) -> dict[str, int | str]:
    """Return `before` with `put` changed and `unset` removed. Raises InvalidRequestError."""
    away = set(unset)
    if both := sorted(away & set(put)):
        raise InvalidRequestError(f"{both[0]} cannot be set and unset at once")
    return {name: value for name, value in {**before, **put}.items() if name not in away}


def check_change(table: Table, changed: Table) -> None:
    """Check that a table may change in this way: fixed properties stay, rules fit the schema.
    Raises InvalidRequestError: it may not.
    """
    for name, declared in KNOWN.items():
        before, after = getattr(table.properties, name), getattr(changed.properties, name)
        if declared.is_fixed and before != after:
            raise InvalidRequestError(
                f"{name} of table {table.name!r} is {before or 'not set'} and cannot change",
                hint="create another table, and export this one's rows to it",
            )
    if changed.schema.encrypted and changed.properties.data_key < table.properties.data_key:
        raise InvalidRequestError(
            f"data_key of table {table.name!r} is {table.properties.data_key} and only grows",
            hint="a greater number makes new data keys",
        )
    check_encryption(changed.schema, changed.properties)
    check_properties(changed.schema, changed.properties)


def check_properties(schema: Schema, properties: Properties) -> None:
    """Check that a table of a schema can have these properties, but for `check_columns`.
    Raises InvalidRequestError: it cannot; the message says which and why.
    """
    column_uses(schema, properties)
    check_change_data(schema, properties)
    csv_dialect(properties)
    check_published(schema, properties)


def table_not_found(
    name: str, tables: Iterable[Table], damaged: Iterable[DamagedEntryError] = ()
) -> NotFoundError | DamagedEntryError:
    """Return the error that no table has this name, with the most similar one, or what is damaged
    of the table that has it.
    """
    if lost := [error for error in damaged if error.name == name]:
        return lost[0]
    names = [table.name for table in tables if not table.deleting and table.name != name]
    hint = did_you_mean(name, names, "`dormouse table list` shows all")
    return NotFoundError(f"there is no table {name!r}", hint=hint)


def can_be_name(name: str) -> bool:
    """Return whether a table can have this name."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return `name` if a table can have it.

    Names are folders of the ingest bucket, so they are limited to a plain alphabet.
    Raises InvalidRequestError: it cannot.
    """
    if not can_be_name(name):
        raise InvalidRequestError(
            f"a table cannot be called {name!r}",
            hint="up to 100 letters, digits, dots, dashes, underscores; first a letter or digit",
        )
    return name


# Tombstones: the proof that an id belongs to no table and never will. They are kept for ever.
#
# The registry writes the tombstone before the first object of a table is deleted, and only for an
# id that is not registered or whose table is being deleted. After that it registers no table with
# this id. So everything stored under an id with a tombstone may be deleted at any time, whichever
# process wrote it and when.

_PLACEHOLDER_SCHEMA = Schema(row_keys=(Field("deleted", Primitive.STRING),))
"""Takes the place of the schema of a deleted table, whose columns are unknown; opening its state
does not need them."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What is kept about a deleted id: the last name, the start of deletion, and what leads to all
    its states.

    `was_registered` is false if the creation of a table was refused after its state had been begun.
    """

    table_id: str
    name: str
    deleted_ms: int
    was_registered: bool
    state_store: str
    logs: tuple[str, ...] = ()
    has_subjects: bool = False

    @staticmethod
    def of(table: Table, deleted_ms: int, *, was_registered: bool = True) -> Tombstone:
        """Return the tombstone of a table as the registry last knew it."""
        store, logs = table.properties.state_store, tuple(t.log for t in table.states() if t.log)
        has_subjects = table.schema.subject > 0
        return Tombstone(
            table.id, table.name, deleted_ms, was_registered, store, logs, has_subjects
        )

    def states(self) -> Iterator[Table]:
        """Yield the table once for each state that was ever begun for it, to open each one's
        store.
        """
        properties = properties_of({}, {"state_store": self.state_store})
        table = Table(self.table_id, self.name, _PLACEHOLDER_SCHEMA, properties, logs=self.logs)
        return replace(table, deleting=True).states()


# Changes of a table's schema: columns and members of structs added, dropped and renamed, types
# widened, units set; pure.
#
# A change is allowed if no shard has to be rewritten. Readers find columns by field id, so an added
# column is null in older shards, a dropped one is not read, a renamed one is found, and values of
# an earlier type are read as those of the wider one. A table that is reset can get any other
# schema.

RETAINED_NAMES = 100
"""The number of former column names that a schema keeps, so that errors can say what happened to
them."""
_NEW_TABLE = (
    "make a table with the schema you want, or give it to this one by `dormouse table reinitialise "
    "--schema`, and ingest the rows into it"
)


@dataclass(frozen=True, slots=True)
class Alteration:
    """The changes to make. All use the names from before the change, as paths: those of members
    follow the name of their column and a dot (`schema.evolution`); `units` are of columns alone.
    What is added to and `types` may use the new names too.

    `rename` maps old names to new ones, which for members are those within their struct, `types`
    to wider types. Added fields come after the others, in order. `units` and `types` apply to keys,
    too; an empty unit removes the present one.
    """

    add: tuple[Field, ...] = ()
    drop: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, FieldType] = field(default_factory=dict)


def apply_alteration(schema: Schema, alteration: Alteration, properties: Properties) -> Schema:
    """Return the schema with all of the changes. Fields that stay keep their ids.
    Raises InvalidRequestError: a change is not possible; the message says why, the hint what to do
    instead.
    """
    if alteration == Alteration():
        raise InvalidRequestError("the request has no change", hint="add, drop or rename columns")
    for item in alteration.add:
        _check_addition(item)
    _check_free(alteration.rename.values())
    changes, columns = changes_of(
        schema,
        add=alteration.add,
        drop=alteration.drop,
        rename=alteration.rename,
        types=alteration.types,
    )
    _check_names(schema, alteration, changes)
    ids = count(schema.next_field_id)
    before = _with_units(schema, alteration.units)
    values = [changes.of(item, ids) for item in before.values if item.id not in changes.drop]
    _check_distinct(schema, [*values, *columns])
    lost = changes.drop | changes.rename.keys()
    former = [FormerName(item.name, item.id) for item in schema.values if item.id in lost]
    result = replace(
        before,
        row_keys=tuple(changes.of(item, ids) for item in before.row_keys),
        sort_keys=tuple(changes.of(item, ids) for item in before.sort_keys),
        values=(*values, *columns),
        former=(*schema.former, *former)[-RETAINED_NAMES:],
    )
    if alteration.add:
        check_columns(result, properties)
    _check_rules(schema, result, properties)
    check_published(result, properties)
    return result


def replace_schema(schema: Schema, target: Schema, properties: Properties) -> Schema:
    """Return `target` as the schema of a table that is reset, with field ids that are new to it.

    Without new ids, a column of an older shard could be taken for one of the new schema. Ids in
    `target` come from another table, or from this schema, and are dropped.
    Raises InvalidRequestError: the table's properties do not allow this schema.
    """
    check_not_encrypted(*target.fields)
    row_keys, sort_keys, values = (
        tuple(item.without_ids() for item in part) for part in target.parts
    )
    result = Schema(
        row_keys, sort_keys, values, next_field_id=schema.next_field_id, data_keys=schema.data_keys
    )
    check_columns(result, properties)
    try:
        column_uses(result, properties)
        check_change_data(result, properties)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"the table's properties do not fit the new schema: {error}",
            hint="change or unset its filters, aggregations, bloom_columns, term_index, "
            "shredded_paths, change_data first",
        ) from error
    check_published(result, properties)
    return result


def check_columns(schema: Schema, properties: Properties) -> None:
    """Check that a schema has no more columns than the property `max_fields` allows, and none of
    the names that mean something of any row.
    Raises InvalidRequestError: it has.
    """
    _check_free(field.name for field in schema.fields)
    check_encryption(schema, properties)
    if schema.leaf_columns > properties.max_fields:
        raise InvalidRequestError(
            f"the schema would have {schema.leaf_columns} columns, and max_fields is "
            f"{properties.max_fields}",
            hint="members of structs and both sides of maps count; raise the property max_fields",
        )


def _check_free(names: Iterable[str]) -> None:
    if reserved := sorted(OF_ROWS.intersection(names)):
        raise InvalidRequestError(
            f"no column of a table can be named {reserved[0]!r}",
            hint=f"{', '.join(sorted(OF_ROWS))} are what is known of each row",
        )


def _check_names(schema: Schema, alteration: Alteration, changes: SchemaChanges) -> None:
    for name in alteration.units:
        schema.field_named(name)
        if name in alteration.drop:
            raise InvalidRequestError(f"column {name!r} cannot be dropped and given a unit at once")
    for item in schema.keys:
        if item.id in changes.drop | changes.rename.keys():
            verb = "dropped" if item.id in changes.drop else "renamed"
            raise InvalidRequestError(
                f"column {item.name!r} is a key and cannot be {verb}: keys decide where rows are "
                "stored",
                hint=_NEW_TABLE,
            )
        if changes.types.get(item.id) in NANOSECONDS - {item.type}:
            raise InvalidRequestError(
                f"column {item.name!r} is a key and cannot get nanoseconds: its keys are stored as "
                "microseconds",
                hint=_NEW_TABLE,
            )


def _with_units(schema: Schema, units: Mapping[str, str]) -> Schema:
    row_keys, sort_keys, values = (
        tuple(replace(item, unit=units.get(item.name, item.unit)) for item in part)
        for part in schema.parts
    )
    return replace(schema, row_keys=row_keys, sort_keys=sort_keys, values=values)


def _check_addition(item: Field) -> None:
    check_not_encrypted(item)
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


def _check_distinct(schema: Schema, values: Iterable[Field]) -> None:
    names = {item.name for item in schema.keys}
    for item in values:
        if item.name in names:
            raise InvalidRequestError(
                f"there would be two columns {item.name!r}",
                hint="choose another name; a type only widens, so for any other type add a column "
                "of another name, or drop this one in the same request",
            )
        names.add(item.name)


def _check_rules(before: Schema, after: Schema, properties: Properties) -> None:
    """Check that the table's filters, aggregations and columns with Bloom filters or paths mean
    the same after the change.
    """
    try:
        uses = column_uses(after, properties)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"the table's properties do not allow it: {error}",
            hint="change its filters, aggregations, bloom_columns, term_index or shredded_paths "
            "first, for example unset them, alter the columns, and set them again; latest_by "
            "stays, and so does its column",
        ) from error
    for name in sorted(set().union(*uses.values())):
        if not keeps_names(before.field_named(name), after.field_named(name)):
            raise InvalidRequestError(
                f"the table's filters, aggregations, bloom_columns, term_index or shredded_paths "
                f"use column {name!r}, which would be another column then, or have other members",
                hint="change those properties first",
            )
