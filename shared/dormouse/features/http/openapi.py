"""The description of the routes as an OpenAPI 3.1 document, made from their types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from dormouse import __version__
from dormouse.features.http.calls import JSON, NoQuery, Route
from dormouse.features.http.problems import PROBLEM_JSON, Problem
from dormouse.features.http.resources.asked import RESPOND_LATER
from dormouse.features.http.resources.changes import IDEMPOTENCY_KEY, Accepted
from dormouse.features.http.resources.forms import NEXT, VERSION, RowForm, Rows
from dormouse.features.http.resources.uploads import RowsTaken
from dormouse.http.messages import HttpResponse
from dormouse.results.formats import ResultFormat

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
_WITH_KEY = (Accepted, RowsTaken)
"""What routes answer that take an Idempotency-Key."""


@lru_cache(maxsize=1)
def document(routes: Sequence[Route]) -> bytes:
    """Return the document, as JSON."""
    found = (
        kind
        for route in routes
        for kind in (route.body, _answered(route), route.query, route.later)
    )
    types = [*dict.fromkeys(kind for kind in found if kind is not None), Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REFERENCE)
    made = _Document(dict(zip(types, schemas, strict=True)), components)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = made.operation(route)
    body = {
        "openapi": "3.1.0",
        "info": {
            "title": "Dormouse",
            "version": __version__,
            "description": "Tables on S3: what there is, queries, files and rows, requests.",
        },
        "paths": paths,
        "components": {"schemas": components, "responses": made.problems()},
    }
    return msgspec.json.encode(body)


class _Document:
    def __init__(self, schemas: Mapping[Any, Any], components: Mapping[str, Any]) -> None:
        self._schemas, self._components = schemas, components

    def operation(self, route: Route) -> dict[str, Any]:
        """Return the description of a route."""
        summary, _, rest = route.description.partition("\n")
        described: dict[str, Any] = {
            "operationId": route.name,
            "summary": summary,
            "description": " ".join(rest.split()) or summary,
            "tags": [route.group],
            "parameters": [*self._in_path(route), *self._in_query(route), *_in_headers(route)],
            "responses": {str(route.status): self._answer(route), **self._later(route)}
            | {status: {"$ref": f"#/components/responses/{status}"} for status in _PROBLEMS},
        }
        if content := self._content(route):
            described["requestBody"] = {"required": route.body is None, "content": content}
        return described

    def problems(self) -> dict[str, Any]:
        """Return the descriptions of all problems, by their status."""
        content = {PROBLEM_JSON: {"schema": self._schemas[Problem]}}
        return {
            status: {"description": text, "content": content} for status, text in _PROBLEMS.items()
        }

    def _in_path(self, route: Route) -> list[dict[str, Any]]:
        return [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"\{(\w+)\}", route.path)
        ]

    def _in_query(self, route: Route) -> list[dict[str, Any]]:
        if route.query is NoQuery:
            return []
        schema = self._components[route.query.__name__]
        return [
            {"name": name, "in": "query", "schema": described}
            for name, described in schema["properties"].items()
        ]

    def _content(self, route: Route) -> dict[str, Any]:
        if route.body is not None:
            return {JSON: {"schema": self._schemas[route.body]}}
        return {media_type: {"schema": _body_schema(media_type)} for media_type in route.takes}

    def _later(self, route: Route) -> dict[str, Any]:
        if route.later is None:
            return {}
        text = "The rows are answered later: follow the location."
        return {
            "202": {
                "description": text,
                "headers": {"location": {"description": "The query.", "schema": _TEXT}},
                "content": {JSON: {"schema": self._schemas[route.later]}},
            }
        }

    def _answer(self, route: Route) -> dict[str, Any]:
        kind = _answered(route)
        if route.files:
            forms: dict[str, Any] = {form.media_type: {} for form in ResultFormat}
            return {"description": _first_sentence(route), "content": forms}
        content: dict[str, Any] = {JSON: {"schema": self._schemas[kind]}}
        described: dict[str, Any] = {"description": _first_sentence(route), "content": content}
        if kind is Rows:
            content |= {form.value: {} for form in RowForm if form is not RowForm.json}
            texts = {NEXT: "What to send as `after` for more rows.", VERSION: "The version read."}
            described["headers"] = {
                name: {"description": text, "schema": {"type": "string"}}
                for name, text in texts.items()
            }
        return described


def _answered(route: Route) -> Any:
    """Return the type of an answer; functions that answer rows encode them by themselves."""
    kind = route.hints["return"]
    if route.files:
        return None
    return Rows if kind is HttpResponse else kind


def _in_headers(route: Route) -> list[dict[str, Any]]:
    found = []
    if route.later is not None or _answered(route) in _WITH_KEY:
        text = "The same request, sent again under one key, is done once."
        schema = {"type": "string", "minLength": 1, "maxLength": 128}
        found = [{"name": IDEMPOTENCY_KEY, "in": "header", "description": text, "schema": schema}]
    if route.later is not None:
        text = f"With {RESPOND_LATER}, all rows are answered later, as files."
        found += [{"name": "prefer", "in": "header", "description": text, "schema": _TEXT}]
    return found


def _body_schema(media_type: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "object"}} if media_type == JSON else {}


def _first_sentence(route: Route) -> str:
    return " ".join(route.description.split()).partition(". ")[0]
