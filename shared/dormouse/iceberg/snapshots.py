"""Snapshots of a published table: what each one lists, how many rows that is, and its id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dormouse.iceberg.files import entries
from dormouse.iceberg.files.manifests import Manifest, Place, manifest_list
from dormouse.iceberg.metadata import VERSION
from dormouse.model.shards import Shard
from dormouse.tables.table import Table

EMPTIED, APPENDED = 2 * entries.VERSION_IDS, 4 * entries.VERSION_IDS
"""What is added to the id of a version's snapshot for those of its publication that come before:
the empty table after a reset, and what ingests added."""
_REBUILD = 2**40
"""What each rebuild of the state adds to the ids of snapshots: versions then begin again at 1."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The files and rows of a snapshot."""

    files: int = 0
    rows: int = 0
    size_bytes: int = 0
    delete_files: int = 0
    dead_rows: int = 0

    @property
    def live_rows(self) -> int:
        """The number of rows that readers see."""
        return self.rows - self.dead_rows

    def plus(self, shards: Sequence[Shard]) -> Totals:
        """Return the totals with shards added that have no dead rows."""
        return replace(
            self,
            files=self.files + len(shards),
            rows=self.rows + sum(shard.rows for shard in shards),
            size_bytes=self.size_bytes + sum(shard.size_bytes for shard in shards),
        )

    def summary(self) -> dict[str, str]:
        """Return them as the summary of a snapshot has them."""
        return {
            "total-data-files": str(self.files),
            "total-records": str(self.rows),
            "total-files-size": str(self.size_bytes),
            "total-delete-files": str(self.delete_files),
            "total-position-deletes": str(self.dead_rows),
            "total-equality-deletes": "0",
        }

    @staticmethod
    def of(snapshot: Mapping[str, Any]) -> Totals:
        """Return the totals in the summary of a snapshot."""
        summary = snapshot["summary"]
        names = ("data-files", "records", "files-size", "delete-files", "position-deletes")
        return Totals(*(int(summary[f"total-{name}"]) for name in names))


@dataclass(frozen=True, slots=True)
class Step:
    """A snapshot to make: what its manifests list, and of these the shards that are new in it."""

    id: int
    operation: str
    manifests: Sequence[Manifest]
    totals: Totals
    added: Sequence[Shard] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """Where the next snapshot is added: the id of the one before, its sequence number, and the
    number of the next row, for format 3.
    """

    parent: int | None = None
    sequence: int = 0
    next_row_id: int = 0


def snapshot_id(table: Table, version: int) -> int:
    """Return the id of the snapshot of a version."""
    rebuilds = table.logs.index(table.log) + 1 if table.log in table.logs else 0
    return version + rebuilds * _REBUILD


def make_snapshot(
    place: Place, chain: Chain, step: Step, *, version: int, time_ms: int, schema_id: int
) -> tuple[dict[str, Any], tuple[Manifest, ...], Chain]:
    """Return the snapshot of a step as metadata lists it, the objects of it that may have to be
    put, its list last, and where the one after it is added.
    """
    sequence = chain.sequence + 1
    manifests = list(step.manifests)
    added_rows = sum(shard.rows for shard in step.added)
    if place.format_version >= 3:
        manifests = [_with_row_ids(item, step.id, chain.next_row_id) for item in manifests]
    listed = manifest_list(place, step.id, chain.parent, sequence, manifests)
    summary = {"operation": step.operation, VERSION: str(version)}
    if step.added:
        size_bytes = sum(shard.size_bytes for shard in step.added)
        summary |= {
            "added-data-files": str(len(step.added)),
            "added-records": str(added_rows),
            "added-files-size": str(size_bytes),
        }
    snapshot: dict[str, Any] = {
        "snapshot-id": step.id,
        "sequence-number": sequence,
        "timestamp-ms": time_ms,
        "manifest-list": place.uri(listed.path),
        "summary": summary | step.totals.summary(),
        "schema-id": schema_id,
    }
    if chain.parent is not None:
        snapshot["parent-snapshot-id"] = chain.parent
    if place.format_version >= 3:
        snapshot |= {"first-row-id": chain.next_row_id, "added-rows": added_rows}
    following = Chain(step.id, sequence, chain.next_row_id + added_rows)
    return snapshot, (*step.manifests, Manifest({}, listed)), following


def _with_row_ids(manifest: Manifest, snapshot: int, first_row_id: int) -> Manifest:
    """Return the manifest with the number of its first row, if it is new in the snapshot."""
    if manifest.record["added_snapshot_id"] != snapshot:
        return manifest
    if manifest.record["content"] != entries.DATA:
        return manifest
    return replace(manifest, record={**manifest.record, "first_row_id": first_row_id})
