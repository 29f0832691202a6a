"""Names that access rules guard: no rename gives a caller more than before.

Rules hold names. So a table or column with another name could be under other rules, or under none
that hides it. A rename that would widen what rules permit is refused; one that narrows it is not.
"""

from __future__ import annotations

from collections.abc import Mapping

from dormouse.access.principals import matches
from dormouse.access.rules import AccessRule, AccessRules
from dormouse.errors import InvalidRequestError


def check_table_rename(rules: AccessRules, old: str, new: str) -> None:
    """Check that no rule gives more of a table under its new name than rules do under the old one.

    For example, with a rule of analysts for ``sales_*``, the table ``pay`` is not renamed to
    ``sales_pay``, unless another rule lets them do as much with ``pay``.

    Raises:
        InvalidRequestError: a rule does.
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
    """Check that a column that a rule hides is hidden by it under its new name as well.

    Raises:
        InvalidRequestError: it is not.
    """
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
