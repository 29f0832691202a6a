"""The schema of a table: its fields, their types, and which of them are keys.

The JSON form is that of GCHQ's Sleeper, accepted unchanged, and has more types: ``{"rowKeyFields":
[{"name": "id", "type": "LongType"}], "sortKeyFields": [], "valueFields": []}``. A field's type may
also be in its short form, such as ``"list<string>"``.

Each field has an id. Readers find its column in a shard by that id, whatever the column was called
when the shard was written. Ids are never reused, so a new field with the name of a dropped one does
not get the dropped one's values. What is nested in a field has ids, too, for other readers.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

import msgspec

from dormouse.errors import InvalidRequestError, did_you_mean
from dormouse.keys import INT64_MAX, INT64_MIN, Key, KeyPart
from dormouse.schema.types import (
    KEY_TYPES,
    MAX_TIME,
    TIMESTAMPS,
    UNITS,
    UUID_BYTES,
    DecimalType,
    FieldType,
    KeyType,
    Primitive,
    check_column_name,
    contains_type,
    count_nested,
    is_key_type,
    leaf_columns,
    parse_form,
    parse_members_text,
    parse_type,
    parse_type_text,
    show_column,
    show_type,
    widest,
)
from dormouse.showing import show_table

# Check keys against the types of a table's row keys: number of parts, type of each, total size.
#
# The state keeps these types (`state.TableState.key_types`), so that the fold can validate every
# key in a log entry. Ingest refuses rows whose key is too large before it writes anything.

KeyTypes = tuple[KeyType, ...]
_T = TypeVar("_T")

MAX_KEY_BYTES = 4096
"""The most bytes that the parts of one row key may take together: strings by their UTF-8 bytes,
numbers 8 each.

