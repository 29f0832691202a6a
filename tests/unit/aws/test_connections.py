"""Messages on connections of API Gateway: the bytes that are sent, and what becomes of answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import parse_qs, urlsplit

import pytest
from botocore.config import Config

from dormouse.aws import clients
from dormouse.aws.connections import ApiGatewayConnections
from dormouse.errors import InvariantError, UnavailableError
from dormouse.http.connections import ConnectionGoneError
from dormouse.http.loopback import LoopbackServer
from dormouse.http.messages import HttpRequest, HttpResponse

URI = "https://f6g7h8i9j0.execute-api.eu-west-2.amazonaws.com/live"
PATH = "/live/@connections/JKJaXmPLvHcESHA%3D"


@dataclass
class Gateway:
    """API Gateway, which answers with a status and the name of an error."""

    status: int = 200
    error: str = ""
    asked: list[HttpRequest] = field(default_factory=list)

    def answer(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request)
        if request.method == "DELETE":
            return HttpResponse(HTTPStatus.NO_CONTENT)
        headers = {"x-amzn-errortype": self.error} if self.error else {}
        return HttpResponse(self.status, headers, json.dumps({"message": "it says why"}).encode())


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
def connections(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ApiGatewayConnections]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-2")
    clients.session.cache_clear()
    once = Config(retries={"total_max_attempts": 1})
    with LoopbackServer(gateway.answer) as server:
        uri = f"{server.url}/live"
        client = clients.client("apigatewaymanagementapi", once, endpoint_url=uri)
        yield ApiGatewayConnections(client, URI)
    clients.session.cache_clear()


def test_a_message_is_posted_to_its_connection_and_signed(
    connections: ApiGatewayConnections, gateway: Gateway
) -> None:
    connections.send("JKJaXmPLvHcESHA=", '{"type":"pong"}')
    (asked,) = gateway.asked
    assert (asked.method, asked.path, asked.body) == ("POST", PATH, b'{"type":"pong"}')
    assert "/execute-api/aws4_request" in asked.headers["authorization"]


@pytest.mark.parametrize(
    ("status", "error"), [(410, "GoneException"), (400, "BadRequestException")]
)
def test_a_connection_that_is_closed_is_gone(
    connections: ApiGatewayConnections, gateway: Gateway, status: int, error: str
) -> None:
    gateway.status, gateway.error = status, error
    with pytest.raises(ConnectionGoneError):
        connections.send("x", "{}")
    assert [asked.method for asked in gateway.asked] == ["POST"]


def test_a_connection_whose_reader_is_too_slow_is_closed(
    connections: ApiGatewayConnections, gateway: Gateway
) -> None:
    gateway.status, gateway.error = 429, "LimitExceededException"
    with pytest.raises(ConnectionGoneError):
        connections.send("x", "{}")
    assert [asked.method for asked in gateway.asked] == ["POST", "DELETE"]


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (413, "PayloadTooLargeException", InvariantError),
        (500, "InternalServerError", UnavailableError),
        (403, "ForbiddenException", UnavailableError),
    ],
)
def test_other_answers_say_nothing_of_the_connection(
    connections: ApiGatewayConnections,
    gateway: Gateway,
    status: int,
    error: str,
    kind: type[Exception],
) -> None:
    gateway.status, gateway.error = status, error
    with pytest.raises(kind):
        connections.send("x", "{}")
    assert [asked.method for asked in gateway.asked] == ["POST"]


def test_a_gateway_that_is_not_there_is_unavailable(
    connections: ApiGatewayConnections, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = Config(retries={"total_max_attempts": 1})
    uri = "http://127.0.0.1:1/live"
    client = clients.client("apigatewaymanagementapi", once, endpoint_url=uri)
    gone = ApiGatewayConnections(client, uri)
    with pytest.raises(UnavailableError):
        gone.send("x", "{}")
    with pytest.raises(UnavailableError):
        gone.close("x")


def test_the_signature_of_an_address_covers_the_caller_with_a_token(
    connections: ApiGatewayConnections,
) -> None:
    alice, eve = "jwt:https://issuer.example#alice", "jwt:https://issuer.example#eve&caller=x"
    addresses = {caller: urlsplit(connections.address_for(caller)) for caller in (alice, eve)}
    signatures = set()
    for caller, parts in addresses.items():
        found = parse_qs(parts.query, strict_parsing=True)
        assert (parts.scheme, parts.path, found["caller"]) == ("wss", "/live", [caller])
        assert found["X-Amz-Expires"] == ["60"]
        signatures |= set(found["X-Amz-Signature"])
    assert len(signatures) == 2


@pytest.mark.parametrize("caller", ["", "local", "arn:aws:iam::123456789012:user/eve"])
def test_who_has_no_token_signs_the_address(
    connections: ApiGatewayConnections, caller: str
) -> None:
    assert connections.address_for(caller) == URI.replace("https:", "wss:")
