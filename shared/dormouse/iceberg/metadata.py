"""The metadata.json of a published table, and which of its snapshots it goes on to list."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from typing import Any

from dormouse.errors import CorruptDataError
from dormouse.iceberg import avro
from dormouse.iceberg.avro import VERSION_IDS
from dormouse.iceberg.manifests import (
    ListedFile,
    NewObject,
    Place,
    RowLineage,
    content_digest,
    content_name,
    manifest_list,
)
from dormouse.schema.iceberg import iceberg_schema
from dormouse.schema.schema import ROW_IDS_END, Schema
from dormouse.schema.types import UUID_BYTES, show_uuid
from dormouse.state.partitions import Shard
from dormouse.stored.paths import METADATA_SUFFIX, iceberg_prefix, shard_id_of
from dormouse.tables.table import Table

VERSION = "dormouse.version"
"""The entry of a snapshot's summary that says which version of the table it is."""
WHOLE_PUBLICATIONS = 32
"""How many of the last publications are listed with all their snapshots, for readers of changes.
Readers read the whole metadata for each query, so it must stay small."""
OLDER_SNAPSHOTS = 32
"""About how many versions before those are listed, evenly in time."""
_VECTORIZED = "read.parquet.vectorization.enabled"


def is_same(content: bytes, earlier: Mapping[str, Any]) -> bool:
    """Return whether composed metadata and `earlier` mean the same to readers."""
    counters = ("last-sequence-number", "last-updated-ms")
    other = json.loads(content)
    return {**other, **dict.fromkeys(counters)} == {**earlier, **dict.fromkeys(counters)}


