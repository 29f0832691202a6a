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
    manifests, next_row_id = list(step.manifests), chain.next_row_id
    added_rows = sum(shard.rows for shard in step.added)
    if place.format_version >= 3:
        manifests, next_row_id = with_row_ids(manifests, next_row_id)
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
        numbered = next_row_id - chain.next_row_id
        snapshot |= {"first-row-id": chain.next_row_id, "added-rows": numbered}
    following = Chain(step.id, sequence, next_row_id)
    return snapshot, (*step.manifests, Manifest({}, listed)), following


def with_row_ids(manifests: Sequence[Manifest], next_row_id: int) -> tuple[list[Manifest], int]:
    """Return manifests with the id of the first row of each, and the id after their rows. Those of
    rows that have none yet get as many as they have rows, as Iceberg's specification says: also
    those whose files keep the ids they have, so their ids may never be used.
    """
    numbered = []
    for manifest in manifests:
        record = manifest.record
        if record["content"] == entries.DATA and record.get("first_row_id") is None:
            manifest = replace(manifest, record={**record, "first_row_id": next_row_id})
            next_row_id += record["added_rows_count"] + record["existing_rows_count"]
        numbered.append(manifest)
    return numbered, next_row_id
