"""serve_http: answer one request to the API, by the table of routes."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus

from dormouse.client.instance import Instance
from dormouse.errors import DormouseError
from dormouse.features.http.calls import JSON_HEADERS, Call, Route, json_answer
from dormouse.features.http.openapi import document
from dormouse.features.http.problems import ProblemError, problem_of
from dormouse.features.http.routes import DOCUMENT, ROUTES
from dormouse.http.messages import HttpRequest, HttpResponse, without_body


def serve_http(instance: Instance, request: HttpRequest) -> HttpResponse:
    """Answer a request; what is wrong with it, or with what it names, is answered as a problem."""
    try:
        response = _answer(instance, request)
    except (ProblemError, DormouseError) as error:
        response = problem_of(error)
    headers = {**response.headers, "x-content-type-options": "nosniff"}
    response = replace(response, headers=headers)
    return without_body(response) if request.method == "HEAD" else response


def _answer(instance: Instance, request: HttpRequest) -> HttpResponse:
    if request.path == DOCUMENT and request.method in ("GET", "HEAD"):
        return HttpResponse(200, JSON_HEADERS, document(ROUTES))
    route, names = find_route(request)
    call = Call(instance, request)
    if route.apart and instance.computing is not None:
        response = instance.computing.answer(request)
        if response.status == HTTPStatus.ACCEPTED and instance.folder is not None:
            instance.folder.background.wake()  # the other process has sent a message
        return response
    answer = route.answer(call, **names, **route.arguments(call))
    if isinstance(answer, HttpResponse):
        return answer
    return json_answer(route.status, answer)


def find_route(request: HttpRequest) -> tuple[Route, dict[str, str]]:
    """Return the route of a request, and the values of the names in its path.

    Raises:
        ProblemError: there is no such path, or it has other methods.
    """
    methods = []
    for route in ROUTES:
        names = route.match(request.path)
        if names is None:
            continue
        if request.method == route.method or (request.method, route.method) == ("HEAD", "GET"):
            return route, names
        methods.append(route.method)
    if methods:
        allowed = ", ".join(sorted(methods))
        raise ProblemError(405, "this path has other methods", hint=f"use {allowed}", allow=allowed)
    raise ProblemError(404, "there is no such path", hint=f"{DOCUMENT} describes all")