def listed_schema(
    schema: Schema, earlier: Mapping[str, Any] | None, sequence: int
) -> dict[str, Any]:
    """Return a schema as metadata lists it: under its id in the metadata `earlier`, if it has one.

    A new one gets the publication's sequence number as its id, so no id ever means another schema,
    not even one that is no longer listed: readers may have kept that, and manifests have it.
    """
    present = iceberg_schema(schema)
    schemas: Sequence[dict[str, Any]] = earlier["schemas"] if earlier else ()
    for item in schemas:
        if {**present, "schema-id": item["schema-id"]} == item:
            return item
    return {"schema-id": sequence, **present}


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
    schemas = [*(earlier["schemas"] if earlier else ()), place.listed_schema]
    by_id = {item["schema-id"]: item for item in schemas}
    schema_ids = {present, *(snapshot["schema-id"] for snapshot in snapshots)}
    current = snapshots[-1]["snapshot-id"]
    body: dict[str, Any] = {
        "format-version": place.format_version,
        "table-uuid": uuid_of(place.table_id),
        "location": place.uri(iceberg_prefix(place.table_id).rstrip("/")),
        "last-sequence-number": sequence,
        "last-updated-ms": time_ms,
        "last-column-id": place.schema.next_field_id - 1,
        "current-schema-id": present,
        "schemas": [by_id[number] for number in sorted(schema_ids)],
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
        least = 0 if earlier is None else earlier.get("next-row-id", 0)
        following = ROW_IDS_END if place.keeps_row_ids else next_row_id(body)
        body["next-row-id"] = max(least, following)
    content = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    return NewObject(place.metadata_path(f"{content_digest(content)}{METADATA_SUFFIX}"), content)


def next_row_id(metadata: Mapping[str, Any]) -> int:
    """Return the first id of a row that no snapshot has used, but for those that shards have."""
    listed = metadata.get("snapshots", ())
    return max((s.get("first-row-id", 0) + s.get("added-rows", 0) for s in listed), default=0)


def retained(
    snapshots: Sequence[Mapping[str, Any]], now_ms: int, keep_ms: int
) -> list[Mapping[str, Any]]:
    """Return the earlier snapshots to list beside a new publication, of those listed so far.

    A snapshot is listed for `keep_ms` after the next publication: shards that only it names are
    kept that long. Of the older ones of these, one in each part of that time is listed.
    """
    publications = [list(group) for _, group in groupby(snapshots, _state_of)]
    recent: list[Mapping[str, Any]] = []
    for number, publication in enumerate(publications, start=1):
        following = publications[number : number + 1]
        if any(each[-1]["timestamp-ms"] + keep_ms <= now_ms for each in following):
            continue
        if number > len(publications) - WHOLE_PUBLICATIONS:
            recent += publication
        elif recent and _part(recent[-1], keep_ms) == _part(publication[-1], keep_ms):
            recent[-1] = publication[-1]
        else:
            recent.append(publication[-1])
    return recent


def _part(snapshot: Mapping[str, Any], keep_ms: int) -> int:
    return int(snapshot["timestamp-ms"]) // max(1, keep_ms // OLDER_SNAPSHOTS)


def _state_of(snapshot: Mapping[str, Any]) -> int:
    """Return the same for all snapshots of a publication, and of no other one."""
    return int(snapshot["snapshot-id"]) % VERSION_IDS


def _refs(snapshots: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the branch of readers who ask for no version, and a tag for each version."""
    last = {item["summary"][VERSION]: item["snapshot-id"] for item in snapshots}
    tags = {f"v{version}": {"snapshot-id": i, "type": "tag"} for version, i in last.items()}
    return {"main": {"snapshot-id": snapshots[-1]["snapshot-id"], "type": "branch"}, **tags}


def uuid_of(text: str) -> str:
    """Return a UUID that follows from a text."""
    return show_uuid(blake2b(text.encode(), digest_size=UUID_BYTES).digest())


# What is published of a table, read back: the next publication begins there.

AGAIN = "`dormouse iceberg publish NAME --all` publishes the table again, from its state"
_LIST = "-snap-"
Fetch = Callable[[str], bytes]
"""Gets an object by its path in the data root."""


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """The metadata of a publication, at `path` in the data root; `fetch` gets what it names.

    What reads objects raises CorruptDataError: one is not what Dormouse put there. It raises what
    `fetch` does, too.
    """

    path: str
    metadata: Mapping[str, Any]
    fetch: Fetch

    @staticmethod
    def read(path: str, fetch: Fetch) -> "MetadataFile":
        """Read metadata."""
        fetch = intact(fetch)
        return MetadataFile(path, parse_metadata(fetch(path)), fetch)

    @property
    def root(self) -> str:
        """The URI that the data root had when the metadata was put there."""
        return str(self.metadata["location"]).removesuffix(f"/{self._table_id}/iceberg")

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        """The snapshots that it lists, the oldest first."""
        return list(self.metadata["snapshots"])

    @property
    def current(self) -> Mapping[str, Any]:
        """The snapshot of the published version, which readers see who ask for none."""
        return current_snapshot(self.metadata)

    @property
    def versions(self) -> tuple[int, ...]:
        """The versions of the table that can be asked for, the newest last."""
        return tuple(dict.fromkeys(int(each["summary"][VERSION]) for each in self.snapshots))

    def list_path(self, snapshot: Mapping[str, Any]) -> str:
        """Return the path of the manifest list of a snapshot."""
        return self.relative(snapshot["manifest-list"])

    def manifests_in(self, list_path: str) -> list[dict[str, Any]]:
        """Return the records of the manifests in a list."""
        return avro.read_container(self.fetch(list_path))[1]

    def entries(self, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the entries of a manifest, given its record."""
        return avro.read_container(self.fetch(self.relative(manifest["manifest_path"])))[1]

    def files(self, manifest: Mapping[str, Any]) -> list[str]:
        """Return the paths that a manifest lists: shards, or files of dead rows."""
        return [self.relative(each["data_file"]["file_path"]) for each in self.entries(manifest)]

    def relative(self, uri: str) -> str:
        """Return the path in the data root of a URI that is published, which is of the table."""
        if not uri.startswith(f"{self.root}/{self._table_id}/"):
            raise CorruptDataError(
                f"what is published of table {self._table_id} at {self.root!r} names {uri!r}, "
                "which is of another table, or elsewhere",
                hint=AGAIN,
            )
        return uri.removeprefix(f"{self.root}/")

    @property
    def _table_id(self) -> str:
        return self.path.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Previous(MetadataFile):
    """A publication that another one follows: `manifests` are those of its current snapshot, in
    order, and `deletes` the files that say which rows are dead.
    """

    manifests: Sequence[Mapping[str, Any]]
    deletes: Sequence[Mapping[str, Any]]

    @property
    def data_manifests(self) -> list[Mapping[str, Any]]:
        """The records of the manifests of shards."""
        return [record for record in self.manifests if record["content"] == avro.DATA]

    def lineage(self, paths: Collection[str]) -> dict[str, RowLineage]:
        """Return the lineage of all shards, by id, but for those in the manifests with a
        `content_name` in `paths`, which are not read.
        """
        return {
            shard: RowLineage(item["data_file"]["first_row_id"], item["sequence_number"])
            for record in self.data_manifests
            if content_name(record["manifest_path"]) not in paths
            for item in self.entries(record)
            if (shard := shard_id_of(item["data_file"]["file_path"]))
        }


def read_previous(path: str, fetch: Fetch) -> Previous:
    """Read the metadata of a publication, the manifests of its version, and what is dead in it.
    Raises as `MetadataFile`.
    """
    file = MetadataFile.read(path, fetch)
    manifests = file.manifests_in(file.list_path(file.current))
    dead = [each for each in manifests if each["content"] == avro.DELETES]
    deletes = [entry["data_file"] for manifest in dead for entry in file.entries(manifest)]
    for each in deletes:
        file.relative(each["file_path"])  # raises if it is of another table
    return Previous(path, file.metadata, file.fetch, manifests, deletes)


def intact(fetch: Fetch) -> Fetch:
    """Return what fetches objects and checks metadata and manifest lists: their names end with a
    digest of what they hold.
    """

    def checked(path: str) -> bytes:
        content, name = fetch(path), path.rpartition("/")[2]
        has_digest = name.endswith(METADATA_SUFFIX) or _LIST in name
        if has_digest and content_digest(content) != name.partition(".")[0].rpartition("-")[2]:
            raise CorruptDataError(f"{path} is not what was published there", hint=AGAIN)
        return content

    return checked


def parse_metadata(content: bytes) -> dict[str, Any]:
    """Return the metadata of a published table. Raises CorruptDataError: it is none."""
    try:
        metadata = json.loads(content)
        metadata["snapshots"], current_snapshot(metadata)
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise CorruptDataError(
            "the metadata published for readers of Iceberg is damaged", hint=AGAIN
        ) from error
    return dict(metadata)


def current_snapshot(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the snapshot that readers see who ask for none."""
    current = metadata["current-snapshot-id"]
    return next(item for item in metadata["snapshots"] if item["snapshot-id"] == current)


# Snapshots of a published table: what each one lists, how many rows that is, and its id.

EMPTIED, APPENDED = 2 * avro.VERSION_IDS, 4 * avro.VERSION_IDS
"""What is added to the id of a version's snapshot for those of its publication that come before:
the empty table after a reset, and what ingests added."""
_REBUILD = 2**40
"""What each rebuild of the state adds to the ids of snapshots: a clock may go back."""


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

    def plus(self, shards: Sequence[Shard]) -> "Totals":
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
    def of(snapshot: Mapping[str, Any]) -> "Totals":
        """Return the totals in the summary of a snapshot."""
        summary = snapshot["summary"]
        names = ("data-files", "records", "files-size", "delete-files", "position-deletes")
        return Totals(*(int(summary[f"total-{name}"]) for name in names))


@dataclass(frozen=True, slots=True)
class PublicationStep:
    """A snapshot to make: what its manifests list, and of these the shards that are new in it."""

    id: int
    operation: str
    manifests: Sequence[ListedFile]
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
    place: Place, chain: Chain, step: PublicationStep, *, version: int, time_ms: int, schema_id: int
) -> tuple[dict[str, Any], tuple[ListedFile, ...], Chain]:
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
        count = next_row_id - chain.next_row_id
        snapshot |= {"first-row-id": chain.next_row_id, "added-rows": count}
    following = Chain(step.id, sequence, next_row_id)
    return snapshot, (*step.manifests, ListedFile({}, listed)), following


def with_row_ids(manifests: Sequence[ListedFile], next_row_id: int) -> tuple[list[ListedFile], int]:
    """Return manifests with the id of the first row of each, and the id after their rows. Those of
    rows that have none yet get as many as they have rows, as Iceberg's specification says: also
    those whose files keep the ids they have, so their ids may never be used.
    """
    numbered = []
    for manifest in manifests:
        record = manifest.record
        if record["content"] == avro.DATA and record.get("first_row_id") is None:
            manifest = replace(manifest, record={**record, "first_row_id": next_row_id})
            next_row_id += record["added_rows_count"] + record["existing_rows_count"]
        numbered.append(manifest)
    return numbered, next_row_id
