"""Selections in messages and stored objects: the one codec between `Selection` and JSON.

A message says which rows are asked for before the version is known: keys and ranges in their JSON
form, a condition in SQL, names of columns, a version or a time. `decode_selection` validates it
against a schema and returns a `Selection` of one version; `encode_selection` turns a `Selection`
back into a message, which decodes to the same selection. So code that cuts a query into
parts, or stores what to read later, sends what a user could have sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from dormouse.access.rules import EVERYTHING, Permission
from dormouse.access.visible import visible_schema
from dormouse.errors import CorruptDataError, InvalidRequestError
from dormouse.key_forms.codec import KeyCodec
from dormouse.keys.ranges import KeyRange
from dormouse.messages.stages import SelectionMessage
from dormouse.query.planner import select
from dormouse.query.selection import Selection
from dormouse.schema.schema import Schema
from dormouse.sql.conditions import Condition, parse_condition


class StoredSelection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The stored form of a selection, with the schema that its names and keys are of."""

    schema: dict[str, Any]
    version: int
    time_ms: int
    rows: SelectionMessage


def decode_selection(
    message: SelectionMessage,
    schema: Schema,
    *,
    permission: Permission,
    version: int,
    time_ms: int,
) -> Selection:
    """Return the rows that a message asks for, of a version that its caller has found. `now()` in
    its condition is `time_ms`.

    `schema` is whole; what the message names must be among what `permission` shows of it.

    Raises:
        InvalidRequestError: a key, column, condition or limit does not fit the schema, or a range
            ends before it starts.
    """
    visible = visible_schema(schema, permission)
    return select(
        schema,
        version,
        time_ms,
        list(_ranges(message, visible)),
        permission=permission,
        columns=message.columns or None,
        condition=_condition(message.where, visible, time_ms),
        limit=message.limit,
    )


def encode_selection(selection: Selection, schema: Schema) -> SelectionMessage:
    """Return the message that asks for the rows of a selection."""
    codec = KeyCodec(schema)
    is_all = selection.ranges == (KeyRange(),)
    return SelectionMessage(
        ranges=() if is_all else tuple(map(codec.range_to_json, selection.ranges)),
        where=selection.where,
        columns=selection.columns,
        limit=selection.limit,
        as_of=selection.version,
    )


def store_selection(selection: Selection, schema: Schema) -> StoredSelection:
    """Return the stored form of a selection."""
    rows = encode_selection(selection, schema)
    return StoredSelection(schema.to_json(), selection.version, selection.time_ms, rows)


def load_selection(stored: StoredSelection) -> tuple[Schema, Selection]:
    """Return the schema and the selection of a stored form.

    Raises:
        CorruptDataError: it is no selection; the error quotes neither keys nor the condition.
    """
    try:
        schema = Schema.from_json(stored.schema)
        selection = decode_selection(
            stored.rows,
            schema,
            permission=EVERYTHING,  # its columns were chosen when it was stored
            version=stored.version,
            time_ms=stored.time_ms,
        )
    except InvalidRequestError:
        # not chained: the message of the error quotes what may be values of rows
        raise CorruptDataError("its selection cannot be read any more") from None
    return schema, selection


def _condition(where: str, schema: Schema, time_ms: int) -> Condition | None:
    # what has no time, such as a purge, has no present either
    return parse_condition(where, schema, now_ms=time_ms or None) if where.strip() else None


def _ranges(message: SelectionMessage, schema: Schema) -> Iterator[KeyRange]:
    codec = KeyCodec(schema)
    for number, key in enumerate(message.keys, start=1):
        yield KeyRange.exactly(codec.from_json(key, f"key {number}"))
    for number, ends in enumerate(message.ranges, start=1):
        yield codec.range_from_json(ends, f"range {number}")
