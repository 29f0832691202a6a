"""Which columns of a table are encrypted, as the property `encrypted_columns` says.

The column of an encrypted field has bytes, in shards and everywhere between files and readers; the
field says what type the values have, and the name of their key. It stays encrypted for good.
"""

import re
from collections.abc import Container, Iterator
from dataclasses import replace

from dormouse.encryption import KeyService, new_key
from dormouse.errors import ForbiddenError, InvalidRequestError
from dormouse.schema.schema import DataKey, Field, Schema
from dormouse.schema.types import DecimalType, Primitive, show_type
from dormouse.tables.indexing import shredded_paths, term_columns
from dormouse.tables.properties import Properties, bloom_columns, column_named
from dormouse.tables.row_rules import Aggregation, row_rules

DEFAULT_KEY = "default"
_SUBJECTS = ("IntType", "LongType", "StringType", "ByteArrayType", "UuidType")
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_HINT = "write ssn, or ssn:KEY, separated by commas; * are all columns that are no keys"


def encrypted_columns(schema: Schema, properties: Properties) -> dict[str, str]:
    """Return the names of the keys of the columns that are to be encrypted, by their names.
    Raises InvalidRequestError: a column is unknown, a key, or of a type with parts.
    """
    named = _keys_of(schema, properties)
    for name in named:
        field = column_named(name, schema.fields, "encrypted_columns")
        if field in schema.keys:
            raise InvalidRequestError(
                f"encrypted_columns: {name} is a key, and rows are stored and found by their keys",
                hint="give the table a key that is no secret, such as a number",
            )
        _check_type(field)
    return named


def _check_type(field: Field) -> None:
    kind = field.opened.type
    if kind is Primitive.DYNAMIC or not isinstance(kind, Primitive | DecimalType):
        raise InvalidRequestError(
            f"encrypted_columns: {field.name} is {show_type(kind)}, and values with parts cannot "
            "be encrypted",
            hint="give it the type string, and store JSON",
        )


def _keys_of(schema: Schema, properties: Properties) -> dict[str, str]:
    named = dict(_named(properties.encrypted_columns))
    if (every := named.pop("*", None)) is not None:
        plain = (field for field in schema.values if field.name != properties.subject_column)
        named = {field.name: every for field in plain} | named
    return named


def _subject(schema: Schema, properties: Properties, encrypted: Container[str]) -> int:
    """Return the id of the column that says whose the values of a row are; 0 if none does."""
    name = properties.subject_column
    if not name:
        return 0
    field = next((field for field in schema.fields if field.name == name), None)
    lasting = [f.name for f in schema.values if f.name in encrypted and not f.nullable]
    if field is None:
        problem = f"the table has no column {name!r}"
    elif name in encrypted:
        problem = f"{name} is encrypted itself"
    elif field.nullable:
        problem = f"{name} can be null, and each row must say whose it is"
    elif field.type.to_json() not in _SUBJECTS:
        problem = f"{name} is {show_type(field.type)}, and no int, long, string, bytes or uuid"
    elif lasting:
        problem = f"{lasting[0]} cannot be null, as it is once its subject is forgotten"
    elif not any(f.name in encrypted for f in schema.values):
        problem = "no column is encrypted"
    else:
        return field.id
    raise InvalidRequestError(
        f"subject_column: {problem}",
        hint="name a column such as user_id, in plain and never null, beside encrypted_columns",
    )


def subject_of(schema: Schema) -> Field:
    """Return the column that says whose the values of a row are.
    Raises InvalidRequestError: there is none.
    """
    if field := next((each for each in schema.fields if each.id == schema.subject), None):
        return field
    raise InvalidRequestError(
        "the table has no column that says whose its encrypted values are",
        hint="subject_column names one when a table is created, and stays; purge rows instead",
    )


def _named(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, map(str.strip, text.split(","))):
        name, colon, key = part.rpartition(":")
        name, key = (name, key) if colon else (part, DEFAULT_KEY)
        if not name or not _KEY.fullmatch(key):
            raise InvalidRequestError(f"encrypted_columns: {part!r} is no column", hint=_HINT)
        yield name, key


def check_encryption(schema: Schema, properties: Properties) -> None:
    """Check that nothing else that a table does reads the values of its encrypted columns.
    Raises InvalidRequestError: something does; the message says what.
    """
    names = {field.name for field in schema.encrypted}
    if not schema.encrypted:
        names = {*encrypted_columns(schema, properties)}
        _subject(schema, properties, names)
    if not names:
        return
    if properties.ingest_on_error == "skip":
        raise InvalidRequestError(
            "a table with encrypted columns cannot skip rows: they would be kept in plain",
            hint="set ingest_on_error=refuse",
        )
    for property_name, used in column_uses(schema, properties).items():
        if both := sorted(names & used):
            raise InvalidRequestError(
                f"{property_name} uses the column {both[0]!r}, whose values are encrypted",
                hint="leave it out there, or out of encrypted_columns",
            )


