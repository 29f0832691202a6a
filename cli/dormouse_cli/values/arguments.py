"""Parse columns, properties, renames and units written on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.schema.schema import Field, Schema, parse_field
from dormouse.schema.type_text import parse_type_text
from dormouse.tables.properties import KNOWN
from dormouse.tables.spark_options import SparkOptions


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
            raise InvalidRequestError(f"{text!r} has no value", hint="write it as name=value")
        is_text = name in KNOWN and isinstance(KNOWN[name].default, str)
        is_number = not is_text and re.fullmatch(r"-?[0-9]{1,100}", value)
        properties[name] = int(value) if is_number else value
    return properties


def parse_parameters(given: Sequence[str]) -> dict[str, object]:
    """Return the parameters of a statement written as ``name=value``; their values are texts.

    Raises:
        InvalidRequestError: one is written otherwise.
    """
    parameters: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"\w+", name):
            raise InvalidRequestError(
                "a parameter is written otherwise", hint="write it as name=value"
            )
        parameters[name] = value
    return parameters


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
        fields.append(Field(name, parse_type_text(kind.rstrip().removesuffix("?")), nullable=True))
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
