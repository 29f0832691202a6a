"""The access rules of an instance, and what they permit a caller for one table.

An instance without rules leaves access to IAM: a caller who reaches a service may do all it offers.
As soon as rules are set, also if none is left of them, a caller may do what they grant, and nothing
else.

Rules that apply to the same caller and table add up: the caller has the verbs of all of them, and a
column is hidden only if each rule that grants reading hides it. So another rule never takes
anything away, and nobody has to know all rules to grant something. From who may administer a table
nothing of it is hidden: a caller who renames and purges by a column could learn what is in it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal, TypeAlias, get_args

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.keys import KeyRange
from dormouse.schema.schema import OF_ROWS, Schema
from dormouse.stored.decoding import decode_json
from dormouse.tables.table import Table

# The canonical names of callers, as access rules name them, and patterns with ``*``.
#
# A service that answers for any caller learns the caller from what AWS has verified, never from
# what the caller writes:
#
# - ``arn:aws:iam::123456789012:role/analyst``: callers with a role, in any session of it;
# - ``arn:aws:iam::123456789012:user/eve``: a user; other callers of AWS by their ARN as it is;
# - ``aws-id:AROAEXAMPLE``: the sender of a message, whom SQS names by the unique id alone;
# - ``jwt:https://issuer.example#alice``: the issuer and the subject of a token;
# - ``local``: everybody who uses a server on this machine.

LOCAL = "local"
"""Everybody who uses a server on this machine, which cannot distinguish its users."""
NOBODY = ""
"""A caller whom nothing identifies; no rule is about this one."""
MAX_LENGTH = 1024

_ASSUMED = re.compile(r"arn:([a-z-]+):sts::(\d{12}):assumed-role/([^/]+)/[^/]+")
_ROLE = re.compile(r"(arn:[a-z-]+:iam::\d{12}:role/)(?:.*/)?([^/]+)")
_PRINTABLE = re.compile(r"[^\x00-\x20\x7f]+")


def principal_of_arn(arn: str) -> str:
    """Return the principal of a caller whom AWS names by an ARN; `NOBODY` if it is none.

    Of a session it is the role, without the role's path: an ARN of a session has none, and the
    names of roles are unique in an account.
    """
    if not arn.startswith("arn:") or not _is_name(arn):
        return NOBODY
    if ":assumed-role/" not in arn:
        return _without_path(arn)
    assumed = _ASSUMED.fullmatch(arn)
    return "arn:{}:iam::{}:role/{}".format(*assumed.groups()) if assumed else NOBODY


def principal_of_token(issuer: str, subject: str) -> str:
    """Return the principal of a verified token; `NOBODY` if it lacks an issuer or a subject.

    No issuer contains ``#``, so that no two pairs have the same name.
    """
    if not issuer or not subject or "#" in issuer:
        return NOBODY
    principal = f"jwt:{issuer}#{subject}"
    return principal if _is_name(principal) else NOBODY


def is_token(principal: str) -> bool:
    """Return whether a principal is known by a token, and so not to IAM."""
    return principal.startswith("jwt:")


def principal_of_sender(sender_id: str) -> str:
    """Return the principal of the `SenderId` that SQS puts on a message; `NOBODY` if there is none.

    Of a session, ``AROAEXAMPLE:session``, it is the role.
    """
    unique_id = sender_id.partition(":")[0]
    return f"aws-id:{unique_id}" if unique_id.isalnum() and unique_id.isascii() else NOBODY


def checked_principals(text: str) -> str:
    """Return the canonical form of a principal or a pattern. Raises InvalidRequestError."""
    if not _is_name(text):
        raise InvalidRequestError(
            f"{text!r} names no principal",
            hint="it is an ARN, aws-id:…, jwt:issuer#subject or local, "
            f"of up to {MAX_LENGTH} printable characters; * stands for any characters",
        )
    if text.startswith("arn:") and ":assumed-role/" in text:
        raise InvalidRequestError(
            f"{text!r} names a session, and rules are about roles",
            hint="name the role: arn:aws:iam::<account>:role/<name>",
        )
    plain = _without_path(text)
    if plain != text and "*" in text:
        raise InvalidRequestError(
            f"{text!r} has the path of a role, which sessions do not tell",
            hint="leave the path out: arn:aws:iam::<account>:role/<name>",
        )
    return plain


def matches(pattern: str, text: str) -> bool:
    """Return whether a text is of a pattern, in which ``*`` stands for any characters, or none.

    The time is linear in the text: its parts are found one after the other.
    """
    first, *others = pattern.split("*")
    if not others:
        return text == pattern
    *between, last = others
    start, end = len(first), len(text) - len(last)
    if start > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in between:
        place = text.find(part, start, end)
        if place < 0:
            return False
        start = place + len(part)
    return True


def _without_path(arn: str) -> str:
    role = _ROLE.fullmatch(arn)
    return f"{role[1]}{role[2]}" if role else arn


def _is_name(text: str) -> bool:
    return len(text) <= MAX_LENGTH and _PRINTABLE.fullmatch(text) is not None


Verb: TypeAlias = Literal["read", "write", "administer"]
VERBS: tuple[Verb, ...] = get_args(Verb)

MAX_STORED_BYTES = 256 * 1024
"""The most bytes that all rules of an instance may take; an item of DynamoDB holds 400 KB."""
_MAX_TABLES = 100


class AccessRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who may do what with which tables.

    `principal` and `tables` are names, or patterns in which ``*`` stands for any characters.
    `verbs` are in the order of `VERBS`. `hidden_columns` are hidden from readers by this rule.
    Raises InvalidRequestError: a name is none, there is no verb, or columns are hidden by a rule
    that does not grant reading, or also grants administering.
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
    Raises InvalidRequestError: all rules together are too large.
    """
    by_key = {each.key: each for each in rules or ()} | {rule.key: rule}
    rules_after = tuple(by_key[key] for key in sorted(by_key))
    if len(dump_rules(rules_after)) > MAX_STORED_BYTES:
        raise InvalidRequestError(
            f"the access rules would take more than {MAX_STORED_BYTES // 1024} KiB",
            hint="name several principals or tables by one pattern with *",
        )
    return rules_after


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
    is_plain = all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in plain)
    if not text or len(text) > _MAX_TABLES or not is_plain:
        raise InvalidRequestError(
            f"{text!r} names no table",
            hint="it is the name of a table, in which * stands for any characters",
        )
    return text


