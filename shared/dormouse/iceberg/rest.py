"""The protocol of Iceberg's REST catalogs: what a path asks for, and how it is answered.

Only what reads is served. Everything is in one namespace. Clients that name a warehouse get its
name as a prefix of all later paths: some engines need the name that a user gave the catalog to
resolve what views refer to, and so send it back.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from dormouse.errors import DormouseError
from dormouse.stored.paths import METADATA_SUFFIX

BASE = "/iceberg"
"""The path below which the catalog answers; an engine's URI of the catalog ends with it."""
NAMESPACE = "dormouse"
"""The only namespace."""
MOST_BYTES = 5_500_000
"""The longest body, as a string in JSON: a function on AWS can return six megabytes."""
MOST_NAMES = 1000
"""How many names a page has at most, for clients that ask for pages."""
_VERSION = "v1"
_LEVELS = "\x1f"
"""Separates the parts of a namespace in a path."""
_PREFIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", re.ASCII)
_SHOWN = 120
"""How much of a name is repeated in an error."""

Kind = Literal["config", "namespaces", "namespace", "tables", "table", "views", "view"]
_PATHS: Mapping[Kind, Sequence[str]] = {
    "namespaces": ("namespaces",),
    "namespace": ("namespaces", "{namespace}"),
    "tables": ("namespaces", "{namespace}", "tables"),
    "table": ("namespaces", "{namespace}", "tables", "{table}"),
    "views": ("namespaces", "{namespace}", "views"),
    "view": ("namespaces", "{namespace}", "views", "{view}"),
}
_WITH_HEAD: Collection[Kind] = ("namespace", "table", "view")


