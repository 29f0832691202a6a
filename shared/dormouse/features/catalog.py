"""serve_catalog: answer one request to the catalog.

Nothing is written. What readers are given is what the record of a publication names at that moment,
so they see each publication at once.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dormouse import errors
from dormouse.features.access import find_table, visible_tables
from dormouse.http.messages import (
    HttpRequest,
    HttpResponse,
    error_response,
    json_response,
    without_body,
)
from dormouse.iceberg import rest
from dormouse.iceberg.metadata import MetadataFile
from dormouse.iceberg.views import View, view_of, view_result, why_no_view
from dormouse.items.records import LOST_PUBLICATION
from dormouse.ports import Services
from dormouse.storage import root_uri
from dormouse.stored.paths import data_prefix, iceberg_prefix
from dormouse.tables.table import PARTS, Table, is_published, published_name

# The tables and views that the catalog has: what is published, and under which names.
#
# A table with row rules is in the catalog as the table of its stored rows, and as a view of its own
# name, if SQL can say the rules. Readers open its files, which hold all columns: so only tables are
# listed of which the access rules of the instance hide nothing from the caller.

ATTEMPTS = 3
"""How often the metadata is looked for, if what was newest is deleted while it is read."""


def _listed(services: Services, principal: str) -> list[Table]:
    """Return the published tables that a caller may read; those whose entry is damaged are not
    among them. One that was set to be published moments ago may have nothing to be loaded yet.
    """
    visible = visible_tables(services, principal)
    readable = (each.table for each in visible if each.is_whole and "read" in each.permission.verbs)
    return [table for table in readable if is_published(table.properties)]


def _readable(services: Services, principal: str, name: str) -> Table | None:
    """Return a table that a caller may read whole; None if there is none, or none for this caller.

    Raises:
        ForbiddenError: the caller may not read it, or not all of its columns.
        CorruptDataError: the entry of the table, or the access rules are damaged.
    """
    visible = find_table(services, principal, name, "read")
    if visible is not None and not visible.is_whole:
        raise errors.ForbiddenError(
            f"rules about table {name!r} hide columns from you, and its files hold all it ever had",
            hint="query it by a service of the instance",
        )
    return None if visible is None else visible.table


def find_view(services: Services, principal: str, name: str) -> tuple[Table, View]:
    """Return the view of a name, and the table that it is of.

    Raises:
        CatalogError: there is no such view.
        ForbiddenError: the caller may not read the table, or not all of its columns.
        CorruptDataError: the entry of the table is damaged.
    """
    table = _readable(services, principal, name)
    if table is None or not is_published(table.properties):
        raise rest.CatalogError(404, "NoSuchViewException", f"there is no view {rest.shown(name)}")
    view = view_of(table)
    if view is None:
        reason = why_no_view(table) or f"{rest.shown(name)} is a table, not a view"
        raise rest.CatalogError(404, "NoSuchViewException", reason)
    return table, view


def find_metadata(services: Services, principal: str, name: str) -> tuple[Table, str]:
    """Return a published table, and the path of the metadata that its readers find now.

    Raises:
        CatalogError: there is no such table, or nothing is published of it.
        ForbiddenError: the caller may not read it, or not all of its columns.
        CorruptDataError: its entry, or the record of what is published, is damaged.
    """
    table = _readable(services, principal, name) or _with_parts(services, principal, name)
    if table is None:
        raise _no_such_table(f"there is no table {rest.shown(name)}")
    if is_published(table.properties) and name != (parts := published_name(table)):
        hint = f"its stored rows, before its filters and aggregations, are the table {parts!r}"
        raise _no_such_table(f"{rest.shown(name)} is not a table, but a view or none", hint)
    if not is_published(table.properties):
        hint = f"`dormouse table set {table.name} iceberg=on` publishes it"
        raise _no_such_table(f"table {table.name!r} is not published", hint)
    record = services.publications.get(table.id)
    if record is None or not record.metadata:
        hint = (
            "it will be with its next change, or in some minutes; "
            f"`dormouse iceberg publish {table.name}` does it now"
        )
        raise _no_such_table(f"nothing is published of table {table.name!r} yet", hint)
    return table, record.metadata


def _with_parts(services: Services, principal: str, name: str) -> Table | None:
    """Return the table whose stored rows have a name."""
    own = name.removesuffix(PARTS)
    table = _readable(services, principal, own) if own != name else None
    is_such = table and is_published(table.properties) and published_name(table) == name
    return table if is_such else None


def load_metadata(
    services: Services, principal: str, name: str
) -> tuple[Table, str, Mapping[str, Any]]:
    """Return a published table, the URI of its metadata, and that. What was newest may be deleted,
    at the latest an hour later, before it is read: then there is newer metadata.
    Raises: as `find_metadata`, and
        CorruptDataError: the metadata is damaged or lost.
    """
    for _ in range(ATTEMPTS):
        table, path = find_metadata(services, principal, name)
        try:
            metadata = MetadataFile.read(path, services.storage.get).metadata
        except errors.NotFoundError:
            continue
        return table, f"{root_uri(services.storage)}/{path}", metadata
    raise errors.CorruptDataError(
        f"the metadata published of table {name!r} is lost",
        hint=LOST_PUBLICATION.replace("NAME", name),
    )


def _no_such_table(message: str, hint: str = "") -> rest.CatalogError:
    return rest.CatalogError(404, "NoSuchTableException", message, hint=hint)


READS = ("GET", "HEAD")
DELEGATION, VENDED = "x-iceberg-access-delegation", "vended-credentials"
"""The header by which clients ask for access in some ways, and the way that is offered."""


def serve_catalog(services: Services, request: HttpRequest) -> HttpResponse:
    """Answer a request; what is wrong with it, or with what it names, is answered as an error."""
    try:
        response = _answer(services, request)
    except rest.CatalogError as error:
        headers = {"allow": ", ".join(READS)} if error.status == 405 else {}
        response = error_response(error.status, error.kind, error.explanation, **headers)
    except errors.ForbiddenError as error:
        response = error_response(403, "ForbiddenException", error.explanation)
    except errors.UnavailableError as error:
        response = error_response(503, "ServiceUnavailableException", error.explanation)
    except errors.DormouseError as error:  # what is published is damaged, or the instance is
        response = error_response(500, "InternalServerError", error.explanation)
        response = replace(response, problem=error.explanation)
    return without_body(response) if request.method == "HEAD" else response


def _answer(services: Services, request: HttpRequest) -> HttpResponse:
    if request.method not in READS:
        raise rest.CatalogError(
            405,
            "UnsupportedOperationException",
            f"this catalog can only be read; {rest.shown(request.method)} is not supported",
            hint="tables are made and changed by Dormouse: `dormouse table`, `dormouse ingest`",
        )
    target = rest.parse_path(request.path)
    rest.check_namespace(target)
    match target.kind:
        case "config":
            return json_response(200, rest.config(request.query.get("warehouse", "")))
        case "namespaces":  # or those below a `parent`: of the one there is, none
            parent = request.query.get("parent", "")
            rest.check_namespace(rest.Target("namespaces", parent))
            return json_response(200, {"namespaces": [] if parent else [[rest.NAMESPACE]]})
        case "namespace" if request.method == "HEAD":
            return HttpResponse(204)
        case "namespace":
            return json_response(200, {"namespace": [rest.NAMESPACE], "properties": {}})
        case "tables":
            names = [published_name(each) for each in _listed(services, request.principal)]
            return json_response(200, rest.page(names, request.query))
        case "table":
            return _table(services, request, target)
        case "views":
            names = [each.name for each in _listed(services, request.principal) if view_of(each)]
            return json_response(200, rest.page(names, request.query))
        case "view":
            return _view(services, request, target)


def _table(services: Services, request: HttpRequest, target: rest.Target) -> HttpResponse:
    if request.method == "HEAD":
        find_metadata(services, request.principal, target.name)
        return HttpResponse(204)
    only_refs = request.query.get("snapshots") == "refs"
    etags = "" if _asks_for_credentials(request) else request.headers.get("if-none-match", "")
    if etags:
        tag = rest.entity_tag(find_metadata(services, request.principal, target.name)[1], only_refs)
        if rest.is_known(tag, etags):
            return HttpResponse(304, {"etag": tag, "cache-control": "no-store"})
    table, location, metadata = load_metadata(services, request.principal, target.name)
    result = rest.load_result(location, metadata, only_refs=only_refs)
    result |= _access(services, request, table.id)
    response = json_response(200, result, cache_control="no-store")
    if _asks_for_credentials(request):  # they end, so each load gets new ones
        return response
    tag = rest.entity_tag(location, only_refs)
    return replace(response, headers={**response.headers, "etag": tag})


def _asks_for_credentials(request: HttpRequest) -> bool:
    ways = request.headers.get(DELEGATION, "").split(",")
    return VENDED in {way.strip() for way in ways}


def _access(services: Services, request: HttpRequest, table_id: str) -> dict[str, Any]:
    """Return what the client needs to open objects, with credentials if it asks for them.

    These are given for each prefix as well: some clients use others only below the location of the
    table, and its shards are not there.
    """
    access = services.reader_access
    if access is None:
        return {"config": {}}
    loan = access.credentials(table_id) if _asks_for_credentials(request) else {}
    settings = {**access.settings(), **loan}
    if not loan:
        return {"config": settings}
    root = root_uri(services.storage)
    prefixes = (data_prefix(table_id), iceberg_prefix(table_id))
    each = [{"prefix": f"{root}/{prefix}", "config": settings} for prefix in prefixes]
    return {"config": settings, "storage-credentials": each}


def _view(services: Services, request: HttpRequest, target: rest.Target) -> HttpResponse:
    table, view = find_view(services, request.principal, target.name)
    if request.method == "HEAD":
        return HttpResponse(204)
    root = root_uri(services.storage)
    return json_response(200, view_result(table, view, root, rest.NAMESPACE, target.prefix))
