"""The function of WebSockets: its events, its answers, and what its log says of them."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from dormouse.access import NOBODY, AccessRule, principal_of_arn
from dormouse.aws import clients, handling
from dormouse.aws.apis import socket_event_of
from dormouse.aws.handling import asked_by
from dormouse.errors import InvalidRequestError
from dormouse.features.websocket import CONNECTIONS
from dormouse.http.connections import Connected, Disconnected, HeldConnections, Received
from dormouse.messages.stages import AnswerQuery, FollowQuery, LeaveQuery, QueryTask
from tests.functions.conftest import Functions
from tests.support.lambda_context import Context

EVENTS = Path(__file__).parents[2] / "events" / "serve_websocket"
NAME, CALLER = "JKJaXmPLvHcESHA=", "arn:aws:iam::123456789012:user/reader"


def event(name: str = "good", **changed: Any) -> dict[str, Any]:
    return {**json.loads((EVENTS / f"{name}.json").read_text()), **changed}


def test_an_event_of_aws_is_read() -> None:
    assert socket_event_of(event("connect")) == Connected(NAME, CALLER)
    assert socket_event_of(event("disconnect")) == Disconnected(NAME)
    assert socket_event_of(event("malformed")) == Received(NAME, '{"type":"shout"}')
    assert socket_event_of(event(body="e30=", isBase64Encoded=True)) == Received(NAME, "{}")


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"Records": []},
        event(requestContext={}),
        event(requestContext={"eventType": "SHOUT", "connectionId": NAME}),
        event(requestContext={"eventType": "MESSAGE", "connectionId": ""}),
        event(body="no base64!", isBase64Encoded=True),
    ],
)
def test_what_is_no_such_event_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="not an event of a WebSocket API"):
        socket_event_of(wrong)


def happen(happened: dict[str, Any]) -> int:
    handler = import_module("functions.serve_websocket.handler")
    status: int = handler.handle(happened, Context())["statusCode"]
    return status


@pytest.fixture
def sent(functions: Functions, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What is sent on the connection of the events."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    clients.session.cache_clear()
    found: list[dict[str, Any]] = []
    held = HeldConnections("held")
    held._held[NAME] = (lambda text: found.append(json.loads(text)), lambda: found.append({}))
    wired = handling.process()
    services = replace(wired.services, connections=held)
    wired = replace(wired, services=services)
    monkeypatch.setattr(handling, "wiring", lambda: wired)
    return found


def test_who_connected_is_answered_until_the_connection_is_closed(
    functions: Functions, sent: list[dict[str, Any]]
) -> None:
    assert happen(event("connect")) == 200
    known = functions.world.services.tracker.get(CONNECTIONS, NAME)
    assert known is not None and known.who == CALLER
    assert happen(event("good")) == happen(event("malformed")) == 200
    assert [frame["type"] for frame in sent] == ["changed", "problem"]
    assert happen(event("disconnect")) == 200
    assert happen(event("good")) == 200
    assert sent[2:] == [{}], "it is closed, and not answered"


def test_bytes_that_are_no_text_are_no_frame(sent: list[dict[str, Any]]) -> None:
    assert happen(event("connect")) == 200
    for body in (b"\xff", b'{"type":"ping","id":"\xe9"}'):
        assert happen(event(body=b64encode(body).decode(), isBase64Encoded=True)) == 200
    assert [(frame["type"], frame["status"]) for frame in sent] == [("problem", 400)] * 2


def test_nobody_connects_without_a_name(sent: list[dict[str, Any]]) -> None:
    nameless = event("connect")
    del nameless["requestContext"]["identity"]["userArn"]
    assert happen(nameless) == 403
    assert happen(event("good")) == 200
    assert sent == [{}]


def test_what_is_sent_is_not_logged(
    functions: Functions, sent: list[dict[str, Any]], log: io.StringIO
) -> None:
    happen(event("connect"))
    happen(event(body='{"type":"query","id":"1","table":"secret of the client"}'))
    assert sent[-1]["status"] == 404
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [line["status"] for line in lines if line["message"] == "answered"] == [200, 200]
    assert "secret" not in log.getvalue()


@pytest.mark.parametrize(
    ("role", "connection"), [("websocket_role_id", "mine"), ("http_role_id", UNSET)]
)
def test_only_the_websocket_names_connections(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, role: str, connection: object
) -> None:
    settings = replace(handling.process().settings, **{role: "AROAAPI"})
    wired = replace(handling.process(), settings=settings)
    monkeypatch.setattr(handling, "wiring", lambda: wired)
    asked = AnswerQuery(query_id="q", table="x", who="jwt:issuer#eve", connection="mine")
    followed = FollowQuery(query_id="q", who="jwt:issuer#eve", connection="mine")
    found = asked_by(asked, "AROAAPI:dormouse")
    assert isinstance(found, AnswerQuery)
    assert (found.connection, found.who) == (connection, "jwt:issuer#eve")
    other = asked_by(asked, "AIDAEVE")
    assert isinstance(other, AnswerQuery)
    assert (other.connection, other.who) == (UNSET, "aws-id:AIDAEVE")
    stranger = asked_by(followed, "AIDAEVE")
    assert isinstance(stranger, FollowQuery)
    assert (stranger.connection, stranger.who) == ("", "aws-id:AIDAEVE")


@pytest.mark.parametrize(
    "message",
    [LeaveQuery(query_id="q", who="jwt:issuer#eve"), QueryTask("q", 0, "jwt:issuer#eve")],
)
def test_only_the_instance_says_whose_query_it_goes_on_with_or_leaves(
    functions: Functions, monkeypatch: pytest.MonkeyPatch, message: LeaveQuery | QueryTask
) -> None:
    settings = replace(
        handling.process().settings,
        query_role_ids=("AROAANSWER", "AROASWEEP"),
        http_role_id="AROAAPI",
        websocket_role_id="AROASOCKET",
    )
    wired = replace(handling.process(), settings=settings)
    monkeypatch.setattr(handling, "wiring", lambda: wired)
    for sender in ("AROAANSWER:answer_query", "AROASWEEP:sweep"):
        assert asked_by(message, sender) == message
    for sender in ("AIDAEVE", "AROAAPI:x", "AROASOCKET:x", "AROASWEEPER:x", ""):
        found = asked_by(message, sender)
        assert isinstance(found, LeaveQuery | QueryTask)
        plain = sender.partition(":")[0]
        assert found.who == (f"aws-id:{plain}" if plain else "")


HTTP_ROLE = "arn:aws:iam::123456789012:role/path/serve-http"
SESSION = "arn:aws:sts::123456789012:assumed-role/serve-http/dormouse-test-serve_http"
ALICE = "jwt:https://issuer.example#alice"


def connecting(signer: str, **parameters: str) -> dict[str, Any]:
    found = event("connect", queryStringParameters=parameters or None)
    found["requestContext"]["identity"]["userArn"] = signer
    return found


def test_the_http_api_connects_for_callers_with_tokens() -> None:
    happened = connecting(SESSION, caller=ALICE)
    assert socket_event_of(happened, HTTP_ROLE) == Connected(NAME, ALICE)


@pytest.mark.parametrize("named", [{}, {"caller": ""}, {"caller": CALLER}, {"caller": "local"}])
def test_the_http_api_connects_for_nobody_else(named: dict[str, str]) -> None:
    assert socket_event_of(connecting(SESSION, **named), HTTP_ROLE) == Connected(NAME, NOBODY)


@pytest.mark.parametrize(
    ("signer", "http_role"),
    [
        (CALLER, HTTP_ROLE),
        ("arn:aws:sts::123456789012:assumed-role/other/serve-http", HTTP_ROLE),
        ("arn:aws:sts::999999999999:assumed-role/serve-http/x", HTTP_ROLE),
        (SESSION, ""),
        ("", ""),
        ("", HTTP_ROLE),
    ],
)
def test_nobody_else_connects_as_a_caller_with_a_token(signer: str, http_role: str) -> None:
    found = socket_event_of(connecting(signer, caller=ALICE), http_role)
    assert found == Connected(NAME, principal_of_arn(signer))


def test_a_caller_with_a_token_may_read_by_rules_alone(
    functions: Functions, sent: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    wired = handling.process()
    wired = replace(wired, settings=replace(wired.settings, http_role=HTTP_ROLE))
    monkeypatch.setattr(handling, "wiring", lambda: wired)
    assert happen(connecting(SESSION, caller=ALICE)) == 200
    happen(event(body='{"type":"query","id":"1","table":"letters"}'))
    tables = functions.world.services.tables
    tables.change_access_rules(lambda rules: (AccessRule(ALICE, "letters", ("read",)),))
    happen(event(body='{"type":"query","id":"2","table":"letters"}'))
    assert [(frame["type"], frame.get("status")) for frame in sent] == [
        ("problem", 404),
        ("accepted", None),
    ]