Footers, partitions and shards in the state each hold a few keys. This limit keeps them far below
the 400 KB of a DynamoDB item, and lets a reader fetch a footer in one request."""

_WHOLE: dict[FieldType, range] = {
    **dict.fromkeys((Primitive.INT, Primitive.DATE), range(-(2**31), 2**31)),
    **dict.fromkeys((Primitive.LONG, *TIMESTAMPS), range(INT64_MIN, INT64_MAX + 1)),
    Primitive.TIME: range(MAX_TIME + 1),
}
_WIDEST = DecimalType(38, 0)
_HALF_OF_A_CHARACTER = re.compile("[\ud800-\udfff]")


def key_problem(key: Key, types: KeyTypes, *, fewest_parts: int) -> str:
    """Return why `key` does not fit row keys of these types; an empty string if it does.

    A full key has as many parts as there are types; a prefix has at least `fewest_parts`. The text
    does not quote the key, which is a value from the table's rows.
    """
    if not fewest_parts <= len(key) <= len(types):
        numbers = "" if fewest_parts == len(types) else f"{fewest_parts} to "
        return f"it has {len(key)} parts, not {numbers}{len(types)}"
    size_bytes = 0
    for number, part in enumerate(key):
        if types[number] is Primitive.STRING and type(part) is str and part.isascii():
            size_bytes += len(part)  # as most parts are
        elif _fits(part, types[number]):
            size_bytes += _size_bytes(part)
        else:
            return f"its part {number + 1} is not of type {show_type(types[number])}"
    if size_bytes > MAX_KEY_BYTES:
        return f"it takes {size_bytes:,} bytes, more than {MAX_KEY_BYTES:,}"
    return ""


def key_part_problem(key: Key) -> str:
    """Return why no table at all can have `key`; an empty string if one can."""
    for number, part in enumerate(key, start=1):
        if not (_is_text(part) or isinstance(part, bytes) or _fits(part, _WIDEST)):
            return f"its part {number} has a type that no row key can have"
    return ""


def whole_numbers(kind: FieldType) -> range:
    """Return the whole numbers that a key part of a type can be, if it is one."""
    if isinstance(kind, DecimalType):
        return range(1 - 10**kind.precision, 10**kind.precision)
    return _WHOLE[kind]


def _fits(part: KeyPart, kind: FieldType) -> bool:
    if kind is Primitive.STRING:
        return _is_text(part)
    if isinstance(kind, DecimalType) or kind in _WHOLE:
        return type(part) is int and part in whole_numbers(kind)  # a bool is not a number here
    if kind is Primitive.BYTES:
        return isinstance(part, bytes)
    if kind is Primitive.UUID:
        return isinstance(part, bytes) and len(part) == UUID_BYTES
    return _is_text(part)


def _is_text(part: KeyPart) -> bool:
    return isinstance(part, str) and (part.isascii() or not _HALF_OF_A_CHARACTER.search(part))


def _size_bytes(part: KeyPart) -> int:
    if isinstance(part, int):
        return 8
    return len(part) if isinstance(part, bytes) or part.isascii() else len(part.encode())


MAX_FIELD_ID = 2**31 - 1  # the greatest id that Parquet can store
RESERVED = "\x7f"
"""No column of a table has this character in its name, as those have that only readers add."""
MAX_LEAF_COLUMNS = 10_000
"""The most columns of any table, whatever its properties say: each column enlarges every footer."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column: name, type, and whether it may be null (value fields only).

    `id` identifies the field among all the fields the table ever had; with 0, the schema assigns
    one. `nested_ids` identify the parts of its type in the same way: each of its `nested_parts`,
    followed by the parts of that part. They are assigned together, if there are none. `unit` says
    what a number in an ingested file counts for this field's timestamps or dates, at any depth.
    Without a unit, numbers are refused there. A field is `finer` if its times became nanoseconds:
    shards may have them in microseconds.

    An encrypted field has bytes (`tables.encryption`): `encrypted` is the type of the values that
    these hide, `key` the name of the key.
    Raises InvalidRequestError: the type contains nothing that this unit applies to.
    """

    name: str
    type: FieldType
    nullable: bool = False
    id: int = 0
    unit: str = ""
    nested_ids: tuple[int, ...] = ()
    finer: bool = False
    encrypted: FieldType | None = None
    key: str = ""

    def __post_init__(self) -> None:
        """Refuse a unit that does not apply to the type, and ids of other parts than it has."""
        if self.nested_ids and len(self.nested_ids) != count_nested(self.type):
            raise InvalidRequestError(
                f"field {self.name!r} has {len(self.nested_ids)} nested ids, and "
                f"{count_nested(self.type)} nested parts",
                hint="leave nestedIds out of the schema of a new table: it assigns its own",
            )
        of_values = self.encrypted or self.type
        applies = (contains_type(of_values, kind) for kind in UNITS.get(self.unit, ()))
        if self.unit and not any(applies):
            raise InvalidRequestError(
                f"field {self.name!r} cannot have numbers of the unit {self.unit!r}",
                hint="units are days for a date; for timestamps seconds, milliseconds, "
                "microseconds or nanoseconds",
            )

    def __hash__(self) -> int:
        """Return the id, which tells fields apart: a look-up asks for hundreds."""
        return self.id

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
        if self.finer:
            body["finer"] = True
        if self.encrypted is not None:
            body |= {"encrypted": self.encrypted.to_json(), "key": self.key}
        return body

    def without_ids(self) -> Field:
        """Return the field as a schema takes it that assigns other ids."""
        return replace(self, id=0, nested_ids=(), finer=False)

    @property
    def opened(self) -> Field:
        """The field with the type of its values, as programs read and write them."""
        if self.encrypted is None:
            return self
        return replace(self, type=self.encrypted, encrypted=None, key="")


ROW_FIELD_IDS = 2_000_000_000
"""Where the ids of these fields begin: no table has had so many columns, and Iceberg's own fields
have ids from 2147483447 on."""
SEQUENCE = Field("_sequence", Primitive.LONG, nullable=True, id=ROW_FIELD_IDS)
"""The number of the commit that added a row: that of its shard (`state.Shard`), or the shard has
it. It is no column of a table."""
APPLIED = Field(f"{RESERVED}applied", Primitive.LONG, nullable=True, id=ROW_FIELD_IDS + 10)
"""The number of the shard of a row, while there are deletions. No shard has that."""
TOMBSTONE = Field("_tombstone", Primitive.LONG, nullable=True, id=ROW_FIELD_IDS + 1)
"""Since when, in milliseconds, a stored row only says that its row key is deleted, in a table that
keeps the latest rows: 0 is since its commit, null if it is a row. It is no column of a table."""
CHANGE = Field("_change", Primitive.STRING, nullable=True, id=ROW_FIELD_IDS + 2)
"""What a row of a file or frame does to such a table: insert, update or delete; null inserts."""
TAGS = Field("_tags", Primitive.STRING, nullable=True, id=ROW_FIELD_IDS + 3)
"""The row tags of a row (`schema.row_tags`): those of all rows of its shard, or the shard has it.
It is no column of a table."""
FILE = Field("_file", Primitive.STRING, nullable=True, id=ROW_FIELD_IDS + 4)
ETAG = Field("_etag", Primitive.STRING, nullable=True, id=ROW_FIELD_IDS + 5)
ROW_NUMBER = Field("_row", Primitive.LONG, nullable=True, id=ROW_FIELD_IDS + 6)
VERSION = Field("_version", Primitive.LONG, nullable=True, id=ROW_FIELD_IDS + 7)
INGESTED_AT = Field("_ingested_at", Primitive.TIMESTAMP, nullable=True, id=ROW_FIELD_IDS + 8)
FROM_FILES = (FILE, ETAG, ROW_NUMBER)
ORIGIN = (*FROM_FILES, VERSION, INGESTED_AT)
"""Where a row comes from: the key and ETag of an object, the line or row there, and the version
and the time of the commit that added it. They are no columns of a table; shards have them if its
property `row_origin` says so."""
SHARD = Field("_shard", Primitive.STRING, nullable=True, id=ROW_FIELD_IDS + 9)
"""The shard that holds a row. No shard has that."""
ROW_ID = Field("_row_id", Primitive.LONG, nullable=True, id=2147483540)
LAST_UPDATED = Field("_last_updated_sequence_number", Primitive.LONG, nullable=True, id=2147483539)
ROW_LINEAGE = (ROW_ID, LAST_UPDATED)
"""The id of a row among all that its table ever had, and Iceberg's number of the commit that added
it: what Iceberg calls row lineage, under its ids of fields, by which its readers find them."""
ROW_IDS_PER_MS, ROW_IDS_END = 2**20, 2**62
"""Ids begin at the time in milliseconds times the first, and are below the second until 2109
(2^42 ms), as long as no more than a billion rows come a second."""
ASKED = (*ORIGIN, *ROW_LINEAGE, SHARD)
"""What can be asked for by name as a column, and is in no ``*``."""
OF_ROWS = frozenset(field.name for field in (SEQUENCE, TOMBSTONE, CHANGE, TAGS, *ASKED))
"""The names that no column of a table has."""


@dataclass(frozen=True, slots=True)
class DataKey:
    """A key that values are encrypted with, itself encrypted (`wrapped`) by the key of a `name`;
    `number` tells it from other data keys of this name, and the greatest is the newest.
    """

    name: str
    number: int
    wrapped: bytes


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
    key. `data_keys` are those of its encrypted fields, `subject` is the id of the field that says
    whose their values are, 0 if none does.
    Raises InvalidRequestError: no row key, a duplicate name or id, a key whose type has no order, a
    nullable key, or too many fields.
    """

    row_keys: tuple[Field, ...]
    sort_keys: tuple[Field, ...] = ()
    values: tuple[Field, ...] = ()
    next_field_id: int = 1
    former: tuple[FormerName, ...] = ()
    data_keys: tuple[DataKey, ...] = ()
    subject: int = 0
    is_part: bool = field(default=False, kw_only=True, compare=False)
    keys: tuple[Field, ...] = field(init=False, compare=False)
    """Row keys, then sort keys: the sort order of the rows."""
    fields: tuple[Field, ...] = field(init=False, compare=False)
    """All fields in column order."""
    encrypted: tuple[Field, ...] = field(init=False, compare=False)
    """The fields whose values are encrypted."""
    _by_name: Mapping[str, Field] = field(init=False, compare=False)
    _hash: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Check the rules above, assign ids, and index the fields by name."""
        if not self.row_keys and not self.is_part:
            raise InvalidRequestError(
                "the schema has no row key", hint="add a field to rowKeyFields"
            )
        self._index()
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
        self._index()

    def _index(self) -> None:
        """Keep what follows from the fields, which every look-up and commit asks for."""
        keys = self.row_keys + self.sort_keys
        fields = keys + self.values
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "fields", fields)
        encrypted = tuple(f for f in self.values if f.encrypted is not None)
        object.__setattr__(self, "encrypted", encrypted)
        object.__setattr__(self, "_by_name", {f.name: f for f in fields})
        object.__setattr__(self, "_hash", hash(fields))

    def _assign_ids(self) -> None:
        ids = [i for f in self.fields for i in _ids(f)]
        if len(set(ids)) < len(ids) or any(not 0 < i <= MAX_FIELD_ID for i in ids):
            raise InvalidRequestError(
                "the ids of the schema's fields are not all different and positive",
                hint="leave ids out of the schema of a new table: it assigns its own",
            )
        next_id = max([self.next_field_id, 1, *(i + 1 for i in ids)])
        for is_nested in (False, True):
            for part in ("row_keys", "sort_keys", "values"):
                fields = []
                for item in getattr(self, part):
                    fields.append(_numbered(item, next_id, is_nested=is_nested))
                    next_id += len(_ids(fields[-1])) - len(_ids(item))
                object.__setattr__(self, part, tuple(fields))
        object.__setattr__(self, "next_field_id", next_id)

    def __hash__(self) -> int:
        """Return a hash of the fields alone, for caches by schema."""
        return self._hash

    @property
    def key_types(self) -> KeyTypes:
        """The types of the row keys."""
        return tuple(f.type for f in self.row_keys if is_key_type(f.type))

    @property
    def widest_key_types(self) -> KeyTypes:
        """The types of the row keys as the state of a table keeps them: the widest that each can
        become. Stored keys are the same in all of these, so the state does not change with them.
        """
        return tuple(kind for kind in map(widest, self.key_types) if is_key_type(kind))

    @property
    def leaf_columns(self) -> int:
        """The number of columns of primitive type that the fields take in a file."""
        return sum(leaf_columns(f.type) for f in self.fields)

    def with_values(self, *added: Field) -> Schema:
        """Return the schema with more value fields, but for those that it has."""
        ids = {field.id for field in self.values}
        new = tuple(field for field in added if field.id not in ids)
        return replace(self, values=(*self.values, *new)) if new else self

    def without_required(self, names: Container[str]) -> Schema:
        """Return the schema for readers of files that may lack these columns, which may be keys."""
        nullable = copy.copy(self)  # unchecked: a key is never nullable in a table
        for part in ("row_keys", "sort_keys", "values"):
            fields = (
                replace(f, nullable=f.nullable or f.name in names) for f in getattr(self, part)
            )
            object.__setattr__(nullable, part, tuple(fields))
        nullable._index()
        return nullable

    @property
    def opened(self) -> Schema:
        """The schema with the types of values, as programs read and write them."""
        if not self.encrypted:
            return self
        return replace(self, values=tuple(f.opened for f in self.values), data_keys=(), subject=0)

    def field_named(self, name: str) -> Field:
        """Return the field called `name`.
        Raises InvalidRequestError: there is none; the message lists the columns.
        """
        if match := self._by_name.get(name):
            return match
        reason = self.explain_former_name(name)
        raise InvalidRequestError(
            f"there is no column {name!r}" + (f": {reason}" if reason else ""),
            hint=did_you_mean(name, self._by_name, "columns: " + ", ".join(self._by_name)),
        )

    def has_all(self, names: Collection[str]) -> bool:
        """Return whether there are fields of all these names."""
        return all(name in self._by_name for name in names)

    def explain_former_name(self, name: str) -> str:
        """Return what happened to the column that once had a name; "" if none is known."""
        ids = [item.id for item in self.former if item.name == name]
        if not ids:
            return ""
        now = next((field.name for field in self.fields if field.id == ids[-1]), None)
        return "it was dropped" if now is None else f"it was renamed to {now!r}"

    def __repr__(self) -> str:
        """Show the columns in short form, in one line."""
        parts = (
            f"{part}=[{', '.join(show_column(f.name, f.type, f.nullable) for f in fields)}]"
            for part, fields in zip(("row_keys", "sort_keys", "values"), self.parts, strict=True)
            if fields
        )
        return f"Schema({', '.join(parts)})"

    def _repr_html_(self) -> str:
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
                show_type(field.opened.type)
                + (f", numbers in {field.unit}" if field.unit else "")
                + (f", encrypted by {field.key}" if field.key else ""),
                f"{role}, nullable" if field.nullable else role,
            )
            for role, fields in zip(("row key", "sort key", "value"), self.parts, strict=True)
            for field in fields
        ]

    def to_json(self) -> dict[str, object]:
        """Return the JSON form."""
        return {
            "rowKeyFields": [f.to_json() for f in self.row_keys],
            "sortKeyFields": [f.to_json() for f in self.sort_keys],
            "valueFields": [f.to_json() for f in self.values],
            "nextFieldId": self.next_field_id,
            **({"formerNames": msgspec.to_builtins([*self.former])} if self.former else {}),
            **({"dataKeys": msgspec.to_builtins([*self.data_keys])} if self.data_keys else {}),
            **({"subjectFieldId": self.subject} if self.subject else {}),
        }

    def dumps(self) -> str:
        """Return the JSON text; equal schemas give equal texts."""
        return json.dumps(self.to_json(), separators=(",", ":"), ensure_ascii=False)

    @staticmethod
    def loads(text: str | bytes) -> Schema:
        """Parse the JSON text of a schema, or of what has one as its part `schema`.
        Raises InvalidRequestError: it is not JSON, or not a schema; the message says where.
        """
        try:
            body = json.loads(text)
        except (ValueError, RecursionError) as error:  # covers bad JSON and bad UTF-8
            raise InvalidRequestError(f"the schema is not valid JSON: {error}") from error
        return Schema.from_json(body.get("schema", body) if isinstance(body, dict) else body)

    @staticmethod
    def from_json(body: object) -> Schema:
        """Build a schema from parsed JSON.
        Raises InvalidRequestError: `body` is not a schema; the message says where.
        """
        form = parse_form(body, _SchemaForm, "the schema")
        return Schema(
            tuple(map(_field_of, form.rowKeyFields or ())),
            tuple(map(_field_of, form.sortKeyFields or ())),
            tuple(map(_field_of, form.valueFields or ())),
            next_field_id=form.nextFieldId,
            former=form.formerNames,
            data_keys=form.dataKeys,
            subject=form.subjectFieldId,
        )


_Id = Annotated[int, msgspec.Meta(ge=0, le=MAX_FIELD_ID)]


class _FieldForm(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    type: Any
    nullable: bool = False
    id: _Id = 0
    unit: str = ""
    nestedIds: tuple[_Id, ...] = ()
    finer: bool = False
    encrypted: Any = None
    key: str = ""


class _SchemaForm(msgspec.Struct, forbid_unknown_fields=True):
    rowKeyFields: list[_FieldForm] | None = None
    sortKeyFields: list[_FieldForm] | None = None
    valueFields: list[_FieldForm] | None = None
    nextFieldId: _Id = 1
    formerNames: tuple[FormerName, ...] = ()
    dataKeys: tuple[DataKey, ...] = ()
    subjectFieldId: _Id = 0


def parse_field(body: object, where: str) -> Field:
    """Build a field from its JSON form; `where` names it in errors.
    Raises InvalidRequestError: `body` is not a field.
    """
    return _field_of(parse_form(body, _FieldForm, where))


def _field_of(form: _FieldForm) -> Field:
    where = f"field {check_column_name(form.name)!r}"
    return Field(
        form.name,
        parse_written_type(form.type, where),
        form.nullable,
        form.id,
        form.unit,
        form.nestedIds,
        form.finer,
        None if form.encrypted is None else parse_type(form.encrypted, where),
        form.key,
    )


def _ids(field: Field) -> tuple[int, ...]:
    """Return the ids that a field has, its own first."""
    return (field.id, *field.nested_ids) if field.id else field.nested_ids


def _numbered(field: Field, next_id: int, *, is_nested: bool) -> Field:
    """Return the field with ids from `next_id` on, unless it and its parts have them."""
    if not is_nested:
        return field if field.id else replace(field, id=next_id)
    parts = 0 if field.nested_ids else count_nested(field.type)
    return replace(field, nested_ids=tuple(range(next_id, next_id + parts))) if parts else field


def parse_written_type(body: object, where: str) -> FieldType:
    """Return the type of a field: in its JSON form, or as text in its short form.
    Raises InvalidRequestError: it is none; the message begins with `where`.
    """
    if not isinstance(body, str):
        return parse_type(body, where)
    try:
        return parse_type_text(body)
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"{where} has an unknown type: {error}", hint=error.hint
        ) from error


def _check_key(key: Field) -> None:
    if not is_key_type(key.type):
        raise InvalidRequestError(
            f"column {key.name!r} cannot be a key: it is {show_type(key.type)}, which has no key "
            "order",
            hint="keys are decimal, "
            + ", ".join(sorted(map(show_type, KEY_TYPES)))
            + "; give it one of these if its values allow that",
        )
    if key.nullable:
        raise InvalidRequestError(f"field {key.name!r} is a key and cannot be nullable")


# Make a schema of columns that a file or frame has, and of the names of the keys among them.
#
# `FoundColumn` is what a reader of files or frames knows of one column. The rules here are pure:
# they choose keys, apply the types that the caller gives, and refuse what is left without a type.

_MAX_NAMED = 10
_TYPE_HINT = "say which type it has (--type NAME:TYPE, or types={name: type}), or leave it out"


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column of a file or frame: `found` says in words what is in it.

    `type` is None if no type could be inferred; then `problem` says why. `remark` says what the
    column was, if its type is not what people would expect.
    """

    name: str
    found: str
    type: FieldType | None
    nullable: bool = True
    problem: str = ""
    remark: str = ""