def column_uses(schema: Schema, properties: Properties) -> dict[str, set[str]]:
    """Return the columns that the values of properties name, by the names of the properties.
    Raises InvalidRequestError: one does not fit the schema.
    """
    rules = row_rules(schema, properties)
    aggregation = rules.aggregation or Aggregation()
    return {
        "bloom_columns": {*bloom_columns(schema, properties)},
        "term_index": {name for name, _ in term_columns(schema, properties)},
        "shredded_paths": {each.column.name for each in shredded_paths(schema, properties) or ()},
        "filters": {*rules.filter_columns},
        "aggregations": {name for name, _ in aggregation.operations},
        "latest_by": {aggregation.by} - {""},
    }


def encrypted_schema(
    schema: Schema,
    properties: Properties,
    keys: KeyService,
    table_id: str,
    before: Schema | None = None,
) -> Schema:
    """Return the schema with the columns encrypted that are to be, and with a data key of the
    number that the property `data_key` says of each key. Those that it had `before` stay as they
    are.

    Raises:
        InvalidRequestError: a column cannot be encrypted, or a key not be used.
        UnavailableError: who has the keys does not answer.
    """
    if not properties.encrypted_columns:
        return schema
    if before is None:
        key_names = encrypted_columns(schema, properties)
        schema = replace(schema, subject=_subject(schema, properties, key_names))
    else:
        key_names = _of_added(schema, properties, before)
    values = tuple(_encrypted(f, key_names.get(f.name)) for f in schema.values)
    numbers = {(each.name, each.number) for each in schema.data_keys}
    new_keys = []
    for name in sorted({field.key for field in values if field.key}):
        if (name, properties.data_key) not in numbers:
            try:
                is_new = all(each.name != name for each in schema.data_keys)
                wrapped = keys.wrap(name, new_key(), table_id, is_new=is_new)
            except ForbiddenError as error:  # a request that asks for it is refused
                raise InvalidRequestError(
                    f"no data key can be made: {error}", hint=error.hint
                ) from error
            new_keys.append(DataKey(name, properties.data_key, wrapped))
    return replace(schema, values=values, data_keys=(*schema.data_keys, *new_keys))


def _of_added(schema: Schema, properties: Properties, before: Schema) -> dict[str, str]:
    named, ids = _keys_of(schema, properties), {field.id for field in before.fields}
    if before.subject:
        subject_of(schema)
    key_names = {}
    for field in schema.values:
        is_plain = field.name not in named or field.id == schema.subject
        if is_plain or field.encrypted is not None:
            continue
        if field.id in ids:
            raise InvalidRequestError(
                f"no column can be renamed to {field.name!r}, which encrypted_columns names: its "
                "values are stored in plain",
                hint="choose another name",
            )
        _check_type(field)
        key_names[field.name] = named[field.name]
    return key_names


def _encrypted(field: Field, key: str | None) -> Field:
    if key is None or field.encrypted is not None:
        return field
    return replace(field, type=Primitive.BYTES, encrypted=field.type, key=key)


def rewrapped(schema: Schema, of: tuple[KeyService, str], to: tuple[KeyService, str]) -> Schema:
    """Return a schema whose data keys are encrypted for another table, perhaps by another service;
    each is given with the id of its table.

    Raises:
        ForbiddenError, UnavailableError: a key cannot be used.
        InvalidRequestError: there are keys of subjects, which stay where they can be forgotten.
    """
    if schema.subject:
        raise InvalidRequestError(
            "a table with keys of subjects cannot be copied: who forgets a subject here could not "
            "know of its key there",
            hint="query the rows, and ingest them into a table that is made there",
        )
    keys = []
    for each in schema.data_keys:
        key = of[0].unwrap(each.name, each.wrapped, of[1])
        keys.append(replace(each, wrapped=to[0].wrap(each.name, key, to[1])))
    return replace(schema, data_keys=tuple(keys))


def check_not_encrypted(*fields: Field) -> None:
    """Refuse fields given as encrypted: only a property says so. Raises InvalidRequestError."""
    for field in fields:
        if field.encrypted is not None or field.key:
            raise InvalidRequestError(
                f"column {field.name!r} cannot be given as encrypted",
                hint="give the type of its values, and name it in the property encrypted_columns",
            )
