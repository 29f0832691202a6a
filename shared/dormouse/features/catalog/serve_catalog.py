"""serve_catalog: answer one request to the catalog.

Nothing is written. What readers are given is what the record of a publication names at that moment,
so they see each publication at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from dormouse.errors import DormouseError, ForbiddenError, UnavailableError
from dormouse.features.catalog.published import (
    find_metadata,
    find_view,
    load_metadata,
    table_names,
    view_names,
)
from dormouse.http.messages import (
    HttpRequest,
    HttpResponse,
    error_response,
    json_response,
    without_body,
)
from dormouse.iceberg.serving.rest import (
    NAMESPACE,
    CatalogError,
    Kind,
    Target,
    check_namespace,
    config,
    entity_tag,
    identifiers,
    is_known,
    load_result,
    page,
    parse_path,
    shown,
)
from dormouse.iceberg.serving.views import view_result
from dormouse.ports.services import Services, root_uri
from dormouse.stored.paths import data_prefix, iceberg_prefix

READS = ("GET", "HEAD")
DELEGATION, VENDED = "x-iceberg-access-delegation", "vended-credentials"
"""The header by which clients ask for access in some ways, and the way that is offered."""


def serve_catalog(services: Services, request: HttpRequest) -> HttpResponse:
    """Answer a request; what is wrong with it, or with what it names, is answered as an error."""
    try:
        response = _answer(services, request)
    except CatalogError as error:
        allowed = {"allow": ", ".join(READS)} if error.status == 405 else {}
        response = error_response(error.status, error.kind, error.explanation, **allowed)
    except ForbiddenError as error:
        response = error_response(403, "ForbiddenException", error.explanation)
    except UnavailableError as error:
        response = error_response(503, "ServiceUnavailableException", error.explanation)
    except DormouseError as error:  # what is published is damaged, or the instance is
        response = error_response(500, "InternalServerError", error.explanation)
        response = replace(response, problem=error.explanation)
    return without_body(response) if request.method == "HEAD" else response


def _answer(services: Services, request: HttpRequest) -> HttpResponse:
    if request.method not in READS:
        raise CatalogError(
            405,
            "UnsupportedOperationException",
            f"this catalog can only be read; {shown(request.method)} is not supported",
            hint="tables are made and changed by Dormouse: `dormouse table`, `dormouse ingest`",
        )
    target = parse_path(request.path)
    check_namespace(target)
    return _ANSWERS[target.kind](services, request, target)


def _config(services: Services, request: HttpRequest, target: Target) -> HttpResponse:
    return json_response(200, config(request.query.get("warehouse", "")))


def _namespaces(services: Services, request: HttpRequest, target: Target) -> HttpResponse:
    """Answer with the namespaces, or with those below a `parent`: of the one there is, none."""
    parent = request.query.get("parent", "")
    check_namespace(Target("namespaces", parent))
    return json_response(200, {"namespaces": [] if parent else [[NAMESPACE]]})


def _namespace(services: Services, request: HttpRequest, target: Target) -> HttpResponse:
    if request.method == "HEAD":
        return HttpResponse(204)
    return json_response(200, {"namespace": [NAMESPACE], "properties": {}})


def _tables(services: Services, request: HttpRequest, target: Target) -> HttpResponse:
    return json_response(
        200, identifiers(*page(table_names(services, request.principal), request.query))
    )


def _table(services: Services, request: HttpRequest, target: Target) -> HttpResponse:
    if request.method == "HEAD":
        find_metadata(services, request.principal, target.name)
        return HttpResponse(204)
    only_refs = request.query.get("snapshots") == "refs"
    known = "" if _asks_for_credentials(request) else request.headers.get("if-none-match", "")
    if known:
        tag = entity_tag(find_metadata(services, request.principal, target.name)[1], only_refs)
        if is_known(tag, known):
            return HttpResponse(304, {"etag": tag, "cache-control": "no-store"})
    loaded = load_metadata(services, request.principal, target.name)
    result = load_result(loaded.location, loaded.metadata, only_refs=only_refs)
    result |= _access(services, request, loaded.table.id)
    response = json_response(200, result, cache_control="no-store")
    if _asks_for_credentials(request):  # they end, so each load gets new ones
        return response
    tag = entity_tag(loaded.location, only_refs)
    return replace(response, headers={**response.headers, "etag": tag})


def _asks_for_credentials(request: HttpRequest) -> bool:
    asked = request.headers.get(DELEGATION, "").split(",")
    return VENDED in {way.strip() for way in asked}


def _access(services: Services, request: HttpRequest, table_id: str) -> dict[str, Any]:
    """Return what the client needs to open objects, with credentials if it asks for them.

    These are given for each prefix as well: some clients use others only below the location of the
    table, and its shards are not there.
    """
    access = services.reader_access
    if access is None:
        return {"config": {}}
    lent = access.credentials(table_id) if _asks_for_credentials(request) else {}
    found = {**access.settings(), **lent}
    if not lent:
        return {"config": found}
    root = root_uri(services.storage)
    prefixes = (data_prefix(table_id), iceberg_prefix(table_id))
    each = [{"prefix": f"{root}/{prefix}", "config": found} for prefix in prefixes]
    return {"config": found, "storage-credentials": each}


def _views(services: Services, request: HttpRequest, target: Target) -> HttpResponse:
    return json_response(
        200, identifiers(*page(view_names(services, request.principal), request.query))
    )


def _view(services: Services, request: HttpRequest, target: Target) -> HttpResponse:
    table, view = find_view(services, request.principal, target.name)
    if request.method == "HEAD":
        return HttpResponse(204)
    root = root_uri(services.storage)
    return json_response(200, view_result(table, view, root, NAMESPACE, target.prefix))


_ANSWERS: Mapping[Kind, Callable[[Services, HttpRequest, Target], HttpResponse]] = {
    "config": _config,
    "namespaces": _namespaces,
    "namespace": _namespace,
    "tables": _tables,
    "table": _table,
    "views": _views,
    "view": _view,
}
