"""The HTTP API on this machine: requests find their function, events and responses are as on AWS.

The routes are those of the template; what the events look like is held against the function's own
reading of them, and against the sample that AWS's documents describe.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dormouse.aws.apis import request_of, response_of
from dormouse.http.messages import HttpRequest, HttpResponse
from dormouse_cli.local.commands import LOCAL_PARAMETERS, find_template
from dormouse_cli.local.lambda_host import Outcome
from dormouse_cli.local.plan import HttpRoute, TemplateError
from dormouse_cli.local.stack import MOST_RETURNED_BYTES, HttpApi, event_of
from dormouse_cli.local.template import read

SAMPLE = Path(__file__).parents[2] / "events" / "serve_catalog" / "good.json"
ENDPOINT = "http://127.0.0.1:1"
ROUTES = (
    HttpRoute("ANY", "/a/{proxy+}", "any"),
    HttpRoute("GET", "/a/{proxy+}", "get"),
    HttpRoute("ANY", "/a/b/{proxy+}", "longer"),
    HttpRoute("ANY", "/a/b/whole", "whole"),
    HttpRoute("POST", "/only", "post"),
)


class Functions:
    """Functions that answer with their own name, or with what they are to."""

    def __init__(self, returned: object = None, *, failed: bool = False) -> None:
        self.events: list[Any] = []
        self._returned, self._failed = returned, failed

    def invoke(self, function: str, event: bytes) -> Outcome:
        self.events.append(json.loads(event))
        returned = self._returned or {"statusCode": 200, "body": function}
        return Outcome(json.dumps(returned).encode(), self._failed)


def api(functions: Functions) -> HttpApi:
    return HttpApi(ROUTES, functions.invoke)


@pytest.mark.parametrize(
    ("method", "path", "function"),
    [
        ("POST", "/a/x", "any"),
        ("GET", "/a/x/y", "get"),
        ("GET", "/a/b/x", "longer"),
        ("GET", "/a/b/whole", "whole"),
        ("POST", "/only", "post"),
    ],
)
def test_the_most_specific_route_answers(method: str, path: str, function: str) -> None:
    response = api(Functions()).answer(HttpRequest(method, path))
    assert (response.status, response.body) == (200, function.encode())


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/"), ("GET", "/a"), ("GET", "/a/"), ("GET", "/only"), ("GET", "/b")],
)
def test_what_no_route_has_is_not_found(method: str, path: str) -> None:
    functions = Functions()
    response = api(functions).answer(HttpRequest(method, path))
    assert (response.status, functions.events) == (404, [])
    assert json.loads(response.body) == {"message": "Not Found"}


def test_an_event_has_the_parts_of_one_on_aws() -> None:
    sent = HttpRequest("POST", "/a/x%1Fy/z", "q=1&q=2&e=", {"user-agent": "me"}, b"{}")
    event = event_of(sent, HttpRoute("ANY", "/a/{proxy+}", "any"), "id", 1_700_000_000.5)
    sample = json.loads(SAMPLE.read_text())
    assert {*sample} <= {*event}
    assert {*sample["requestContext"]} == {*event["requestContext"]}
    assert {*event["requestContext"]["authorizer"]["iam"]} <= {
        *sample["requestContext"]["authorizer"]["iam"]
    }
    assert {*sample["requestContext"]["http"]} == {*event["requestContext"]["http"]}
    assert event["pathParameters"] == {"proxy": "x%1Fy/z"}
    assert event["queryStringParameters"] == {"q": "2", "e": ""}
    assert event["requestContext"]["time"] == "14/Nov/2023:22:13:20 +0000"
    assert event["requestContext"]["timeEpoch"] == 1_700_000_000_500
    assert (event["routeKey"], event["body"]) == ("ANY /a/{proxy+}", "{}")


@pytest.mark.parametrize("body", [b"", b"text", "ü".encode(), b"\xff\x00"])
def test_a_function_reads_of_an_event_what_was_sent(body: bytes) -> None:
    functions = Functions()
    sent = HttpRequest("POST", "/a/x%1Fy", "q=1%2B&q=2", {"x-more": "y"}, body)
    api(functions).answer(sent)
    caller = "arn:aws:iam::123456789012:user/local"
    assert request_of(functions.events[0]) == replace(sent, principal=caller)


@pytest.mark.parametrize(
    "response",
    [
        HttpResponse(200, {"content-type": "application/json"}, '{"name":"ü"}'.encode()),
        HttpResponse(204, {"content-type": "text/plain"}),
        HttpResponse(405, {"content-type": "application/json", "allow": "GET, HEAD"}, b"{}"),
    ],
)
def test_what_a_function_returns_is_what_is_answered(response: HttpResponse) -> None:
    functions = Functions(response_of(response))
    assert api(functions).answer(HttpRequest("GET", "/a/x")) == response


@pytest.mark.parametrize(
    ("returned", "body"),
    [
        ({"any": "thing"}, b'{"any":"thing"}'),
        (["list"], b'["list"]'),
        ({"statusCode": 200, "body": "/w==", "isBase64Encoded": True}, b"\xff"),
    ],
)
def test_what_is_no_response_becomes_one_as_on_aws(returned: object, body: bytes) -> None:
    response = api(Functions(returned)).answer(HttpRequest("GET", "/a/x"))
    assert (response.status, response.body) == (200, body)


@pytest.mark.parametrize(
    "functions",
    [
        Functions({"errorMessage": "secret", "stackTrace": []}, failed=True),
        Functions({"statusCode": 200, "body": "x" * MOST_RETURNED_BYTES}),
    ],
)
def test_a_function_that_fails_or_returns_too_much_is_a_fault_of_this_side(
    functions: Functions,
) -> None:
    response = api(functions).answer(HttpRequest("GET", "/a/x"))
    assert (response.status, response.body) == (500, b'{"message":"Internal Server Error"}')


def test_the_routes_are_those_of_the_template() -> None:
    deployment = read(find_template(), LOCAL_PARAMETERS, ENDPOINT)
    assert set(deployment.routes) == {
        HttpRoute("ANY", "/iceberg/{proxy+}", "dormouse-local-serve_catalog"),
        HttpRoute("ANY", "/{proxy+}", "dormouse-local-serve_http"),
    }


FUNCTION = """
  Work:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: code
      Handler: handler.handle
      Runtime: python3.13
      Events:
        Route: {Type: HttpApi, Properties: {ApiId: {Ref: Api}, %s}}
  Api: {Type: AWS::Serverless::HttpApi}
"""


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ("Method: GET, Path: '/{one}/two'", "paths with a {name+} at their end"),
        ("Method: GET, Path: /x, PayloadFormatVersion: '1.0'", "another PayloadFormatVersion"),
    ],
)
def test_a_route_that_is_not_known_is_refused(
    tmp_path: Path, properties: str, message: str
) -> None:
    (tmp_path / "code").mkdir()
    path = tmp_path / "template.yaml"
    text = "Transform: AWS::Serverless-2016-10-31\nResources:" + FUNCTION % properties
    path.write_text(text)
    with pytest.raises(TemplateError) as refused:
        read(path, {}, ENDPOINT)
    assert message in str(refused.value)


def test_a_route_of_a_template_names_its_function(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    path = tmp_path / "template.yaml"
    routed = FUNCTION % "Method: get, Path: /x/y"
    path.write_text("Transform: AWS::Serverless-2016-10-31\nResources:" + routed)
    (route,) = read(path, {}, ENDPOINT).routes
    assert route == HttpRoute("GET", "/x/y", "local-Work")
