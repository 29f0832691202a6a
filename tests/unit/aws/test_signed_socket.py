"""Signed addresses of the WebSocket of a deployment."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from dormouse.aws import clients
from dormouse.aws.connections import SECONDS, signing
from dormouse.errors import InvalidRequestError

URI = "wss://f6g7h8i9j0.execute-api.eu-west-2.amazonaws.com/live"


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret of the caller")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token/+=")
    clients.session.cache_clear()


def test_an_address_has_its_signature_and_not_the_secret() -> None:
    signed = signing(URI)()
    found = parse_qs(urlsplit(signed).query)
    assert signed.startswith(f"{URI}?")
    assert found["X-Amz-Expires"] == [str(SECONDS)]
    assert found["X-Amz-Credential"][0].endswith("/eu-west-2/execute-api/aws4_request")
    assert found["X-Amz-Security-Token"] == ["token/+="]
    assert "secret" not in signed


@pytest.mark.parametrize("uri", ["", "https://x.example/live", "ws://x.example/live", f"{URI}?a=b"])
def test_what_is_no_address_of_a_websocket_api_is_refused(uri: str) -> None:
    with pytest.raises(InvalidRequestError, match="WebSocket API"):
        signing(uri)
