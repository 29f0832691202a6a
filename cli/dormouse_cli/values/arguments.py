"""What is written on the command line, turned into keys, columns and properties."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dormouse.client import KeyValue
from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.key_forms.text import check_is_key, parse_key_part
from dormouse.keys.ranges import KeyPart
from dormouse.schema.schema import Field, Primitive, Schema, parse_field
from dormouse.schema.type_text import parse_type_text
from dormouse.tables.properties import KNOWN
from dormouse.tables.spark_options import SparkOptions

Keys = dict[str, KeyValue]
_PLAIN_NAME = r"[A-Za-z_][A-Za-z0-9_]*"


def parse_key(text: str, schema: Schema) -> Keys:
    """Return the key, or prefix of one, written as ``name=value,name=value…``.

    A comma divides where a name and ``=`` follow, unless a backslash is before it, so that values
    may have commas; two backslashes there are one that ends the value. Sort keys go on where all
    row keys are given.

    Raises:
        InvalidRequestError: a name is no key or comes twice, or a value is not of its type.
    """
    key: Keys = {}
    for assignment in _assignments(text, schema):
        name, equals, value = _divided(assignment, schema)
        if not equals:
            raise InvalidRequestError(f"{assignment!r} is no key", hint="write it as name=value")
        if name in key:
            raise InvalidRequestError(f"key {name!r} is given twice")
        key[name] = parse_part(value, _key(schema, name, is_first=not key))
    return key


def parse_range(text: str, schema: Schema) -> tuple[Keys | None, Keys | None]:
    """Return the ends of a range written as ``from..to``, each a key or nothing for an open end.

    Two dots divide only where a name and ``=`` follow, or nothing.

    Raises:
        InvalidRequestError: it has no two ends, or one is no key.
    """
    ends = re.split(rf"\.\.(?={_key_start(schema)}|$)", text)
    if len(ends) != 2:
        raise InvalidRequestError(
            f"{text!r} is no range",
            hint="write it as name=value..name=value; an end left out is open",
        )
    low, high = (parse_key(end, schema) if end else None for end in ends)
    return low, high


def parse_part(text: str, field: Field) -> KeyPart:
    """Return the key part which `text` stands for in a key.

    Raises:
        InvalidRequestError: it stands for none; the message names the key.
    """
    try:
        return parse_key_part(text, Primitive(field.type))
    except InvalidRequestError as error:
        raise InvalidRequestError(f"key {field.name!r}: {error}", hint=error.hint) from error


def parse_columns(given: Sequence[str], schema: Schema) -> list[str] | None:
    """Return the columns named, one an argument or several with commas between; None if none is."""
    names = [field.name for field in schema.fields]
    columns = [c for text in given for c in ([text] if text in names else text.split(","))]
    return columns or None


def parse_properties(given: Sequence[str]) -> dict[str, object]:
    """Return the properties written as ``name=value``.

    A value that is a whole number is one, unless the property is a text.

    Raises:
        InvalidRequestError: one is written otherwise.
    """
    properties: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InvalidRequestError(f"{text!r} is no property", hint="write it as name=value")
        is_text = name in KNOWN and isinstance(KNOWN[name].default, str)
        is_number = not is_text and re.fullmatch(r"-?[0-9]{1,100}", value)
        properties[name] = int(value) if is_number else value
    return properties


def parse_spark(wanted: bool, given: Sequence[str] | None) -> SparkOptions | None:
    """Return what is asked of Spark for a job; None if nothing is: neither it nor a property.

    Raises:
        InvalidRequestError: a property is not one of a single job, or cannot have its value.
    """
    if not wanted and not given:
        return None
    properties = parse_properties(given or ())
    known = SparkOptions.__struct_fields__
    if others := [name for name in properties if name not in known]:
        raise InvalidRequestError(
            f"{others[0]!r} is no property of a single job", hint=f"there are {', '.join(known)}"
        )
    return SparkOptions(**properties)  # type: ignore[arg-type]  # it checks them itself


def parse_new_fields(given: Sequence[str]) -> list[Field]:
    """Return the columns written as ``name:type``, which can be null, or as JSON.

    Raises:
        InvalidRequestError: one is written otherwise, or there is no such type.
    """
    fields = []
    for text in given:
        if text.startswith("{"):
            fields.append(parse_field(_json(text), "the column"))
            continue
        name, colon, kind = text.partition(":")
        if not name or not colon:
            raise InvalidRequestError(f"{text!r} is no column", hint="write it as name:type")
        fields.append(Field(name, parse_type_text(kind), nullable=True))
    return fields


def parse_renames(given: Sequence[str], schema: Schema) -> dict[str, str]:
    """Return new names by old ones, written as ``old=new``; the old name may have ``=`` in it.

    Raises:
        InvalidRequestError: one is written otherwise, or a column is renamed twice.
    """
    renames: dict[str, str] = {}
    names = [field.name for field in schema.fields]
    for text in given:
        known = max((n for n in names if text.startswith(f"{n}=")), key=len, default=None)
        old, equals, new = (
            text.partition("=") if known is None else (known, "=", text[len(known) + 1 :])
        )
        if not old or not equals or not new:
            raise InvalidRequestError(
                f"{text!r} is no change of a name", hint="write it as old=new"
            )
        if old in renames:
            raise InvalidRequestError(f"column {old!r} is renamed twice")
        renames[old] = new
    return renames


def parse_units(given: Sequence[str]) -> dict[str, str]:
    """Return units by columns, written as ``column=unit``; ``none`` takes one away.

    Raises:
        InvalidRequestError: one is written otherwise, or a column has two.
    """
    units: dict[str, str] = {}
    for text in given:
        name, _, unit = text.rpartition("=")
        if not name or not unit:
            raise InvalidRequestError(f"{text!r} is no unit", hint="write it as column=unit")
        if name in units:
            raise InvalidRequestError(f"column {name!r} is given two units")
        units[name] = "" if unit == "none" else unit
    return units


def read_file(path: Path) -> bytes:
    """Return what a small file holds.

    Raises:
        NotFoundError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFoundError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{text!r} is not valid JSON: {error}") from error