def check_list(what: str, values: Iterable[_T]) -> list[_T]:
    """Refuse what is no list of values: a text's characters would be them, or a frame's columns.
    Raises InvalidRequestError: it is a text, bytes, a key by names, a frame, or no list at all.
    """
    if hasattr(values, "columns"):
        raise InvalidRequestError(
            f"{what} is a list, not a {type(values).__name__}",
            hint="the values of a column are a list by its to_list() or to_pylist()",
        )
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidRequestError(
            f"{what} is a list, not one value", hint=f"write {what}=[{values!r}]"
        )
    return list(values)


def check_fields(what: str, values: Iterable[object]) -> list[Field]:
    """Return a list of columns. Raises InvalidRequestError: one is no Field."""
    fields = []
    for each in values:
        if not isinstance(each, Field):
            raise InvalidRequestError(
                f"{what} is a list of columns, each a Field, which {each!r} is not",
                hint=f"write {what}=[Field('n', Primitive.STRING, nullable=True)]",
            )
        fields.append(each)
    return fields


def parse_schema(text: str, row_keys: Sequence[str] = (), sort_keys: Sequence[str] = ()) -> Schema:
    """Return the schema that a text describes: as JSON, or as ``id:long, name:string?``.

    The short form lists columns only, so it needs the names of the keys.
    Raises InvalidRequestError: it describes none; the message says where.
    """
    if text.lstrip().startswith("{"):
        if row_keys or sort_keys:
            raise InvalidRequestError(
                "a schema in JSON says itself which fields are keys",
                hint="leave out the row keys and sort keys, or write the schema as name:type, …",
            )
        return Schema.loads(text)
    columns = [
        FoundColumn(m.name, show_type(m.type), m.type, m.nullable) for m in parse_members_text(text)
    ]
    return choose_schema(columns, row_keys, sort_keys, of="the schema")


