"""The schema of a table: its fields, their types, and which of them are keys.

The JSON form is that of GCHQ's Sleeper, accepted unchanged, and has more types: ``{"rowKeyFields":
[{"name": "id", "type": "LongType"}], "sortKeyFields": [], "valueFields": []}``. A field's type may
also be in its short form, such as ``"list<string>"``.

Each field has an id. Readers find its column in a shard by that id, whatever the column was called
when the shard was written. Ids are never reused, so a new field with the name of a dropped one does
not get the dropped one's values. What is nested in a field has ids, too, for other readers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dormouse.errors import InvalidRequestError
from dormouse.schema.key_types import KeyTypes
from dormouse.schema.type_text import parse_type_text, show_type
from dormouse.schema.types import (
    KEY_TYPES,
    UNITS,
    DecimalType,
    FieldType,
    ListType,
    MapType,
    Member,
    Primitive,
    StructType,
    contains_type,
    count_nested,
    leaf_columns,
    parse_list,
    parse_named,
    parse_object,
    parse_type,
)
from dormouse.showing import show_table

__all__ = [
    "KEY_TYPES",
    "DecimalType",
    "Field",
    "FieldType",
    "FormerName",
    "ListType",
    "MapType",
    "Member",
    "Primitive",
    "Schema",
    "StructType",
    "parse_field",
    "parse_type",
    "show_type",
]

_PARTS = {"rowKeyFields", "sortKeyFields", "valueFields", "nextFieldId", "formerNames"}
_FIELD_PARTS = frozenset({"id", "unit", "nestedIds"})
MAX_FIELD_ID = 2**31 - 1  # the greatest id that Parquet can store
MAX_LEAF_COLUMNS = 10_000
"""The most columns of any table, whatever its properties say: each column enlarges every footer."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column: name, type, and whether it may be null (value fields only).

    `id` identifies the field among all the fields the table ever had; with 0, the schema assigns
    one. `nested_ids` identify the parts of its type in the same way: each of its `nested_parts`,
    followed by the parts of that part. They are assigned together, if there are none. `unit` says
    what a number in an ingested file counts for this field's timestamps or dates, at any depth.
    Without a unit, numbers are refused there.

    Raises:
        InvalidRequestError: the type contains nothing that this unit applies to.
    """

    name: str
    type: FieldType
    nullable: bool = False
    id: int = 0
    unit: str = ""
    nested_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a unit that does not apply to the type, and ids of other parts than it has."""
        if self.nested_ids and len(self.nested_ids) != count_nested(self.type):
            raise InvalidRequestError(
                f"field {self.name!r} has {len(self.nested_ids)} nested ids, and "
                f"{count_nested(self.type)} nested parts",
                hint="leave nestedIds out of the schema of a new table: it assigns its own",
            )
        applies = (contains_type(self.type, kind) for kind in UNITS.get(self.unit, ()))
        if self.unit and not any(applies):
            raise InvalidRequestError(
                f"field {self.name!r} cannot have numbers of the unit {self.unit!r}",
                hint="units are days for a date; for timestamps seconds, milliseconds, "
                "microseconds or nanoseconds",
            )

    def to_json(self) -> dict[str, object]:
        """Return the JSON form."""
        body: dict[str, object] = {"id": self.id} if self.id else {}
        if self.nested_ids:
            body["nestedIds"] = list(self.nested_ids)
        body |= {"name": self.name, "type": self.type.to_json()}
        if self.nullable:
            body["nullable"] = True
        if self.unit:
            body["unit"] = self.unit
        return body

    def without_ids(self) -> Field:
        """Return the field as a schema takes it that assigns other ids."""
        return replace(self, id=0, nested_ids=())


@dataclass(frozen=True, slots=True)
class FormerName:
    """A name that the field of this id had until the field was renamed or dropped."""

    name: str
    id: int


