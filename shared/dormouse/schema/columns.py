"""Make a schema of columns that a file or frame has, and of the names of the keys among them.

`FoundColumn` is what a reader of files or frames knows of one column. The rules here are pure: they
choose keys, apply the types that the caller gives, and refuse what is left without a type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dormouse.errors import InvalidRequestError
from dormouse.schema.schema import KEY_TYPES, Field, FieldType, Schema
from dormouse.schema.type_text import parse_members_text, parse_type_text, show_type
from dormouse.schema.types import check_column_name

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


def parse_schema(text: str, row_keys: Sequence[str] = (), sort_keys: Sequence[str] = ()) -> Schema:
    """Return the schema that a text describes: as JSON, or as ``id:long, name:string?``.

    The short form lists columns only, so it needs the names of the keys.

    Raises:
        InvalidRequestError: it describes none; the message says where.
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

    Raises:
        InvalidRequestError: no row key is named, a key or a typed column is not among the columns,
            a name occurs twice, a key cannot be one, or a column has no type.
    """
    _check_names(columns, of)
    known = {column.name: column for column in columns}
    for name in (*row_keys, *sort_keys, *(types or {})):
        if name not in known:
            hint = "columns: " + ", ".join(known)
            if len(known) == 1 and (found := re.search(r"[;\t|]", columns[0].name)):
                hint += f"; if {found[0]!r} separates fields, set the property csv_separator"
            raise InvalidRequestError(f"{of} has no column {name!r}", hint=hint)
    for name, kind in (types or {}).items():
        column = known[name]
        if isinstance(kind, str) and kind.rstrip().endswith("?"):  # as in a schema
            column, kind = replace(column, nullable=True), kind.rstrip()[:-1]
        wanted = parse_type_text(kind) if isinstance(kind, str) else kind
        known[name] = replace(column, type=wanted)
    _check_types(list(known.values()), of)
    if not row_keys:
        able = ", ".join(c.name for c in known.values() if c.type in KEY_TYPES) or "none"
        raise InvalidRequestError(
            "no row keys are named", hint=f"name the columns that partition the rows, of: {able}"
        )
    for name in (*row_keys, *sort_keys):
        _check_key(known[name])
    return Schema(
        tuple(_field(known[name], is_key=True) for name in row_keys),
        tuple(_field(known[name], is_key=True) for name in sort_keys),
        tuple(_field(c) for c in known.values() if c.name not in {*row_keys, *sort_keys}),
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


def _check_key(column: FoundColumn) -> None:
    if column.type is not None and column.type not in KEY_TYPES:
        raise InvalidRequestError(
            f"column {column.name!r} cannot be a key: it is {show_type(column.type)}, "
            "which has no key order",
            hint="keys are "
            + ", ".join(sorted(show_type(kind) for kind in KEY_TYPES))
            + "; give it one of these if its values allow that",
        )


def _field(column: FoundColumn, *, is_key: bool = False) -> Field:
    assert column.type is not None
    return Field(column.name, column.type, nullable=column.nullable and not is_key)
