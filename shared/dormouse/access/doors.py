"""The one way by which services that answer for any caller come to tables.

Such a service, a *door*, reads with rights of its own. So it opens no table by itself: it asks
here, with the principal that AWS has verified. A caller who may do nothing with a table gets the
same error as for a table that is not there.
"""

from __future__ import annotations

from dormouse.access.rules import (
    NOTHING,
    AccessRules,
    Permission,
    Verb,
    permission,
)
from dormouse.access.visible import VisibleTable
from dormouse.errors import DamagedEntryError, ForbiddenError
from dormouse.ports.services import Services
from dormouse.tables.table import Table, check_name, table_not_found


def allowed_table(services: Services, principal: str, name: str, verb: Verb) -> VisibleTable:
    """Return a table by name, as a caller may see it who wants to read, write or administer it.

    Raises:
        NotFoundError: there is no such table, or the caller may do nothing with it.
        ForbiddenError: the caller may not do this with it.
        CorruptDataError: the rules, or the table's entry, are damaged.
    """
    found = find_table(services, principal, name, verb)
    if found is None:
        seen = visible_tables(services, principal)
        raise table_not_found(name, [each.table for each in seen])
    return found


def find_table(services: Services, principal: str, name: str, verb: Verb) -> VisibleTable | None:
    """Return a table as `allowed_table` does; None if there is none, or none for this caller.

    Raises:
        ForbiddenError: the caller may not do this with it.
        CorruptDataError: the rules, or the table's entry, are damaged.
    """
    allowed = permission(services.tables.access_rules(), principal, name)
    table = services.tables.named(name) if allowed != NOTHING else None
    return None if table is None or table.deleting else _checked(table, allowed, verb)


def visible_tables(services: Services, principal: str) -> list[VisibleTable]:
    """Return the tables with which a caller may do anything, by name, but for damaged entries.

    Raises:
        CorruptDataError: the rules are damaged.
    """
    rules = services.tables.access_rules()
    tables, _ = services.tables.list_readable()
    seen = ((table, permission(rules, principal, table.name)) for table in tables)
    return [
        VisibleTable.of(table, allowed)
        for table, allowed in seen
        if allowed != NOTHING and not table.deleting
    ]


def damaged_entries(services: Services, principal: str) -> list[DamagedEntryError]:
    """Return the damaged entries of the registry, whose tables no rule can be told to be about;
    none for a caller who may not read all tables.

    Raises:
        CorruptDataError: the rules are damaged.
    """
    allowed = instance_permission(services.tables.access_rules(), principal)
    return services.tables.list_readable()[1] if "read" in allowed.verbs else []


def check_new_name(services: Services, principal: str, name: str) -> None:
    """Check that a caller may create a table of a name: who may administer such a table may.

    Raises:
        ForbiddenError: the caller may not.
        InvalidRequestError: no table can have the name.
        CorruptDataError: the rules are damaged.
    """
    allowed = permission(services.tables.access_rules(), principal, check_name(name))
    if "administer" not in allowed.verbs:
        raise ForbiddenError(f"you may not create a table {name!r}", hint=_ASK)


def check_instance(services: Services, principal: str, verb: Verb) -> None:
    """Check that a caller may do something that concerns all tables of the instance, also those to
    come: a rule for all tables, ``*``, must say so.

    Raises:
        ForbiddenError: none does.
        CorruptDataError: the rules are damaged.
    """
    if verb not in instance_permission(services.tables.access_rules(), principal).verbs:
        raise ForbiddenError(
            f"you may not {verb} what concerns all tables of this instance", hint=_ASK
        )


def administers_instance(services: Services, principal: str) -> bool:
    """Return whether a rule lets a caller administer all tables of the instance. Without rules
    nobody is known to: IAM has only judged that the caller may ask.

    Raises:
        CorruptDataError: the rules are damaged.
    """
    rules = services.tables.access_rules()
    return rules is not None and "administer" in instance_permission(rules, principal).verbs


def instance_permission(rules: AccessRules, principal: str) -> Permission:
    """Return what rules for all tables permit a caller."""
    if rules is None:
        return permission(None, principal, "")
    of_all = tuple(rule for rule in rules if rule.tables == "*")
    return permission(of_all, principal, "")


_ASK = "who administers this instance can grant it: `dormouse access grant`"


def _checked(table: Table, allowed: Permission, verb: Verb) -> VisibleTable:
    if verb not in allowed.verbs:
        raise ForbiddenError(f"you may not {verb} table {table.name!r}", hint=_ASK)
    return VisibleTable.of(table, allowed)
