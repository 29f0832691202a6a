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

from dormouse.aws.base import clients
from dormouse.aws.functions import handling
from dormouse.aws.functions.senders import asked_by
from dormouse.aws.functions.websocket_api import socket_event_of
from dormouse.connections import Connected, Disconnected, HeldConnections, Received
from dormouse.errors import InvalidRequestError
from dormouse.features.websocket.serve_websocket import CONNECTIONS
from dormouse.query_messages import AnswerQuery, FollowQuery
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
