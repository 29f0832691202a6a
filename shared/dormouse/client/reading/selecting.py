"""What Python says of the rows it wants, as messages have it."""

from __future__ import annotations

from collections.abc import Sequence

from dormouse.client.reading.versions import as_of_to_json
from dormouse.errors import InvalidRequestError
from dormouse.key_forms.codec import KeyCodec
from dormouse.key_forms.python import KeyLike, Ranges
from dormouse.messages.stages import SelectionMessage
from dormouse.model.versions.as_of import AsOf
from dormouse.schema.schema import Schema
from dormouse.schema.types import check_name_list


def selection_message(
    schema: Schema,
    ranges: Ranges | None = None,
    exact: KeyLike | list[KeyLike] | None = None,
    *,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    limit: int | None = None,
    as_of: AsOf | None = None,
) -> SelectionMessage:
    """Return the message that asks for the rows that `TableHandle.query` returns.

    Raises:
        InvalidRequestError: a key or version is invalid, or no rows or columns are selected.
    """
    check_name_list("columns", columns)
    keys = exact if isinstance(exact, list) else [] if exact is None else [exact]
    codec = KeyCodec(schema)
    spans = codec.spans_from_python(ranges)
    is_chosen = ranges is not None or exact is not None
    if (is_chosen and not keys and not spans) or columns == []:
        raise InvalidRequestError(
            "no rows or columns are asked for", hint="leave out what is empty to get all"
        )
    return SelectionMessage(
        keys=codec.keys_to_json(keys),
        ranges=tuple(map(codec.range_to_json, spans)),
        where=where or "",
        columns=tuple(columns or ()),
        limit=limit,
        as_of=None if as_of is None else as_of_to_json(as_of),
    )
