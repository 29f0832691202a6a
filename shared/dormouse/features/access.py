"""The one way by which services that answer for any caller come to tables.

Such a service, a *door*, reads with rights of its own. So it opens no table by itself: it asks
here, with the principal that AWS has verified. A caller who may do nothing with a table gets the
same error as for a table that is not there.
"""

from collections.abc import Iterable, Mapping

from dormouse.access import (
    NOTHING,
    AccessRule,
    AccessRules,
    Permission,
    Verb,
    VisibleTable,
    granted,
    permission,
    revoked,
)
from dormouse.errors import DamagedEntryError, ForbiddenError
from dormouse.messages.requests import ClearAccess, GrantAccess, RevokeAccess
from dormouse.ports import Services
from dormouse.tables.table import Table, check_name, table_not_found


def allowed_table(services: Services, principal: str, name: str, verb: Verb) -> VisibleTable:
    """Return a table by name, as a caller may see it who wants to read, write or administer it.

    Raises:
        NotFoundError: there is no such table, or the caller may do nothing with it.
        ForbiddenError: the caller may not do this with it.
        CorruptDataError: the rules, or the table's entry, are damaged.
    """
    table = find_table(services, principal, name, verb)
    if table is None:
        visible = visible_tables(services, principal)
        raise table_not_found(name, [each.table for each in visible])
    return table


def find_table(services: Services, principal: str, name: str, verb: Verb) -> VisibleTable | None:
    """Return a table as `allowed_table` does; None if there is none, or none for this caller.

    Raises:
        ForbiddenError: the caller may not do this with it.
        CorruptDataError: the rules, or the table's entry, are damaged.
    """
    rights = permission(services.tables.access_rules(), principal, name)
    table = services.tables.named(name) if rights != NOTHING else None
    if table is None or table.deleting:
        return None
    if verb not in rights.verbs:
        raise ForbiddenError(f"you may not {verb} table {table.name!r}", hint=_ASK)
    return VisibleTable.of(table, rights)


def visible_tables(services: Services, principal: str) -> list[VisibleTable]:
    """Return the tables with which a caller may do anything, by name, but for damaged entries.
    Raises CorruptDataError: the rules are damaged.
    """
    rules = services.tables.access_rules()
    tables, _ = services.tables.list_readable()
    pairs = ((table, permission(rules, principal, table.name)) for table in tables)
    return [
        VisibleTable.of(table, rights)
        for table, rights in pairs
        if rights != NOTHING and not table.deleting
    ]


def damaged_entries(services: Services, principal: str) -> list[DamagedEntryError]:
    """Return the damaged entries of the registry, of which nobody knows what rules they have;
    none for a caller who may not read all tables.
    Raises CorruptDataError: the rules are damaged.
    """
    rights = instance_permission(services.tables.access_rules(), principal)
    return services.tables.list_readable()[1] if "read" in rights.verbs else []


def check_new_name(services: Services, principal: str, name: str) -> None:
    """Check that a caller may create a table of a name: who may administer such a table may.

    Raises:
        ForbiddenError: the caller may not.
        InvalidRequestError: no table can have the name.
        CorruptDataError: the rules are damaged.
    """
    rights = permission(services.tables.access_rules(), principal, check_name(name))
    if "administer" not in rights.verbs:
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
    Raises CorruptDataError: the rules are damaged.
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


def check_readable(
    services: Services, principal: str, tables: Iterable[str], columns: Mapping[str, Iterable[str]]
) -> None:
    """Check that a caller may still see what was read of tables, whatever a result calls it;
    `columns` are those that were read, by the ids of tables.

    Tables and columns count under the names that they had and those that they have: rules are about
    names, and are changed together with them.
    Raises ForbiddenError: rules do not let the caller read one of the tables or columns any more.
    """
    rules = services.tables.access_rules()
    before = {name: permission(rules, principal, name) for name in tables}
    is_allowed = all("read" in each.verbs for each in before.values())
    if rules is not None:
        newest = {each: services.table(each) for each in columns}
        now = {table_id: table.name for table_id, table in newest.items() if table is not None}
        for table_id, names in columns.items():
            # one that is gone, or has another name, had any that is of no other table now
            had = {now[table_id]} if now.get(table_id) in before else {*before} - {*now.values()}
            hidden = frozenset[str]().union(*(before[name].hidden for name in had))
            is_allowed &= hidden.isdisjoint(names)
            is_allowed &= _shows(rules, principal, newest[table_id], names)
    if not is_allowed:
        raise ForbiddenError("you may not read any more what this query has read")


def _shows(rules: AccessRules, principal: str, table: Table | None, columns: Iterable[str]) -> bool:
    """Return whether a caller may read these columns of a table as it is now."""
    if table is None:
        return True
    rights = permission(rules, principal, table.name)
    hidden = {field.id for field in table.schema.fields if field.name in rights.hidden}
    former = {each.name for each in table.schema.former if each.id in hidden}
    return "read" in rights.verbs and rights.hidden.union(former).isdisjoint(columns)


def grant_access(services: Services, request: GrantAccess) -> None:
    """Put a rule, in the place of one for the same principal and tables.
    Raises InvalidRequestError: it is no rule, or there are too many.
    """
    rule = AccessRule(request.principal, request.tables, request.verbs, request.hidden_columns)
    services.tables.change_access_rules(lambda rules: granted(rules, rule))


def revoke_access(services: Services, request: RevokeAccess) -> None:
    """Remove a rule; that there is none is no error, since it may be a repetition.
    Raises InvalidRequestError: no principal can be called like this.
    """
    services.tables.change_access_rules(
        lambda rules: revoked(rules, request.principal, request.tables)
    )


def clear_access(services: Services, request: ClearAccess) -> None:
    """Remove all rules: access is by instance again."""
    services.tables.change_access_rules(lambda _: None)
