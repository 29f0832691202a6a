"""Which tables can be published for readers of Iceberg; a table that cannot is refused by name.

Readers from outside get the rows that are stored. Of a table with row rules these are not its rows:
some are parts of one, others should be hidden. So its owner has to say that readers get those.
"""

from __future__ import annotations

from dormouse.errors import InvalidRequestError
from dormouse.iceberg.types import check_publishable
from dormouse.schema.schema import Schema
from dormouse.tables.properties import Properties
from dormouse.tables.row_rules import row_rules


def is_published(properties: Properties) -> bool:
    """Return whether a table is published."""
    return properties.iceberg == "on"


def is_mirrored(properties: Properties) -> bool:
    """Return whether a table is to have an entry in Glue."""
    return is_published(properties) and properties.iceberg_glue == "on"


def glue_name(name: str) -> str:
    """Return the name that a published table has in Glue, whose names are in lower case.

    Raises:
        InvalidRequestError: it has a dot, which ends the name of a database there.
    """
    if "." in name:
        raise InvalidRequestError(
            f"a table with a dot in its name, as {name!r}, can have no entry in Glue",
            hint="rename the table, or leave iceberg_glue off",
        )
    return name.lower()


def check_published(schema: Schema, properties: Properties) -> None:
    """Check that a table with these properties can be published, if it is to be.

    Raises:
        InvalidRequestError: a column cannot, by its type or its name; or the table has row rules.
    """
    if not is_published(properties):
        return
    check_publishable(schema, int(properties.iceberg_format))
    rules = row_rules(schema, properties)
    if rules.is_empty or properties.iceberg_parts == "yes":
        return
    if rules.aggregates:
        problem = "readers of Iceberg would get the stored parts of aggregated rows"
    else:
        problem = "readers of Iceberg would get stored rows that the filters hide"
    raise InvalidRequestError(
        f"a table with {'aggregations' if rules.aggregates else 'filters'} is not published: "
        f"{problem}",
        hint="set iceberg_parts=yes as well if they are to get what is stored",
    )
