"""Whether a caller may have what was read for a result, by the access rules of this moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dormouse.access.rules import AccessRules, permission
from dormouse.errors import ForbiddenError
from dormouse.ports.services import Services
from dormouse.tables.table import Table


def check_readable(
    services: Services,
    principal: str,
    tables: Iterable[str],
    columns: Mapping[str, Iterable[str]],
) -> None:
    """Check that a caller may still see what was read of tables, whatever a result calls it;
    `columns` are those that were read, by the ids of tables.

    Tables and columns count under the names that they had and those that they have: rules are about
    names, and are changed together with them.

    Raises:
        ForbiddenError: rules do not let the caller read one of the tables or columns any more.
    """
    rules = services.tables.access_rules()
    before = {name: permission(rules, principal, name) for name in tables}
    is_allowed = all("read" in each.verbs for each in before.values())
    if rules is not None:
        found = {each: services.table(each) for each in columns}
        now = {table_id: table.name for table_id, table in found.items() if table is not None}
        for table_id, names in columns.items():
            # one that is gone, or has another name, had any that is of no other table now
            had = {now[table_id]} if now.get(table_id) in before else {*before} - {*now.values()}
            hidden = frozenset[str]().union(*(before[name].hidden for name in had))
            is_allowed &= hidden.isdisjoint(names)
            is_allowed &= _shows(rules, principal, found[table_id], names)
    if not is_allowed:
        raise ForbiddenError("you may not read any more what this query has read")


def _shows(rules: AccessRules, principal: str, table: Table | None, columns: Iterable[str]) -> bool:
    """Return whether a caller may read these columns of a table as it is now."""
    if table is None:
        return True
    allowed = permission(rules, principal, table.name)
    hidden = {field.id for field in table.schema.fields if field.name in allowed.hidden}
    former = {each.name for each in table.schema.former if each.id in hidden}
    return "read" in allowed.verbs and allowed.hidden.union(former).isdisjoint(columns)
