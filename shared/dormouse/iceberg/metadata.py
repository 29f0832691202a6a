"""The metadata.json of a published table, and which of its snapshots it goes on to list."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from dormouse.iceberg.files.entries import VERSION_IDS
from dormouse.iceberg.files.manifests import NewObject, Place, content_digest
from dormouse.iceberg.types import iceberg_schema
from dormouse.schema.schema import Schema
from dormouse.stored.paths import METADATA_SUFFIX, iceberg_prefix

VERSION = "dormouse.version"
"""The entry of a snapshot's summary that says which version of the table it is."""
WHOLE_PUBLICATIONS = 32
"""How many of the last publications are listed with all their snapshots, for readers of changes.
Readers read the whole metadata for each query, so it must stay small."""
OLDER_SNAPSHOTS = 32
"""About how many versions before those are listed, evenly in time."""
_VECTORIZED = "read.parquet.vectorization.enabled"


def is_same(content: bytes, earlier: Mapping[str, Any]) -> bool:
    """Return whether composed metadata tells readers nothing but what `earlier` tells them."""
    counted = ("last-sequence-number", "last-updated-ms")
    found = json.loads(content)
    return {**found, **dict.fromkeys(counted)} == {**earlier, **dict.fromkeys(counted)}


def listed_schema(
    schema: Schema, earlier: Mapping[str, Any] | None, sequence: int
) -> dict[str, Any]:
    """Return a schema as metadata lists it: under its id in the metadata `earlier`, if it has one.

    A new one gets the publication's sequence number as its id, so no id ever means another schema,
    not even one that is no longer listed: readers may have kept that, and manifests have it.
    """
    present = iceberg_schema(schema)
    for item in _schemas(earlier):
        if {**present, "schema-id": item["schema-id"]} == item:
            return item
    return {"schema-id": sequence, **present}


def _schemas(metadata: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    return [] if metadata is None else metadata["schemas"]


def compose(
    place: Place,
    earlier: Mapping[str, Any] | None,
    snapshots: Sequence[Mapping[str, Any]],
    *,
    sequence: int,
    time_ms: int,
    is_quick: bool,
) -> NewObject:
    """Return the metadata of a table after the metadata `earlier`.

    `snapshots` are all that are listed, the last one current; their schemas are listed, and the
    present one. `sequence` is the last sequence number that the table used. `is_quick` says that
    some shards are encoded as old releases of Spark read them only row by row.
    """
    present = place.listed_schema["schema-id"]
    by_id = {item["schema-id"]: item for item in (*_schemas(earlier), place.listed_schema)}
    used = {present, *(snapshot["schema-id"] for snapshot in snapshots)}
    current = snapshots[-1]["snapshot-id"]
    body: dict[str, Any] = {
        "format-version": place.format_version,
        "table-uuid": uuid_of(place.table_id),
        "location": place.uri(iceberg_prefix(place.table_id).rstrip("/")),
        "last-sequence-number": sequence,
        "last-updated-ms": time_ms,
        "last-column-id": place.schema.next_field_id - 1,
        "current-schema-id": present,
        "schemas": [by_id[number] for number in sorted(used)],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"gc.enabled": "false"} | ({_VECTORIZED: "false"} if is_quick else {}),
        "current-snapshot-id": current,
        "refs": _refs(snapshots),
        "snapshots": list(snapshots),
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [
            {"timestamp-ms": s["timestamp-ms"], "snapshot-id": s["snapshot-id"]} for s in snapshots
        ],
        "metadata-log": [],
    }
    if place.format_version >= 3:
        body["next-row-id"] = max(s["first-row-id"] + s["added-rows"] for s in snapshots)
    content = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    return NewObject(place.metadata_path(f"{content_digest(content)}{METADATA_SUFFIX}"), content)


def retained(
    snapshots: Sequence[Mapping[str, Any]], now_ms: int, keep_ms: int
) -> list[Mapping[str, Any]]:
    """Return the earlier snapshots to list beside a new publication, of those listed so far.

    A snapshot is listed for `keep_ms` after the next publication: shards that only it names are
    kept that long. Of the older ones of these, one in each part of that time is listed.
    """
    publications: list[list[Mapping[str, Any]]] = []
    for snapshot in snapshots:
        if publications and _state_of(publications[-1][-1]) == _state_of(snapshot):
            publications[-1].append(snapshot)
        else:
            publications.append([snapshot])
    kept: list[Mapping[str, Any]] = []
    for i, publication in enumerate(publications):
        is_last = i == len(publications) - 1
        if not is_last and publications[i + 1][-1]["timestamp-ms"] + keep_ms <= now_ms:
            continue
        if i >= len(publications) - WHOLE_PUBLICATIONS:
            kept += publication
        elif kept and _part(kept[-1], keep_ms) == _part(publication[-1], keep_ms):
            kept[-1] = publication[-1]
        else:
            kept.append(publication[-1])
    return kept


def _part(snapshot: Mapping[str, Any], keep_ms: int) -> int:
    return int(snapshot["timestamp-ms"]) // max(1, keep_ms // OLDER_SNAPSHOTS)


def _version(snapshot: Mapping[str, Any]) -> str:
    return str(snapshot["summary"][VERSION])


def _state_of(snapshot: Mapping[str, Any]) -> int:
    """Return the same for all snapshots of a publication: versions come again after a rebuild."""
    return int(snapshot["snapshot-id"]) % VERSION_IDS


def _refs(snapshots: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the branch of readers who ask for no version, and a tag for each version."""
    last = {_version(item): item["snapshot-id"] for item in snapshots}
    tags = {f"v{version}": {"snapshot-id": i, "type": "tag"} for version, i in last.items()}
    return {"main": {"snapshot-id": snapshots[-1]["snapshot-id"], "type": "branch"}, **tags}


def uuid_of(text: str) -> str:
    """Return a UUID that follows from a text."""
    digits = blake2b(text.encode(), digest_size=16).hexdigest()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
