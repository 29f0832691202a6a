"""Requests of the console to the API of a deployment: signed, and stripped of what is not meant."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from botocore.awsrequest import AWSRequest
from botocore.exceptions import EndpointConnectionError

from dormouse.aws import clients, http_proxy
from dormouse.aws.http_proxy import SigningProxy, api_uri
from dormouse.errors import InvalidRequestError, NotFoundError
from dormouse.http.messages import HttpRequest

URL = "https://abc123.execute-api.eu-west-2.amazonaws.com"


@pytest.fixture(autouse=True)
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    clients.session.cache_clear()
    yield
    clients.session.cache_clear()


class Api:
    """What the API was sent; it answers with some headers."""

    def __init__(self) -> None:
        self.sent: list[AWSRequest] = []

    def send(self, asked: AWSRequest) -> tuple[int, dict[str, str], bytes]:
        self.sent.append(asked)
        headers = {"content-type": "application/json", "set-cookie": "a=b", "dormouse-next": "n"}
        return 200, headers, b"{}"


def test_a_request_is_signed_for_the_region_of_the_api(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    monkeypatch.setattr(http_proxy, "_send", api.send)
    proxy = SigningProxy(URL)
    headers = {
        "authorization": "Bearer of-this-server",
        "cookie": "c",
        "origin": "http://127.0.0.1:1",
        "content-type": "application/json",
        "idempotency-key": "k",
    }
    response = proxy.answer(HttpRequest("POST", "/tables/a%20b/rows", "x=1", headers, b"[]"))
    (sent,) = api.sent
    assert (sent.method, sent.url, sent.data) == ("POST", f"{URL}/tables/a%20b/rows?x=1", b"[]")
    signature = sent.headers["Authorization"]
    assert signature.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
    assert "/eu-west-2/execute-api/aws4_request" in signature
    assert "idempotency-key" in signature  # what is sent is signed
    assert "of-this-server" not in str(sent.headers)
    assert not {"cookie", "origin"} & {name.lower() for name in sent.headers}
    assert response.headers == {"content-type": "application/json", "dormouse-next": "n"}


def test_an_api_that_does_not_answer_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(asked: AWSRequest) -> tuple[int, dict[str, str], bytes]:
        raise EndpointConnectionError(endpoint_url=URL)

    monkeypatch.setattr(http_proxy, "_send", send)
    response = SigningProxy(URL).answer(HttpRequest("GET", "/tables"))
    assert response.status == 502
    assert b"does not answer" in response.body


@pytest.mark.parametrize(
    "url", ["http://abc.execute-api.eu-west-2.amazonaws.com", "abc", "https://", f"{URL}/stage"]
)
def test_what_is_no_address_of_an_api_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError, match="not the address of an HTTP API"):
        SigningProxy(url)


def test_the_api_of_an_instance_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from moto.server import ThreadedMotoServer  # with Flask, which all processes would load

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        gateway = boto3.client("apigatewayv2", "us-east-1")
        for name in ("dormouse-other", "dormouse-prod"):
            made = gateway.create_api(Name=name, ProtocolType="HTTP")
        assert api_uri("prod") == made["ApiEndpoint"]
        with pytest.raises(NotFoundError, match="no API 'dormouse-none'"):
            api_uri("none")
    finally:
        server.stop()
