"""The access rules of an instance, and what they permit a caller for one table.

An instance without rules leaves access to IAM: a caller who reaches a service may do all it offers.
As soon as rules are set, also if none is left of them, a caller may do what they grant, and nothing
else.

Rules that apply to the same caller and table add up: the caller has the verbs of all of them, and a
column is hidden only if each rule that grants reading hides it. So another rule never takes
anything away, and nobody has to know all rules to grant something. From who may administer a table
nothing of it is hidden: a caller who renames and purges by a column could learn what is in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import msgspec

from dormouse.access.principals import NOBODY, checked_principals, is_token, matches
from dormouse.errors import InvalidRequestError
from dormouse.stored.decoding import decode_json

Verb: TypeAlias = Literal["read", "write", "administer"]
VERBS: tuple[Verb, ...] = get_args(Verb)

MAX_STORED_BYTES = 256 * 1024
"""The most bytes that all rules of an instance may take; an item of DynamoDB holds 400 KB."""
_MAX_TABLES = 100


class AccessRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may do what with which tables.

    `principal` and `tables` are names, or patterns in which ``*`` stands for any characters.
    `verbs` are in the order of `VERBS`. `hidden_columns` are hidden from readers by this rule.

    Raises:
        InvalidRequestError: a name is none, there is no verb, or columns are hidden by a rule that
            does not grant reading, or also grants administering.
    """

    principal: str
    tables: str
    verbs: tuple[Verb, ...]
    hidden_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the rule, and put its parts into canonical form."""
        set_part = msgspec.structs.force_setattr
        set_part(self, "principal", checked_principals(self.principal))
        set_part(self, "tables", _checked_tables(self.tables))
        set_part(self, "verbs", _checked_verbs(self.verbs))
        set_part(self, "hidden_columns", tuple(sorted(set(self.hidden_columns))))
        if not all(self.hidden_columns):
            raise InvalidRequestError("a hidden column has no name")
        if self.hidden_columns and "read" not in self.verbs:
            raise InvalidRequestError(
                "columns are hidden by a rule that does not grant reading",
                hint="a rule hides columns of the rows that it lets its principal read",
            )
        if self.hidden_columns and "administer" in self.verbs:
            raise InvalidRequestError(
                "who administers a table sees all its columns: a rule cannot hide some",
                hint="grant read and write, without administer, or hide no column",
            )

    @property
    def key(self) -> tuple[str, str]:
        """What the rule is about; an instance has one rule for each such pair."""
        return self.principal, self.tables

    def applies_to(self, principal: str, table_name: str) -> bool:
        """Return whether the rule is about this caller and table."""
        return (
            principal != NOBODY
            and matches(self.principal, principal)
            and matches(self.tables, table_name)
        )


AccessRules: TypeAlias = tuple[AccessRule, ...] | None
"""The rules of an instance by their keys; None if access is by instance."""


@dataclass(frozen=True, slots=True)
class Permission:
    """What a caller may do with a table, and which columns the caller does not see."""

    verbs: frozenset[Verb] = frozenset()
    hidden: frozenset[str] = frozenset()

    @property
    def hides_nothing(self) -> bool:
        """Whether all columns can be seen."""
        return not self.hidden


EVERYTHING = Permission(frozenset(VERBS))
"""What a caller may do by the caller's own rights in AWS, and without rules."""
NOTHING = Permission()


def permission(rules: AccessRules, principal: str, table_name: str) -> Permission:
    """Return what rules permit a caller for a table; `NOBODY` may do nothing if there are rules.

    Who comes with a token may do nothing without rules: IAM has judged no such caller.
    """
    if rules is None:
        return NOTHING if is_token(principal) else EVERYTHING
    applying = [rule for rule in rules if rule.applies_to(principal, table_name)]
    if not applying:
        return NOTHING
    verbs = frozenset(verb for rule in applying for verb in rule.verbs)
    hidden = [frozenset(rule.hidden_columns) for rule in applying if "read" in rule.verbs]
    if not hidden or "administer" in verbs:
        return Permission(verbs)
    return Permission(verbs, frozenset.intersection(*hidden))


def granted(rules: AccessRules, rule: AccessRule) -> AccessRules:
    """Return the rules with another one, in the place of one for the same principal and tables.

    Raises:
        InvalidRequestError: all rules together are too large.
    """
    by_key = {kept.key: kept for kept in rules or ()} | {rule.key: rule}
    changed = tuple(by_key[key] for key in sorted(by_key))
    if len(dump_rules(changed)) > MAX_STORED_BYTES:
        raise InvalidRequestError(
            f"the access rules would take more than {MAX_STORED_BYTES // 1024} KiB",
            hint="name several principals or tables by one pattern with *",
        )
    return changed


def revoked(rules: AccessRules, principal: str, tables: str) -> AccessRules:
    """Return the rules without that for a principal and tables; the same rules if it is not there.

    Rules of which none is left permit nobody anything.
    """
    key = checked_principals(principal), tables
    return None if rules is None else tuple(rule for rule in rules if rule.key != key)


class _StoredRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rules: tuple[AccessRule, ...] | None


def dump_rules(rules: AccessRules) -> str:
    """Return the stored form of rules."""
    return msgspec.json.encode(_StoredRules(rules)).decode()


def load_rules(text: str) -> AccessRules:
    """Return the rules of a stored form.

    Raises:
        ValueError: it is none.
        InvalidRequestError: a rule is none.
    """
    return decode_json(text, _StoredRules).rules


def _checked_tables(text: str) -> str:
    plain = text.replace("*", "")
    known = all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in plain)
    if not text or len(text) > _MAX_TABLES or not known:
        raise InvalidRequestError(
            f"{text!r} names no table",
            hint="it is the name of a table, in which * stands for any characters",
        )
    return text


def _checked_verbs(verbs: Iterable[str]) -> tuple[Verb, ...]:
    given = set(verbs)
    if not given or given - set(VERBS):
        unknown = ", ".join(sorted(given - set(VERBS)))
        raise InvalidRequestError(
            f"there is no right {unknown!r}" if unknown else "a rule grants at least one right",
            hint=f"there are {', '.join(VERBS)}",
        )
    return tuple(verb for verb in VERBS if verb in given)
