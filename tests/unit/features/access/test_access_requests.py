"""Access rules are changed by requests, and no rename gives a caller more than before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dormouse.access import (
    AccessRule,
    Permission,
    check_column_renames,
    check_table_rename,
    permission,
)
from dormouse.client.instance import Instance
from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.features.access import find_table
from dormouse.messages.requests import (
    AlterSchema,
    ClearAccess,
    GrantAccess,
    RenameTable,
    RevokeAccess,
)
from tests.support.world import World

EVE = "aws-id:EVE"


def rule(principal: str, tables: str, *verbs: Any, hide: tuple[str, ...] = ()) -> AccessRule:
    return AccessRule(principal, tables, verbs or ("read",), hide)


def test_rules_are_granted_replaced_revoked_and_cleared(world: World) -> None:
    world.administer(GrantAccess("1", EVE, "letters", ("write", "read"), ("note", "at")))
    world.administer(GrantAccess("2", EVE, "*", ("read",)))
    world.administer(GrantAccess("3", EVE, "letters", ("read",), ("note",)))
    assert world.tables.access_rules() == (rule(EVE, "*"), rule(EVE, "letters", hide=("note",)))
    world.administer(RevokeAccess("4", EVE, "*"))
    world.administer(RevokeAccess("5", EVE, "*"))
    world.administer(RevokeAccess("6", EVE, "letters"))
    assert world.tables.access_rules() == ()
    world.administer(ClearAccess("7"))
    assert world.tables.access_rules() is None


def test_a_request_delivered_again_after_others_does_not_grant_again(world: World) -> None:
    asked = GrantAccess("1", EVE, "letters", ("read",))
    world.administer(asked)
    world.administer(RevokeAccess("2", EVE, "letters"))
    world.administer(asked)
    assert world.tables.access_rules() == ()


def test_what_is_no_rule_changes_nothing(world: World) -> None:
    for wrong in (
        GrantAccess("1", "", "letters", ("read",)),
        GrantAccess("2", EVE, "../letters", ("read",)),
        GrantAccess("3", EVE, "letters", ()),
        GrantAccess("4", EVE, "letters", ("write",), ("note",)),
    ):
        with pytest.raises(InvalidRequestError):
            world.administer(wrong)
    assert world.tables.access_rules() is None


def test_a_client_is_told_that_there_is_no_such_rule(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as mice:
        assert mice.access_rules() is None
        assert mice.grant(EVE, "letters", ["read"], ["note"]) == (
            rule(EVE, "letters", hide=("note",)),
        )
        assert mice.permission(EVE, "letters").hidden == {"note"}
        with pytest.raises(NotFoundError, match="no access rule"):
            mice.revoke(EVE, "letter")
        session = "arn:aws:sts::123456789012:assumed-role/analyst/eve"
        mice.grant("arn:aws:iam::123456789012:role/analyst", "*", ["write"])
        assert mice.permission(session, "letters") == Permission(frozenset({"write"}))
        mice.clear_access_rules()
        assert mice.access_rules() is None


def test_a_table_is_not_renamed_to_where_a_rule_gives_more(world: World) -> None:
    world.create()
    world.administer(GrantAccess("1", EVE, "sales_*", ("read",)))
    with pytest.raises(InvalidRequestError, match=r"sales_\*"):
        world.administer(RenameTable("2", "letters", "sales_letters"))
    world.administer(RenameTable("3", "letters", "words"))
    world.administer(GrantAccess("4", EVE, "words", ("read", "write")))
    world.administer(RenameTable("5", "words", "sales_words"))
    assert find_table(world.services, EVE, "sales_words", "read") is not None


def test_a_hidden_column_is_not_renamed_to_a_name_that_is_not_hidden(world: World) -> None:
    world.create()
    world.administer(GrantAccess("1", EVE, "let*", ("read",), ("note",)))
    with pytest.raises(InvalidRequestError, match="'note' cannot be called 'text'"):
        world.administer(AlterSchema("2", "letters", rename={"note": "text"}))
    world.administer(GrantAccess("3", EVE, "let*", ("read",), ("note", "text")))
    world.administer(AlterSchema("4", "letters", rename={"note": "text"}))
    found = find_table(world.services, EVE, "letters", "read")
    assert found is not None
    assert [field.name for field in found.schema.fields] == ["letter", "at"]


@pytest.mark.parametrize(
    ("kept", "is_refused"),
    [
        ((), True),
        ((rule(EVE, "old"),), False),
        ((rule("*", "o*"),), False),
        ((rule("aws-id:*", "old", "read", "write"),), False),
        ((rule("aws-id:BOB", "old"),), True),
        ((rule(EVE, "old", "write"),), True),
        ((rule(EVE, "old", hide=("pay",)),), True),
        ((rule(EVE, "ne*"),), True),
    ],
)
def test_what_callers_may_do_already_is_not_refused(
    kept: tuple[AccessRule, ...], is_refused: bool
) -> None:
    rules = (*kept, rule(EVE, "new"))
    before, after = (permission(rules, EVE, name) for name in ("old", "new"))
    if is_refused:
        with pytest.raises(InvalidRequestError):
            check_table_rename(rules, "old", "new")
    else:
        check_table_rename(rules, "old", "new")
        assert after.verbs <= before.verbs
        assert before.hidden <= after.hidden


def test_names_are_free_without_rules() -> None:
    check_table_rename(None, "old", "new")
    check_column_renames(None, "old", {"a": "b"})
    check_column_renames((rule(EVE, "other", hide=("a",)),), "old", {"a": "b"})
