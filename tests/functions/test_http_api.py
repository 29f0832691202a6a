"""The catalog's function: its events, its answers, and what its log says of them."""

from __future__ import annotations

import io
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from dormouse.aws.apis import handle_http, request_of
from dormouse.errors import InvalidRequestError
from dormouse.http.messages import HttpRequest, HttpResponse, json_response
from dormouse.state.versions import Checkpoint, PublicationRecord
from tests.functions.conftest import Functions
from tests.support.lambda_context import Context

EVENTS = Path(__file__).parents[2] / "events" / "serve_catalog"


def event(name: str = "good", **changed: Any) -> dict[str, Any]:
    return {**json.loads((EVENTS / f"{name}.json").read_text()), **changed}


def test_an_event_of_aws_is_read() -> None:
    found = request_of(event(headers={"X-Amz-Date": "now"}))
    path = "/iceberg/v1/namespaces/dormouse/tables/letters"
    caller = "arn:aws:iam::123456789012:user/reader"
    assert found == HttpRequest("GET", path, "snapshots=all", {"x-amz-date": "now"}, b"", caller)
    assert request_of(event("write")).body == b'{"requirements":[],"updates":[]}'
    assert request_of(event(body="/w==", isBase64Encoded=True)).body == b"\xff"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"Records": []},
        event(version="1.0"),
        event(rawPath=None),
        event(requestContext={}),
        event(headers={"a": ["b"]}),
        event(body="no base64!", isBase64Encoded=True),
    ],
)
def test_what_is_no_such_event_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError, match="not an event of an HTTP API"):
        request_of(wrong)


def ask(name: str = "good", **changed: Any) -> dict[str, Any]:
    handler = import_module("functions.serve_catalog.handler")
    answer: dict[str, Any] = handler.handle(event(name, **changed), Context())
    return answer


def test_a_request_is_answered_and_logged_without_what_may_be_secret(
    functions: Functions, log: io.StringIO
) -> None:
    answer = ask(rawQueryString="token=hidden", headers={"authorization": "hidden"})
    assert (answer["statusCode"], answer["isBase64Encoded"]) == (404, False)
    assert answer["headers"]["content-type"] == "application/json"
    assert "iceberg=on" in json.loads(answer["body"])["error"]["message"]
    (line,) = map(json.loads, log.getvalue().splitlines())
    assert (line["level"], line["message"], line["method"]) == ("INFO", "answered", "GET")
    assert (line["path"], line["status"]) == (event()["rawPath"], 404)
    assert "hidden" not in log.getvalue()


def test_a_long_path_is_cut_in_the_log(functions: Functions, log: io.StringIO) -> None:
    assert ask(rawPath="/iceberg/" + "x" * 8000)["statusCode"] == 404
    assert len(log.getvalue()) < 1500


def test_damage_is_logged_as_an_error_with_its_reason(
    functions: Functions, log: io.StringIO
) -> None:
    changed = functions.table.with_settings({"iceberg": "on"}, {})
    functions.world.tables.change(functions.table.id, lambda table: changed)
    checkpoint = Checkpoint(1, functions.table.state_id, 0, 1, 1, "no/such.metadata.json")
    record = PublicationRecord(1, checkpoints=(checkpoint,))
    functions.world.publications.replace(functions.table.id, None, record)
    answer = ask()
    assert answer["statusCode"] == 500
    (line,) = map(json.loads, log.getvalue().splitlines())
    assert (line["level"], line["message"], line["status"]) == ("ERROR", "failed", 500)
    assert "dormouse iceberg publish letters" in line["reason"]
    assert "letters" in line["path"]


def test_credentials_in_an_answer_are_not_logged(functions: Functions, log: io.StringIO) -> None:
    def lend(request: HttpRequest) -> HttpResponse:
        return json_response(200, {"config": {"s3.secret-access-key": "hidden"}})

    answer = handle_http(event(), Context(), lend)
    assert "hidden" in str(answer["body"])
    assert "answered" in log.getvalue()
    assert "hidden" not in log.getvalue()
