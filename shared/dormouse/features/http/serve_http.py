"""serve_http: answer one request to the API, by the table of routes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from http import HTTPStatus
from typing import Any

import msgspec

from dormouse import __version__
from dormouse.client.instance import Instance
from dormouse.errors import DormouseError
from dormouse.features.http import calls, queries, tables, upkeep
from dormouse.features.http.forms import NEXT, ROW_TYPES, VERSION, Rows
from dormouse.files.results import ResultFormat
from dormouse.http.messages import HttpRequest, HttpResponse, without_body

# Every route of the API: its method, its path, who may use it, and the function that answers it.
#
# A path has parts and names in braces; nothing in it is optional. No two routes fit one path.

ROUTES = (
    calls.Route("GET", "/tables", "read", tables.list_tables),
    calls.Route("POST", "/tables", "administer", tables.create_table, 202),
    calls.Route("GET", "/tables/{table}", "read", tables.show_table),
    calls.Route("PATCH", "/tables/{table}", "administer", tables.change_table, 202),
    calls.Route("DELETE", "/tables/{table}", "administer", tables.delete_table, 202),
    calls.Route("GET", "/tables/{table}/schema", "read", tables.show_schema),
    calls.Route("GET", "/tables/{table}/properties", "read", tables.show_properties),
    calls.Route("GET", "/tables/{table}/status", "read", tables.show_status),
    calls.Route("GET", "/tables/{table}/metrics", "read", tables.show_metrics),
    calls.Route("GET", "/tables/{table}/partitions", "read", tables.list_partitions),
    calls.Route("GET", "/tables/{table}/shards", "read", tables.list_shards),
    calls.Route("GET", "/tables/{table}/row-tags", "read", tables.list_row_tags),
    calls.Route("GET", "/tables/{table}/versions", "read", tables.list_versions),
    calls.Route("GET", "/tables/{table}/jobs", "read", upkeep.list_jobs),
    calls.Route("GET", "/tables/{table}/refused-files", "read", upkeep.list_refused_files),
    calls.Route("POST", "/tables/{table}/query", "read", queries.query_table, computes=True),
    calls.Route("POST", "/tables/{table}/compact", "administer", tables.compact_table, 202),
    calls.Route("POST", "/tables/{table}/delete", "write", tables.delete_rows, 202),
    calls.Route("POST", "/tables/{table}/split", "administer", tables.split_partitions, 202),
    calls.Route("POST", "/tables/{table}/files", "write", upkeep.begin_upload),
    calls.Route("GET", "/tables/{table}/files/{file}", "read", upkeep.show_file),
    calls.Route("PUT", "/tables/{table}/files/{file}", "write", upkeep.put_file, 202, ("*/*",)),
    calls.Route("POST", "/tables/{table}/rows", "write", upkeep.add_rows, 202, upkeep.ROWS_TYPES),
    calls.Route("POST", "/sql", "read", queries.run_statement, computes=True),
    calls.Route("GET", "/queries", "read", queries.list_queries),
    calls.Route("GET", "/queries/{query_id}", "read", queries.show_query),
    calls.Route("DELETE", "/queries/{query_id}", "read", queries.cancel_query, 202),
    calls.Route("GET", "/queries/{query_id}/files/{file}", "read", queries.read_result, files=True),
    calls.Route("GET", "/jobs", "read", upkeep.list_other_jobs),
    calls.Route("GET", "/queues", "read", upkeep.list_queues),
    calls.Route("GET", "/queues/{queue}/dead-letters", "administer", upkeep.list_dead_letters),
    calls.Route("POST", "/queues/{queue}/redrive", "administer", tables.redrive_dead_letters, 202),
    calls.Route("GET", "/requests/{request}", "read", upkeep.show_request),
)
DOCUMENT = "/openapi.json"
"""The path of the description of these routes."""

_TEXT = {"type": "string"}
_REFERENCE = "#/components/schemas/{name}"
_PROBLEMS: Mapping[str, str] = {
    "400": "The request is not what the route takes.",
    "401": "Nothing says who asks, or not rightly.",
    "403": "The caller may not do this.",
    "404": "There is no such thing.",
    "405": "The path has other methods.",
    "406": "The client accepts no form that there is.",
    "409": "There is such a thing already.",
    "410": "The version that the pages are of is not kept any more.",
    "413": "The body or the answer is too large.",
    "415": "The body is of another type.",
    "422": "The request does not fit the table.",
    "500": "A fault of this side.",
    "503": "A service does not answer; try again.",
    "504": "It took too long.",
}
_WITH_KEY = (tables.RequestAccepted, upkeep.RowsReceipt)
"""What routes answer that take an Idempotency-Key."""


@lru_cache(maxsize=1)
def document(routes: Sequence[calls.Route]) -> bytes:
    """Return the document, as JSON."""
    later = queries.QueryAccepted
    classes = (k for route in routes for k in (route.body, _answered(route), route.query, later))
    types = [*dict.fromkeys(kind for kind in classes if kind is not None), calls.Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    document = _Document(dict(zip(types, schemas, strict=True)), components)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = document.operation(route)
    body = {
        "openapi": "3.1.0",
        "info": {
            "title": "Dormouse",
            "version": __version__,
            "description": "Tables on S3: what there is, queries, files and rows, requests.",
        },
        "paths": paths,
        "components": {"schemas": components, "responses": document.problems()},
    }
    return msgspec.json.encode(body)


class _Document:
    def __init__(self, schemas: Mapping[Any, Any], components: Mapping[str, Any]) -> None:
        self._schemas, self._components = schemas, components

    def operation(self, route: calls.Route) -> dict[str, Any]:
        """Return the description of a route."""
        summary, _, rest = route.description.partition("\n")
        described: dict[str, Any] = {
            "operationId": route.answer.__name__,
            "summary": summary,
            "description": " ".join(rest.split()) or summary,
            "tags": [route.group],
            "parameters": self._parameters(route),
            "responses": {str(route.status): self._answer(route), **self._later(route)}
            | {status: {"$ref": f"#/components/responses/{status}"} for status in _PROBLEMS},
        }
        if content := self._content(route):
            described["requestBody"] = {"required": route.body is None, "content": content}
        return described

    def problems(self) -> dict[str, Any]:
        """Return the descriptions of all problems, by their status."""
        content = {calls.PROBLEM_JSON: {"schema": self._schemas[calls.Problem]}}
        return {
            status: {"description": text, "content": content} for status, text in _PROBLEMS.items()
        }

    def _parameters(self, route: calls.Route) -> list[dict[str, Any]]:
        parameters: list[dict[str, Any]] = [
            {"name": name, "in": "path", "required": True, "schema": _TEXT}
            for name in re.findall(r"\{(\w+)\}", route.path)
        ]
        if route.query is not calls.NoQuery:
            schemas = self._components[route.query.__name__]["properties"]
            parameters += [{"name": n, "in": "query", "schema": s} for n, s in schemas.items()]
        if route.computes or _answered(route) in _WITH_KEY:
            text = "The same request, sent again under one key, is done once."
            schema = {"type": "string", "minLength": 1, "maxLength": 128}
            key = {"name": tables.IDEMPOTENCY_KEY, "in": "header", "schema": schema}
            parameters.append({**key, "description": text})
        if route.computes:
            text = f"With {queries.RESPOND_LATER}, all rows are answered later, as files."
            prefer = {"name": "prefer", "in": "header", "schema": _TEXT, "description": text}
            parameters.append(prefer)
        return parameters

    def _content(self, route: calls.Route) -> dict[str, Any]:
        if route.body is not None:
            return {calls.JSON: {"schema": self._schemas[route.body]}}
        rows = {"type": "array", "items": {"type": "object"}}
        return {kind: {"schema": rows if kind == calls.JSON else {}} for kind in route.takes}

    def _later(self, route: calls.Route) -> dict[str, Any]:
        if not route.computes:
            return {}
        text = "The rows are answered later: follow the location."
        return {
            "202": {
                "description": text,
                "headers": {"location": {"description": "The query.", "schema": _TEXT}},
                "content": {calls.JSON: {"schema": self._schemas[queries.QueryAccepted]}},
            }
        }

    def _answer(self, route: calls.Route) -> dict[str, Any]:
        kind = _answered(route)
        if route.files:
            forms: dict[str, Any] = {form.media_type: {} for form in ResultFormat}
            return {"description": _first_sentence(route), "content": forms}
        content: dict[str, Any] = {calls.JSON: {"schema": self._schemas[kind]}}
        described: dict[str, Any] = {"description": _first_sentence(route), "content": content}
        if kind is Rows:
            content |= {form: {} for form in ROW_TYPES[1:]}
            texts = {NEXT: "What to send as `after` for more rows.", VERSION: "The version read."}
            described["headers"] = {
                name: {"description": text, "schema": _TEXT} for name, text in texts.items()
            }
        return described


def _answered(route: calls.Route) -> Any:
    """Return the type of an answer; functions that answer rows encode them by themselves."""
    kind = route.hints["return"]
    if route.files:
        return None
    return Rows if kind is HttpResponse else kind


def _first_sentence(route: calls.Route) -> str:
    return " ".join(route.description.split()).partition(". ")[0]


def serve_http(instance: Instance, request: HttpRequest) -> HttpResponse:
    """Answer a request; what is wrong with it, or with what it names, is answered as a problem."""
    try:
        response = _answer(instance, request)
    except (calls.ProblemError, DormouseError) as error:
        response = calls.problem_of(error)
    headers = {**response.headers, "x-content-type-options": "nosniff"}
    response = replace(response, headers=headers)
    return without_body(response) if request.method == "HEAD" else response


def _answer(instance: Instance, request: HttpRequest) -> HttpResponse:
    if request.path == DOCUMENT and request.method in ("GET", "HEAD"):
        return HttpResponse(200, calls.JSON_HEADERS, document(ROUTES))
    route, names = find_route(request)
    call = calls.HttpCall(instance, request)
    if route.computes and instance.computing is not None:
        response = instance.computing.answer(request)
        if response.status == HTTPStatus.ACCEPTED and instance.folder is not None:
            instance.folder.background.wake()  # the other process has sent a message
        return response
    answer = route.answer(call, **names, **route.arguments(call))
    if isinstance(answer, HttpResponse):
        return answer
    return calls.json_answer(route.status, answer)


def find_route(request: HttpRequest) -> tuple[calls.Route, dict[str, str]]:
    """Return the route of a request, and the values of the names in its path.
    Raises ProblemError: there is no such path, or it has other methods.
    """
    methods, parts = [], request.path.removeprefix("/").split("/")
    for route in ROUTES:
        names = route.match(parts)
        if names is None:
            continue
        if request.method == route.method or (request.method, route.method) == ("HEAD", "GET"):
            return route, names
        methods.append(route.method)
    if methods:
        allowed = ", ".join(sorted(methods))
        raise calls.ProblemError(
            405, "this path has other methods", hint=f"use {allowed}", allow=allowed
        )
    raise calls.ProblemError(404, "there is no such path", hint=f"{DOCUMENT} describes all")