def _checked_verbs(verbs: Iterable[str]) -> tuple[Verb, ...]:
    names = set(verbs)
    if not names or names - set(VERBS):
        unknown = ", ".join(sorted(names - set(VERBS)))
        raise InvalidRequestError(
            f"there is no right {unknown!r}" if unknown else "a rule grants at least one right",
            hint=f"there are {', '.join(VERBS)}",
        )
    return tuple(verb for verb in VERBS if verb in names)


# Names that access rules guard: no rename gives a caller more than before.
#
# Rules hold names. So a table or column with another name could be under other rules, or under none
# that hides it. A rename that would widen what rules permit is refused; one that narrows it is not.


def check_table_rename(rules: AccessRules, old: str, new: str) -> None:
    """Check that no rule gives more of a table under its new name than rules do under the old one.

    For example, with a rule of analysts for ``sales_*``, the table ``pay`` is not renamed to
    ``sales_pay``, unless another rule lets them do as much with ``pay``.
    Raises InvalidRequestError: a rule does.
    """
    before = [rule for rule in rules or () if matches(rule.tables, old)]
    for rule in rules or ():
        is_new = matches(rule.tables, new) and rule not in before
        if is_new and not any(_covers(each, rule) for each in before):
            raise InvalidRequestError(
                f"table {old!r} cannot be called {new!r}: the access rule of {rule.principal!r} "
                f"for {rule.tables!r} would apply to it, and let callers do more with it",
                hint="if that is meant, grant them the same for its present name first",
            )


def check_column_renames(rules: AccessRules, table_name: str, renames: Mapping[str, str]) -> None:
    """Check that a hidden column stays hidden under its new name. Raises InvalidRequestError."""
    for rule in rules or ():
        hidden = set(rule.hidden_columns) if matches(rule.tables, table_name) else set()
        for old, new in renames.items():
            if old in hidden and new not in hidden:
                raise InvalidRequestError(
                    f"column {old!r} cannot be called {new!r}: the access rule of "
                    f"{rule.principal!r} for {rule.tables!r} hides it, and would not any more",
                    hint=f"grant the rule again, with {new!r} among the hidden columns too",
                )


def _covers(wide: AccessRule, narrow: AccessRule) -> bool:
    """Return whether a rule gives its callers all that another one gives to its own.

    A pattern contains another one if that, taken as a text, is of it: an asterisk of the text can
    only be where the pattern has one.
    """
    return (
        matches(wide.principal, narrow.principal)
        and set(narrow.verbs) <= set(wide.verbs)
        and set(wide.hidden_columns) <= set(narrow.hidden_columns)
    )


# A table as a caller may see it: without the columns that are hidden from the caller.
#
# What is hidden is in no list of columns, and no name of a column: a condition on it is refused as
# one on a column that is not there. The table's own filters and aggregations still use it, and rows
# stay sorted by a hidden key; but nobody from whom it is hidden can bound rows by it, or by a key
# after it. So of the keys only those before the first hidden one are keys in the visible schema,
# and the others are its first values.


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
    def of(table: Table, permission: Permission) -> "VisibleTable":
        """Return what a permission lets its holder see of a table."""
        return VisibleTable(table, permission, visible_schema(table.schema, permission))

    @staticmethod
    def whole(table: Table) -> "VisibleTable":
        """Return all of a table, for a reader with rights of its own in AWS."""
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
    names = {field.name for field in schema.fields}
    if not hidden or not hidden & (names | {each.name for each in schema.former}):
        return schema
    columns = names - hidden
    keys = list(takewhile(lambda field: field.name in columns, schema.keys))
    rest = [field for field in schema.fields[len(keys) :] if field.name in columns]
    ids = {field.id for field in schema.fields if field.name not in columns}
    former = (each for each in schema.former if each.id not in ids and each.name not in hidden)
    rows = len(schema.row_keys)
    return Schema(
        tuple(keys[:rows]),
        tuple(keys[rows:]),
        tuple(rest),
        schema.next_field_id,
        tuple(former),
        schema.data_keys,
        schema.subject,
        is_part=True,
    )


def check_visible(
    visible: Schema, permission: Permission, columns: Iterable[str], ranges: Iterable[KeyRange]
) -> None:
    """Check that columns are in a visible schema, and that ranges are bounded by its keys alone.
    Raises InvalidRequestError: a column is not visible, said as of a column that is not there; or a
    bound has parts of keys that are not.
    """
    for name in columns:
        if name not in OF_ROWS or name in permission.hidden:
            visible.field_named(name)
    most = len(visible.keys)
    for span in ranges:
        if len(span.min) > most or len(span.max or ()) > most:
            raise InvalidRequestError(
                f"rows of this table can be bounded by {most} key columns, and a bound has more",
                hint="find rows by other columns with a condition",
            )
