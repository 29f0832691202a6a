"""A table as a caller may see it: without the columns that are hidden from the caller.

What is hidden is in no list of columns, and no name of a column: a condition on it is refused as
one on a column that is not there. The table's own filters and aggregations still use it, and rows
stay sorted by a hidden key; but nobody from whom it is hidden can bound rows by it, or by a key
after it. So of the keys only those before the first hidden one are keys in the visible schema, and
the others are its first values.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from dormouse.access.rules import EVERYTHING, Permission
from dormouse.errors import InvalidRequestError
from dormouse.keys.ranges import KeyRange
from dormouse.schema.schema import Schema
from dormouse.tables.table import Table


@dataclass(frozen=True, slots=True)
class VisibleTable:
    """A table, and what of it a caller may see and do.

    Rows are read by way of `table`, which is whole. What the caller writes is understood by
    `schema`, and what the caller is shown is of `schema`: it has only the visible columns.
    """

    table: Table
    permission: Permission
    schema: Schema

    @staticmethod
    def of(table: Table, permission: Permission) -> VisibleTable:
        """Return what a permission lets its holder see of a table."""
        return VisibleTable(table, permission, visible_schema(table.schema, permission))

    @staticmethod
    def whole(table: Table) -> VisibleTable:
        """Return all of a table, for whoever reads it by rights of their own in AWS."""
        return VisibleTable(table, EVERYTHING, table.schema)

    @property
    def is_whole(self) -> bool:
        """Whether nothing of it is hidden, so that its files may be read. Files hold columns that
        were dropped since, and those of an earlier schema: it does not matter which there are now.
        """
        return self.permission.hides_nothing

    @property
    def shows_all_keys(self) -> bool:
        """Whether keys of rows, least and greatest keys and split points may be shown."""
        return len(self.schema.keys) == len(self.table.schema.keys)


def visible_schema(schema: Schema, permission: Permission) -> Schema:
    """Return a schema without the columns that a permission hides; it may lack row keys."""
    hidden = permission.hidden
    if not hidden or not hidden & _all_names(schema):
        return schema
    columns = {field.name for field in schema.fields} - hidden
    keys = list(takewhile(lambda field: field.name in columns, schema.keys))
    rest = [field for field in schema.fields[len(keys) :] if field.name in columns]
    gone = {field.id for field in schema.fields if field.name not in columns}
    former = (each for each in schema.former if each.id not in gone and each.name not in hidden)
    rows = len(schema.row_keys)
    return Schema(
        tuple(keys[:rows]),
        tuple(keys[rows:]),
        tuple(rest),
        schema.next_field_id,
        tuple(former),
        is_part=True,
    )


def check_visible(
    schema: Schema, permission: Permission, columns: Iterable[str], ranges: Iterable[KeyRange]
) -> None:
    """Check that columns are visible, and that ranges are bounded by visible keys alone.

    Raises:
        InvalidRequestError: a column is not visible, said as of a column that is not there; or a
            bound has parts of keys that are not.
    """
    if permission.hides_nothing:
        return
    visible = visible_schema(schema, permission)
    for name in columns:
        visible.field_named(name)
    most = len(visible.keys)
    for span in ranges:
        if len(span.min) > most or len(span.max or ()) > most:
            raise InvalidRequestError(
                f"rows of this table can be bounded by {most} key columns, and a bound has more",
                hint="find rows by other columns with a condition",
            )


def _all_names(schema: Schema) -> set[str]:
    return {field.name for field in schema.fields} | {each.name for each in schema.former}
