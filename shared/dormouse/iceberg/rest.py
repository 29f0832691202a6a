"""The protocol of Iceberg's REST catalogs: what a path asks for, and how it is answered.

Only what reads is served. Everything is in one namespace. Clients that name a warehouse get its
name as a prefix of all later paths: some engines need the name that a user gave the catalog to
resolve what views refer to, and so send it back.
"""

from __future__ import annotations

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
        """Set all of it."""
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
    """Return what a path names, below `BASE`.

    Raises:
        CatalogError: there is nothing of that path.
    """
    parts = [unquote(part) for part in path.split("/")[1:]]
    if parts[:2] == [BASE[1:], _VERSION]:
        if parts[2:] == ["config"]:
            return Target("config")
        for rest, prefix in ((parts[2:], ""), (parts[3:], "".join(parts[2:3]))):
            for kind, wanted in _PATHS.items():
                if _fits(rest, wanted):
                    return Target(kind, "".join(rest[1:2]), "".join(rest[3:4]), prefix)
    raise CatalogError(
        404,
        "NotFoundException",
        f"there is nothing at {shown(path)}",
        hint=f"the URI of the catalog ends with {BASE}, without /{_VERSION}",
    )


def _fits(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    return len(parts) == len(wanted) and all(
        part == word or (part and word.startswith("{"))
        for part, word in zip(parts, wanted, strict=True)
    )


def check_namespace(target: Target) -> None:
    """Check that what a path names is in the namespace that there is.

    Raises:
        CatalogError: it is not. A table of no namespace is no table: Spark looks for a table of the
            name ``dormouse.flights`` before it asks for the snapshots of ``flights``.
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


def page(names: Sequence[str], query: Mapping[str, str]) -> tuple[Sequence[str], str | None]:
    """Return the names that a client asked for, and the token of the next page if there is one.

    Clients that know pages send a token, at first an empty one; others get all names. A token is
    the name after which the page begins, so that names that come and go do not matter.

    Raises:
        CatalogError: the size of a page is no positive number.
    """
    ordered = sorted(names)
    if "pageToken" not in query and "pageSize" not in query:
        return ordered, None
    size = query.get("pageSize", str(MOST_NAMES))
    if not (size.isascii() and size.isdecimal() and int(size[:9])):
        raise CatalogError(400, "BadRequestException", f"pageSize is {shown(size)}, not a number")
    most = min(int(size[:9]), MOST_NAMES)
    left = [name for name in ordered if name > query.get("pageToken", "")]
    return left[:most], left[most - 1] if len(left) > most else None


def identifiers(names: Sequence[str], following: str | None) -> dict[str, Any]:
    """Return a list of tables or views, and the token of the next page, if there is one."""
    found: dict[str, Any] = {
        "identifiers": [{"namespace": [NAMESPACE], "name": name} for name in names]
    }
    return found if following is None else {**found, "next-page-token": following}


def load_result(location: str, metadata: Mapping[str, Any], *, only_refs: bool) -> dict[str, Any]:
    """Return a table as clients load it: its metadata, and where that is.

    With `only_refs`, only the snapshots are listed that have a branch or a tag. If the result would
    be too long to be returned, the oldest snapshots are left out, and what only they use.
    """
    kept = set_aside_unnamed(metadata) if only_refs else dict(metadata)
    while True:
        found = {"metadata-location": location, "metadata": kept}
        if sent_bytes(found) <= MOST_BYTES or len(kept["snapshots"]) <= 1:
            return found
        kept = with_newest(kept, len(kept["snapshots"]) // 2)


def entity_tag(location: str, only_refs: bool) -> str:
    """Return the ETag of what `load_result` returns: metadata never changes at its place."""
    name = location.rpartition("/")[2].removesuffix(METADATA_SUFFIX)
    return f'"{name}-{"refs" if only_refs else "all"}"'


def is_known(tag: str, known: str) -> bool:
    """Return whether a header If-None-Match names an ETag (RFC 9110, 13.1.2)."""
    return known.strip() == "*" or tag in {
        each.strip().removeprefix("W/") for each in known.split(",")
    }


def sent_bytes(content: object) -> int:
    """Return how long a body is as a function returns it: JSON in a string of JSON."""
    return len(json.dumps(json.dumps(content, separators=(",", ":"), ensure_ascii=False)))


def set_aside_unnamed(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata without the snapshots that have no branch and no tag."""
    named = {ref["snapshot-id"] for ref in metadata["refs"].values()}
    return {
        **metadata,
        "snapshots": [s for s in metadata["snapshots"] if s["snapshot-id"] in named],
    }


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
