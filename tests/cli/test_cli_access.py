"""Access rules by command: what they come to is said, and nothing is opened by accident."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from dormouse_cli.main import app
from dormouse_cli.session import Session
from tests.cli.conftest import Dormouse

ANALYST = "arn:aws:iam::123456789012:role/analyst"


def rules(dormouse: Dormouse) -> list[dict[str, object]]:
    lines = dormouse("access", "list", "--format", "json").stdout.splitlines()
    return [json.loads(line) for line in lines]


def test_rules_are_granted_listed_checked_and_revoked(flights: Dormouse) -> None:
    assert "no access rules: IAM alone" in flights("access", "list").stderr
    granted = flights("access", "grant", ANALYST, "fl*", "read", "write", "--hide", "x", "--force")
    assert granted.exit_code == 0
    assert flights("access", "grant", ANALYST, "flights", "read").exit_code == 0
    assert rules(flights) == [
        {
            "principal": ANALYST,
            "tables": "fl*",
            "verbs": ["read", "write"],
            "hidden_columns": ["x"],
        },
        {"principal": ANALYST, "tables": "flights", "verbs": ["read"], "hidden_columns": []},
    ]
    session = "arn:aws:sts::123456789012:assumed-role/analyst/eve"
    for table, hidden in (("flights", []), ("flowers", ["x"])):
        shown = flights("access", "check", session, table, "--format", "json")
        assert json.loads(shown.stdout) == {"verbs": ["read", "write"], "hidden_columns": hidden}
    assert "none" in flights("access", "check", "local", "flights").stdout
    revoked = flights("access", "revoke", ANALYST, "flights")
    assert "may still read, write flights" in revoked.stderr
    assert "nobody may do anything" in flights("access", "revoke", ANALYST, "fl*").stderr
    assert "nobody may do anything" in flights("access", "list").stderr
    assert "none" in flights("access", "check", ANALYST, "flights").stdout
    assert flights("access", "off", "--force").exit_code == 0
    assert "read, write, administer" in flights("access", "check", ANALYST, "flights").stdout


def test_what_opens_or_closes_an_instance_is_asked_first(flights: Dormouse) -> None:
    assert flights("access", "grant", "local", "flights", "read").exit_code == 1
    assert rules(flights) == []
    assert flights("access", "grant", "local", "flights", "read", "--force").exit_code == 0
    assert flights("access", "off").exit_code == 1
    assert len(rules(flights)) == 1


def test_mistakes_are_said(flights: Dormouse) -> None:
    flights("access", "grant", "local", "flights", "read", "--force")
    hiding = flights("access", "grant", "local", "flights", "read", "--hide", "carier")
    assert "no column carier" in hiding.stderr
    assert flights("access", "grant", "local", "flights", "delete").exit_code == 2
    assert flights("access", "grant", "me myself", "flights", "read").exit_code == 4
    assert flights("access", "revoke", "local", "flight").exit_code == 3
    assert flights("access", "grant", "local", "flights", "write", "--hide", "x").exit_code == 4


def test_verbs_and_what_they_need_are_in_the_help() -> None:
    shown = CliRunner().invoke(app, ["access", "grant", "--help"], obj=Session()).output
    for word in ("PRINCIPAL", "TABLES", "--hide", "read", "administer"):
        assert word in shown
