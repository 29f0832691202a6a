"""The policies for callers of the HTTP API permit the routes of their groups, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from dormouse.features.http.serve_http import DOCUMENT, ROUTES
from dormouse_cli.local.resources import SENDER_ID
from tests.template.conftest import NAMES, REGION, Template
from tests.template.iam import Need, is_granted, statements

API = f"arn:aws:execute-api:{REGION}:{NAMES.account}:local-HttpApi/$default"
GROUPS = {
    "read": "HttpReadPolicy",
    "write": "HttpWritePolicy",
    "administer": "HttpAdministerPolicy",
}
TOKENS = {"JwtIssuer": "https://login.example", "JwtAudience": "dormouse"}
TOKEN_PARTS = {
    "TokenApi",
    "TokenAuthorizer",
    "TokenIntegration",
    "TokenStage",
    "TokenPermission",
    "TokenApiErrorsAlarm",
    *(f"Token{method}Route" for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")),
}


def permits(template: Template, group: str, method: str, path: str) -> bool:
    document: dict[str, Any] = template.properties(GROUPS[group])["PolicyDocument"]
    need = Need("execute-api:Invoke", f"{API}/{method}{path}")
    return is_granted(need, list(statements(document)))


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_a_group_may_what_the_routes_of_it_do_and_nothing_else(
    template: Template, group: str, route: Any
) -> None:
    path = route.path.replace("{", "").replace("}", "")
    assert permits(template, group, route.method, path) == (route.group == group)


@pytest.mark.parametrize("group", GROUPS)
def test_each_group_may_read_the_description_and_none_the_catalog(
    template: Template, group: str
) -> None:
    assert permits(template, group, "GET", DOCUMENT)
    assert not permits(template, group, "GET", "/iceberg/v1/config")
    assert not permits(template, group, "PUT", "/tables/t")


def parts(template: Template) -> set[str]:
    return {
        logical_id
        for logical_id, resource in template.translated.resources.items()
        if logical_id.startswith("Token")
        and template.resolver.holds(str(resource["Condition"]), logical_id)
    }


def test_there_is_no_address_for_tokens_unless_it_is_asked_for(template: Template) -> None:
    assert parts(template) == set()
    assert parts(Template.read(**TOKENS)) == TOKEN_PARTS


def test_each_route_for_tokens_asks_for_one_of_the_issuer() -> None:
    template = Template.read(**TOKENS)
    every = template.of_type("AWS::ApiGatewayV2::Route")
    routes = [route for name, route in every.items() if name.startswith("Token")]
    assert {route["AuthorizationType"] for route in routes} == {"JWT"}
    assert not [route for route in routes if route["RouteKey"].startswith(("ANY", "OPTIONS"))]
    authorizer = template.properties("TokenAuthorizer")
    assert authorizer["AuthorizerType"] == "JWT"
    assert authorizer["JwtConfiguration"]["Issuer"] == TOKENS["JwtIssuer"]


def test_the_api_for_tokens_invokes_one_function() -> None:
    permission = Template.read(**TOKENS).properties("TokenPermission")
    assert permission["FunctionName"] == "dormouse-test-serve_http"
    api = f"arn:aws:execute-api:{REGION}:{NAMES.account}:local-TokenApi"
    assert permission["SourceArn"] == f"{api}/*"


def test_queries_believe_the_instance_to_say_whose_query_goes_on(template: Template) -> None:
    function = template.translated.resources["AnswerQueryFunction"]["Properties"]
    given = function["Environment"]["Variables"]["DORMOUSE_QUERY_ROLE_IDS"]
    roles = ("AnswerQuery", "Sweep", "DispatchSpark", "TrackSpark")
    assert given == {"Fn::Sub": ",".join(f"${{{role}Role.RoleId}}" for role in roles)}
    resolved = template.function("answer_query")["Environment"]["Variables"]
    assert resolved["DORMOUSE_QUERY_ROLE_IDS"] == ",".join([SENDER_ID] * 4)


def test_pages_of_other_servers_may_ask_only_if_they_are_named() -> None:
    asked = Template.read(**TOKENS, CorsOrigins="https://app.example")
    cors = asked.properties("TokenApi")["CorsConfiguration"]
    assert cors["AllowOrigins"] == "https://app.example"
    assert "AllowCredentials" not in cors
    assert "CorsConfiguration" not in Template.read(**TOKENS).properties("TokenApi")


def test_queries_believe_the_role_of_the_api_to_say_who_asks(template: Template) -> None:
    variables = template.function("answer_query")["Environment"]["Variables"]
    assert variables["DORMOUSE_HTTP_ROLE_ID"] == SENDER_ID
    asking = [
        stage
        for stage, each in template.of_type("AWS::Lambda::Function").items()
        if "DORMOUSE_HTTP_ROLE_ID" in each["Environment"]["Variables"]
    ]
    assert asking == ["AnswerQueryFunction"]