def _key_start(schema: Schema) -> str:
    """Return the pattern of what a part of a key begins with: any column's name, or a plain one.

    Others than keys are among them, so that they are refused and not taken for part of a value.
    """
    names = sorted((field.name for field in schema.fields), key=len, reverse=True)
    return f"(?:{'|'.join(map(re.escape, names))}|{_PLAIN_NAME})="


def _assignments(text: str, schema: Schema) -> Iterator[str]:
    """Yield the parts of a key, without the backslashes before a comma, a name and ``=``."""
    part, at = "", 0
    for comma in re.finditer(rf"(\\*),(?={_key_start(schema)})", text):
        backslashes = len(comma[1])
        part += text[at : comma.start()] + "\\" * (backslashes // 2)
        at = comma.end()
        if backslashes % 2:
            part += ","
        else:
            yield part
            part = ""
    yield part + text[at:]


def _divided(assignment: str, schema: Schema) -> tuple[str, str, str]:
    """Return name, ``=`` and value of one part of a key; the name may have ``=`` in it."""
    names = [field.name for field in schema.fields if assignment.startswith(f"{field.name}=")]
    if not names:
        return assignment.partition("=")
    name = max(names, key=len)
    return name, "=", assignment[len(name) + 1 :]


def _key(schema: Schema, name: str, *, is_first: bool) -> Field:
    try:
        return check_is_key(schema, name)
    except InvalidRequestError as error:
        if is_first:
            raise
        hint = r"a comma that belongs to the value before it is written \,"
        raise InvalidRequestError(str(error), hint=f"{error.hint}; {hint}") from error