def choose_schema(
    columns: Sequence[FoundColumn],
    row_keys: Sequence[str],
    sort_keys: Sequence[str] = (),
    types: Mapping[str, FieldType | str] | None = None,
    *,
    of: str = "it",
) -> Schema:
    """Return the schema of a table with these columns; `of` names in errors what has them.

    `types` are those of columns for which the inferred type will not do, or that have none.
    Raises InvalidRequestError: no row key is named, a key or a typed column is not among the
    columns, a name occurs twice, a key cannot be one, or a column has no type.
    """
    _check_names(columns, of)
    by_name = {column.name: column for column in columns}
    for name in (*row_keys, *sort_keys, *(types or {})):
        if name not in by_name:
            hint = did_you_mean(name, by_name, "columns: " + ", ".join(by_name))
            if len(by_name) == 1 and (separator := re.search(r"[;\t|]", columns[0].name)):
                hint += f"; if {separator[0]!r} separates fields, set the property csv_separator"
            raise InvalidRequestError(f"{of} has no column {name!r}", hint=hint)
    for name, kind in (types or {}).items():
        column = by_name[name]
        if isinstance(kind, str) and kind.rstrip().endswith("?"):  # as in a schema
            column, kind = replace(column, nullable=True), kind.rstrip()[:-1]
        target = parse_type_text(kind) if isinstance(kind, str) else kind
        by_name[name] = replace(column, type=target)
    _check_types(list(by_name.values()), of)
    if not row_keys:
        able = (
            ", ".join(c.name for c in by_name.values() if c.type and is_key_type(c.type)) or "none"
        )
        raise InvalidRequestError(
            "no row keys are named",
            hint="name the columns that partition the rows (--row-keys A,B, or row_keys=[…]), "
            f"of: {able}",
        )
    return Schema(
        tuple(_field(by_name[name], is_key=True) for name in row_keys),
        tuple(_field(by_name[name], is_key=True) for name in sort_keys),
        tuple(_field(c) for c in by_name.values() if c.name not in {*row_keys, *sort_keys}),
    )


def _check_names(columns: Sequence[FoundColumn], of: str) -> None:
    names = [column.name for column in columns]
    if not names:
        raise InvalidRequestError(f"{of} has no columns")
    for name in names:
        check_column_name(name)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidRequestError(
            f"{of} has columns of one name: {', '.join(map(repr, twice))}",
            hint="rename them: a name occurs once in a table",
        )


def _check_types(columns: Sequence[FoundColumn], of: str) -> None:
    without = [column for column in columns if column.type is None]
    if not without:
        return
    reasons = "; ".join(f"column {c.name!r} {c.problem}" for c in without[:_MAX_NAMED])
    more = len(without) - _MAX_NAMED
    raise InvalidRequestError(
        f"the schema of {of} cannot be inferred: {reasons}"
        + (f"; and {more} more" if more > 0 else ""),
        hint=_TYPE_HINT,
    )


def _field(column: FoundColumn, *, is_key: bool = False) -> Field:
    assert column.type is not None
    return Field(column.name, column.type, nullable=column.nullable and not is_key)
