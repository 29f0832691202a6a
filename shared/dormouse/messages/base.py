"""What all messages are made of: their base, ids, and the selection of rows."""

from __future__ import annotations

from typing import Annotated

import msgspec

Id = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,999}\Z")]
"""The id of a table, job, partition, shard or similar. DynamoDB limits keys to 1 KB."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """The base of all messages; `v` is the version of its form.

    A field that is added to a form later is left out if it is empty: functions of the previous
    release do not know it, and refuse a message that has it.
    """


class OfTable(Message, frozen=True):
    """The base of messages about one table. Queues are fair among tables, by this id."""

    table_id: Id


JsonKey = tuple[object, ...]
"""A key in a message: its parts, row keys and then sort keys. `key_forms.json` says what each is.
"""


class SelectionMessage(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """Which rows and columns of a table are asked for; by default all.

    A row is selected if its key begins with one of `keys` or is in one of `ranges`, and `where` is
    true of it, which is a condition in SQL. A key is a list of parts, row keys and then sort keys.
    A range is a pair of a first key, inclusive, and a last key, exclusive, null for an open end.
    `columns` are those to return, none for all. At most `limit` rows are selected, the first in key
    order. `as_of` is a version, a tag or an ISO 8601 time, null for now.
    """

    keys: tuple[JsonKey, ...] = ()
    ranges: tuple[tuple[JsonKey | None, JsonKey | None], ...] = ()
    where: str = ""
    columns: tuple[str, ...] = ()
    limit: int | None = None
    as_of: int | str | None = None


ALL_ROWS = SelectionMessage()