class CatalogError(DormouseError):
    """A request that is answered by an error: its status, and its type as clients know it."""

    def __init__(self, status: int, kind: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status, self.kind = status, kind


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: one of `Kind`, of a namespace, by a name. `prefix` is the client's name of
    the catalog, if it was given one.
    """

    kind: Kind
    namespace: str = ""
    name: str = ""
    prefix: str = ""


def parse_path(path: str) -> Target:
    """Return what a path names, below `BASE`. Raises CatalogError: there is nothing there."""
    parts = [unquote(part) for part in path.split("/")[1:]]
    if parts[:2] == [BASE[1:], _VERSION]:
        if parts[2:] == ["config"]:
            return Target("config")
        for rest, prefix in ((parts[2:], ""), (parts[3:], "".join(parts[2:3]))):
            for kind, pattern in _PATHS.items():
                if _fits(rest, pattern):
                    return Target(kind, "".join(rest[1:2]), "".join(rest[3:4]), prefix)
    raise CatalogError(
        404,
        "NotFoundException",
        f"there is nothing at {shown(path)}",
        hint=f"the URI of the catalog ends with {BASE}, without /{_VERSION}",
    )


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    return len(parts) == len(pattern) and all(
        part == word or (part and word.startswith("{"))
        for part, word in zip(parts, pattern, strict=True)
    )


def check_namespace(target: Target) -> None:
    """Check that what a path names is in the namespace that there is.
    Raises CatalogError: it is not. A table of no namespace is no table: Spark looks for a table of
    the name ``dormouse.flights`` before it asks for the snapshots of ``flights``.
    """
    if target.namespace in ("", NAMESPACE):
        return
    name = shown(".".join(target.namespace.split(_LEVELS)))
    kinds = {"table": "NoSuchTableException", "view": "NoSuchViewException"}
    raise CatalogError(
        404,
        kinds.get(target.kind, "NoSuchNamespaceException"),
        f"there is no namespace {name}",
        hint=f"the only namespace is {NAMESPACE}",
    )


def shown(text: str) -> str:
    """Return text of a client as an error repeats it."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def config(warehouse: str) -> dict[str, Any]:
    """Return what clients are to know first: what can be asked, and the prefix of paths.

    A `warehouse` that cannot be one part of a path, such as a URI, becomes no prefix.
    """
    endpoints = ["GET /v1/config"]
    for kind, path in _PATHS.items():
        methods = ("GET", "HEAD") if kind in _WITH_HEAD else ("GET",)
        endpoints += [f"{method} /v1/{{prefix}}/{'/'.join(path)}" for method in methods]
    can_be_prefix = _PREFIX.fullmatch(warehouse) and warehouse not in ("namespaces", "config")
    overrides = {"prefix": warehouse} if can_be_prefix else {}
    return {"defaults": {}, "overrides": overrides, "endpoints": endpoints}


def page(names: Sequence[str], query: Mapping[str, str]) -> dict[str, Any]:
    """Return the list of the tables or views that a client asked for, and the token of the next
    page, if there is one.

    Clients that know pages send a token, at first an empty one; others get all names. A token is
    the name after which the page begins, so that names that come and go do not matter.
    Raises CatalogError: the size of a page is no positive number.
    """
    listed, rest = sorted(names), []
    if "pageToken" in query or "pageSize" in query:
        size = query.get("pageSize", str(MOST_NAMES))
        if not (size.isascii() and size.isdecimal() and int(size[:9])):
            message = f"pageSize is {shown(size)}, not a number"
            raise CatalogError(400, "BadRequestException", message)
        most = min(int(size[:9]), MOST_NAMES)
        listed = [name for name in listed if name > query.get("pageToken", "")]
        listed, rest = listed[:most], listed[most:]
    identifiers = [{"namespace": [NAMESPACE], "name": name} for name in listed]
    return {"identifiers": identifiers} | ({"next-page-token": listed[-1]} if rest else {})


def load_result(location: str, metadata: Mapping[str, Any], *, only_refs: bool) -> dict[str, Any]:
    """Return a table as clients load it: its metadata, and where that is.

    With `only_refs`, only the snapshots are listed that have a branch or a tag. If the result would
    be too long to be returned, the oldest snapshots are left out, and what only they use.
    """
    content = dict(metadata)
    if only_refs:
        ids = {ref["snapshot-id"] for ref in metadata["refs"].values()}
        content["snapshots"] = [s for s in metadata["snapshots"] if s["snapshot-id"] in ids]
    while True:
        result = {"metadata-location": location, "metadata": content}
        if sent_bytes(result) <= MOST_BYTES or len(content["snapshots"]) <= 1:
            return result
        content = with_newest(content, len(content["snapshots"]) // 2)


def entity_tag(location: str, only_refs: bool) -> str:
    """Return the ETag of what `load_result` returns: metadata never changes at its place."""
    name = location.rpartition("/")[2].removesuffix(METADATA_SUFFIX)
    return f'"{name}-{"refs" if only_refs else "all"}"'


def is_known(tag: str, etag: str) -> bool:
    """Return whether a header If-None-Match names an ETag (RFC 9110, 13.1.2)."""
    return etag.strip() == "*" or tag in {
        each.strip().removeprefix("W/") for each in etag.split(",")
    }


def sent_bytes(content: object) -> int:
    """Return how long a body is as a function returns it: JSON in a string of JSON."""
    return len(json.dumps(json.dumps(content, separators=(",", ":"), ensure_ascii=False)))


def with_newest(metadata: Mapping[str, Any], count: int) -> dict[str, Any]:
    """Return metadata with only so many snapshots, the newest, which are listed last."""
    snapshots = metadata["snapshots"][-count:]
    ids = {snapshot["snapshot-id"] for snapshot in snapshots}
    schemas = {metadata["current-schema-id"], *(each["schema-id"] for each in snapshots)}
    return {
        **metadata,
        "snapshots": snapshots,
        "schemas": [each for each in metadata["schemas"] if each["schema-id"] in schemas],
        "refs": {k: ref for k, ref in metadata["refs"].items() if ref["snapshot-id"] in ids},
        "snapshot-log": [e for e in metadata["snapshot-log"] if e["snapshot-id"] in ids],
    }
