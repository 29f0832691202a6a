"""What access rules permit: who is named, what adds up, and what is refused as a rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.access import (
    EVERYTHING,
    NOBODY,
    NOTHING,
    AccessRule,
    Permission,
    dump_rules,
    granted,
    load_rules,
    matches,
    permission,
    principal_of_arn,
    principal_of_sender,
    principal_of_token,
    revoked,
)
from dormouse.errors import InvalidRequestError

ANALYST = "arn:aws:iam::123456789012:role/analyst"


def rule(
    principal: str = ANALYST, tables: str = "flights", *verbs: Any, hide: tuple[str, ...] = ()
) -> AccessRule:
    return AccessRule(principal, tables, verbs or ("read",), hide)


def allowed(*verbs: Any, hidden: tuple[str, ...] = ()) -> Permission:
    return Permission(frozenset(verbs), frozenset(hidden))


def test_without_rules_everybody_may_do_everything_and_with_rules_nobody_anything_else() -> None:
    assert permission(None, NOBODY, "flights") == EVERYTHING
    assert permission((), ANALYST, "flights") == NOTHING
    rules = (rule(),)
    assert permission(rules, ANALYST, "flights") == allowed("read")
    assert permission(rules, ANALYST, "flights2") == NOTHING
    assert permission(rules, f"{ANALYST}s", "flights") == NOTHING


def test_without_rules_a_token_lets_its_holder_do_nothing() -> None:
    """IAM judges who signs requests, and nobody judges who comes with a token but rules."""
    alice = principal_of_token("https://login.example", "alice")
    assert permission(None, alice, "flights") == NOTHING
    assert permission((rule(alice),), alice, "flights") == allowed("read")


def test_a_caller_whom_nothing_identifies_is_in_no_pattern() -> None:
    rules = (rule("*", "*", "read", "write", "administer"),)
    assert permission(rules, "local", "flights") == EVERYTHING
    assert permission(rules, NOBODY, "flights") == NOTHING


def test_rules_add_up_and_a_column_is_hidden_if_all_that_grant_reading_hide_it() -> None:
    rules = (
        rule(ANALYST, "*", "read", hide=("pay", "name")),
        rule("*", "fl*", "read", hide=("pay", "seat")),
        rule(ANALYST, "flights", "write"),
    )
    assert permission(rules, ANALYST, "flights") == allowed("read", "write", hidden=("pay",))
    assert permission(rules, ANALYST, "staff") == allowed("read", hidden=("name", "pay"))
    administers = rule(ANALYST, "flights", "administer")
    found = permission((*rules, administers), ANALYST, "flights")
    assert found == allowed("read", "write", "administer")


@given(st.data())
def test_another_rule_never_takes_anything_away(data: st.DataObject) -> None:
    names = st.sampled_from(["a", "b", "*"])
    verbs = st.sampled_from([("read",), ("write",), ("read", "write"), ("administer",)])
    hide = st.sets(st.sampled_from("xyz")).map(tuple)
    made = st.builds(
        lambda who, what, verbs, hide: rule(
            who, what, *verbs, hide=hide if "read" in verbs else ()
        ),
        names,
        names,
        verbs,
        hide,
    )
    rules = data.draw(st.lists(made))
    before = permission(tuple(rules), "a", "b")
    after = permission((*rules, data.draw(made)), "a", "b")
    assert before.verbs <= after.verbs
    assert "read" not in before.verbs or after.hidden <= before.hidden


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("*", "", True),
        ("a*", "a", True),
        ("a*a", "a", False),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "a-c-b", False),
        ("*ab*ab", "abab", True),
        ("*ab*ab", "ab", False),
        ("a?[b]*", "a?[b]x", True),
        ("a?", "ab", False),
        ("a.c*", "abc", False),
    ],
)
def test_only_an_asterisk_stands_for_others(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


def test_a_pattern_with_many_asterisks_takes_no_exponential_time() -> None:
    assert not matches("*a" * 200 + "*b", "a" * 100_000)


@pytest.mark.parametrize(
    ("arn", "expected"),
    [
        ("arn:aws:sts::123456789012:assumed-role/analyst/eve", ANALYST),
        ("arn:aws:sts::123456789012:assumed-role/analyst/role/analyst", NOBODY),
        ("arn:aws:iam::123456789012:role/teams/analyst", ANALYST),
        ("arn:aws:iam::123456789012:user/teams/eve", "arn:aws:iam::123456789012:user/teams/eve"),
        ("arn:aws:sts::123456789012:federated-user/eve",) * 2,
        ("analyst", NOBODY),
        ("", NOBODY),
        ("arn:aws:iam::123456789012:user/a\nb", NOBODY),
    ],
)
def test_a_session_is_its_role_and_nothing_else_becomes_one(arn: str, expected: str) -> None:
    assert principal_of_arn(arn) == expected


def test_tokens_and_senders_cannot_pass_for_others() -> None:
    assert principal_of_token("https://issuer", "alice") == "jwt:https://issuer#alice"
    assert principal_of_token("https://issuer#a", "b") == NOBODY  # would be "a#b" of the issuer
    assert principal_of_token("https://issuer", "") == principal_of_token("", "alice") == NOBODY
    assert principal_of_sender("AROAEXAMPLE:eve") == "aws-id:AROAEXAMPLE"
    assert principal_of_sender("") == principal_of_sender("*") == NOBODY


@pytest.mark.parametrize(
    "wrong",
    [
        {"principal": ""},
        {"principal": "a b"},
        {"principal": "arn:aws:sts::123456789012:assumed-role/analyst/*"},
        {"principal": "arn:aws:iam::123456789012:role/teams/*"},
        {"tables": ""},
        {"tables": "a/b"},
        {"tables": "a" * 101},
        {"verbs": ()},
        {"verbs": ("delete",)},
        {"verbs": ("write",), "hidden_columns": ("pay",)},
        {"verbs": ("read", "administer"), "hidden_columns": ("pay",)},
        {"hidden_columns": ("",)},
    ],
)
def test_a_rule_that_says_other_than_it_seems_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        AccessRule(**{"principal": ANALYST, "tables": "flights", "verbs": ("read",), **wrong})


def test_an_instance_has_one_rule_for_a_principal_and_tables_and_may_have_none_left() -> None:
    rules = granted(None, rule())
    path = "arn:aws:iam::123456789012:role/teams/analyst"
    rules = granted(rules, rule(path, "flights", "write", "read", "write"))
    assert rules == (AccessRule(ANALYST, "flights", ("read", "write")),)
    assert revoked(rules, ANALYST, "other") == rules
    assert revoked(rules, path, "flights") == ()
    assert revoked(None, ANALYST, "flights") is None
    with pytest.raises(InvalidRequestError):
        for number in range(3000):
            rules = granted(rules, rule(f"local{number}", "t" * 100))


@pytest.mark.parametrize("rules", [None, (), (rule(hide=("pay",)), rule("*", "*", "write"))])
def test_rules_are_stored_as_they_are(rules: tuple[AccessRule, ...] | None) -> None:
    assert load_rules(dump_rules(rules)) == rules


@pytest.mark.parametrize(
    "damaged",
    [
        "{}",
        "null",
        '{"rules": null, "more": 1}',
        '{"rules": [{"principal": "local", "tables": "*", "verbs": ["read"], "only": "x"}]}',
        '{"rules": [{"principal": "local", "tables": "*", "verbs": ["all"]}]}',
        '{"rules": [{"principal": "", "tables": "*", "verbs": ["read"]}]}',
    ],
)
def test_what_is_no_list_of_rules_is_not_read_as_none(damaged: str) -> None:
    with pytest.raises((ValueError, InvalidRequestError)):
        load_rules(damaged)