@dataclass(frozen=True, slots=True, repr=False)
class Schema:
    """The columns of a table, in order: row keys, sort keys, values.

    Rows are partitioned and sorted by the row keys, then sorted by the sort keys. Fields without an
    id get the next ids, in column order, starting at `next_field_id`; then what is nested in them
    gets the next ones. `former` holds the last names that fields lost, newest last, so that errors
    can explain them. With `is_part`, it is what a caller may see of a schema, and may have no row
    key.

    Raises:
        InvalidRequestError: no row key, a duplicate name or id, a key whose type has no order, a
            nullable key, or too many fields.
    """

    row_keys: tuple[Field, ...]
    sort_keys: tuple[Field, ...] = ()
    values: tuple[Field, ...] = ()
    next_field_id: int = 1
    former: tuple[FormerName, ...] = ()
    is_part: bool = field(default=False, kw_only=True, compare=False)
    _by_name: Mapping[str, Field] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the rules above, assign ids, and index the fields by name."""
        if not self.row_keys and not self.is_part:
            raise InvalidRequestError(
                "the schema has no row key", hint="add a field to rowKeyFields"
            )
        if self.leaf_columns > MAX_LEAF_COLUMNS:
            raise InvalidRequestError(
                f"the schema has {self.leaf_columns} columns; "
                f"at most {MAX_LEAF_COLUMNS} are possible"
            )
        for key in self.keys:
            _check_key(key)
        names = [f.name for f in self.fields]
        if len(set(names)) < len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise InvalidRequestError(f"the schema names {', '.join(twice)} more than once")
        self._assign_ids()
        object.__setattr__(self, "_by_name", {f.name: f for f in self.fields})

    def _assign_ids(self) -> None:
        given = [i for f in self.fields for i in _ids(f)]
        if len(set(given)) < len(given) or any(not 0 < i <= MAX_FIELD_ID for i in given):
            raise InvalidRequestError(
                "the ids of the schema's fields are not all different and positive",
                hint="leave ids out of the schema of a new table: it assigns its own",
            )
        next_id = max([self.next_field_id, 1, *(i + 1 for i in given)])
        for is_nested in (False, True):
            for part in ("row_keys", "sort_keys", "values"):
                numbered = []
                for item in getattr(self, part):
                    numbered.append(_numbered(item, next_id, is_nested=is_nested))
                    next_id += len(_ids(numbered[-1])) - len(_ids(item))
                object.__setattr__(self, part, tuple(numbered))
        object.__setattr__(self, "next_field_id", next_id)

    @property
    def keys(self) -> tuple[Field, ...]:
        """Row keys, then sort keys: the sort order of the rows."""
        return self.row_keys + self.sort_keys

    @property
    def fields(self) -> tuple[Field, ...]:
        """All fields in column order."""
        return self.row_keys + self.sort_keys + self.values

    @property
    def key_types(self) -> KeyTypes:
        """The types of the row keys, as the state of a table keeps them."""
        return tuple(f.type for f in self.row_keys if isinstance(f.type, Primitive))

    @property
    def leaf_columns(self) -> int:
        """The number of columns of primitive type that the fields take in a file."""
        return sum(leaf_columns(f.type) for f in self.fields)

    def field_named(self, name: str) -> Field:
        """Return the field called `name`.

        Raises:
            InvalidRequestError: there is none; the message lists the columns.
        """
        if found := self._by_name.get(name):
            return found
        reason = self.explain_former_name(name)
        raise InvalidRequestError(
            f"there is no column {name!r}" + (f": {reason}" if reason else ""),
            hint="columns: " + ", ".join(self._by_name),
        )

    def explain_former_name(self, name: str) -> str:
        """Return what happened to the column that once had a name; an empty string if none is
        known.
        """
        ids = [item.id for item in self.former if item.name == name]
        if not ids:
            return ""
        now = next((field.name for field in self.fields if field.id == ids[-1]), None)
        return "it was dropped" if now is None else f"it was renamed to {now!r}"

    def __repr__(self) -> str:
        """Show the columns in short form, in one line."""
        parts = (
            f"{part}=[{', '.join(map(_short, fields))}]"
            for part, fields in zip(("row_keys", "sort_keys", "values"), self.parts, strict=True)
            if fields
        )
        return f"Schema({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Show the columns in a notebook."""
        return show_table("", ("column", "type", "role"), self.described())[1]

    @property
    def parts(self) -> tuple[tuple[Field, ...], tuple[Field, ...], tuple[Field, ...]]:
        """Row keys, sort keys and values."""
        return self.row_keys, self.sort_keys, self.values

    def described(self) -> list[tuple[str, str, str]]:
        """Return name, type and role of each column, for people."""
        return [
            (
                field.name,
                show_type(field.type) + (f", numbers in {field.unit}" if field.unit else ""),
                f"{role}, nullable" if field.nullable else role,
            )
            for role, fields in zip(("row key", "sort key", "value"), self.parts, strict=True)
            for field in fields
        ]

    def to_json(self) -> dict[str, object]:
        """Return the JSON form."""
        former = [{"name": item.name, "id": item.id} for item in self.former]
        return {
            "rowKeyFields": [f.to_json() for f in self.row_keys],
            "sortKeyFields": [f.to_json() for f in self.sort_keys],
            "valueFields": [f.to_json() for f in self.values],
            "nextFieldId": self.next_field_id,
            **({"formerNames": former} if former else {}),
        }

    def dumps(self) -> str:
        """Return the JSON text; equal schemas give equal texts."""
        return json.dumps(self.to_json(), separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def loads(text: str | bytes) -> Schema:
        """Parse the JSON text.

        Raises:
            InvalidRequestError: it is not JSON, or not a schema; the message says where.
        """
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:  # covers bad JSON and bad UTF-8
            raise InvalidRequestError(f"the schema is not valid JSON: {error}") from error
        return Schema.from_json(body)

    @staticmethod
    def from_json(body: object, *, is_part: bool = False) -> Schema:
        """Build a schema, or what a caller may see of one, from parsed JSON.

        Raises:
            InvalidRequestError: `body` is not a schema; the message says where.
        """
        parts = parse_object(body, "the schema")
        if unknown := set(parts) - _PARTS:
            raise InvalidRequestError(f"the schema has unknown parts: {', '.join(sorted(unknown))}")
        return Schema(
            row_keys=_fields(parts.get("rowKeyFields"), "rowKeyFields"),
            sort_keys=_fields(parts.get("sortKeyFields"), "sortKeyFields"),
            values=_fields(parts.get("valueFields"), "valueFields"),
            next_field_id=_id(parts.get("nextFieldId", 1), "nextFieldId"),
            former=tuple(
                _former(item, f"formerNames[{i}]")
                for i, item in enumerate(parse_list(parts.get("formerNames"), "formerNames"))
            ),
            is_part=is_part,
        )


def parse_field(body: object, where: str) -> Field:
    """Build a field from its JSON form; `where` names it in errors.

    Raises:
        InvalidRequestError: `body` is not a field.
    """
    name, parts, nullable = parse_named(body, where, known=_FIELD_PARTS)
    kind, unit = _field_type(parts["type"], f"{where} ({name})"), parts.get("unit", "")
    if not isinstance(unit, str):
        raise InvalidRequestError(f"{where} ({name}): the unit is not text")
    own = _id(parts.get("id", 0), f"{where} ({name}): the id")
    nested = parse_list(parts.get("nestedIds"), f"{where} ({name}): nestedIds")
    return Field(
        name,
        kind,
        nullable,
        own,
        unit,
        tuple(_id(i, f"{where} ({name}): nestedIds") for i in nested),
    )


def _ids(field: Field) -> tuple[int, ...]:
    """Return the ids that a field has, its own first."""
    return (field.id, *field.nested_ids) if field.id else field.nested_ids


def _numbered(field: Field, next_id: int, *, is_nested: bool) -> Field:
    """Return the field with ids from `next_id` on: its own, or those of its parts; the same field
    if it has them.
    """
    if not is_nested:
        return field if field.id else replace(field, id=next_id)
    parts = 0 if field.nested_ids else count_nested(field.type)
    return replace(field, nested_ids=tuple(range(next_id, next_id + parts))) if parts else field


def _short(field: Field) -> str:
    return f"{field.name}:{show_type(field.type)}" + ("?" if field.nullable else "")


def _field_type(body: object, where: str) -> FieldType:
    """Return the type of a field: in its JSON form, or as text in its short form."""
    if not isinstance(body, str):
        return parse_type(body, where)
    try:
        return parse_type_text(body)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"{where} has an unknown type: {error}", hint=error.hint
        ) from error


def _fields(body: object, where: str) -> tuple[Field, ...]:
    return tuple(
        parse_field(item, f"{where}[{i}]") for i, item in enumerate(parse_list(body, where))
    )


def _former(body: object, where: str) -> FormerName:
    parts = parse_object(body, where)
    return FormerName(str(parts.get("name", "")), _id(parts.get("id"), where))


def _id(value: object, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_FIELD_ID:
        return value
    raise InvalidRequestError(f"{where} is not a whole number from 0 to {MAX_FIELD_ID}")


def _check_key(key: Field) -> None:
    if key.type not in KEY_TYPES:
        raise InvalidRequestError(
            f"field {key.name!r} cannot be a key: {show_type(key.type)} has no key order",
            hint="keys are " + ", ".join(sorted(t.value for t in KEY_TYPES)),
        )
    if key.nullable:
        raise InvalidRequestError(f"field {key.name!r} is a key and cannot be nullable")
