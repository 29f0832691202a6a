"""Manifests: the lists of a table's shards and of the files that say which of their rows are dead.

A manifest is named by what is in it, after the sequence number of its publication. So what the
publication before has need not be written again, and no name is ever used again for an object that
may be about to be collected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import chain, islice, repeat
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.iceberg import avro
from dormouse.iceberg.avro import FILE_PATH_ID, POSITION_ID, RowRange
from dormouse.iceberg.liveness import LiveShard
from dormouse.schema.iceberg import key_bounds
from dormouse.schema.schema import Schema
from dormouse.state.partitions import Shard
from dormouse.stored.paths import iceberg_deletes_path, iceberg_metadata_path, shard_path

# Position deletes of Iceberg's format 2: a Parquet file that lists the dead rows of a shard.

LIBRARY = f"pyarrow {pa.__version__}"
"""What decides about the bytes beside the rows. Names made from rows contain it."""
_ROWS_AT_ONCE = 1_000_000
_FIELD_ID = b"PARQUET:field_id"
_COLUMNS: list[pa.Field[Any]] = [
    pa.field("file_path", pa.string(), False, {_FIELD_ID: str(FILE_PATH_ID).encode()}),
    pa.field("pos", pa.int64(), False, {_FIELD_ID: str(POSITION_ID).encode()}),
]
_SCHEMA = pa.schema(_COLUMNS)
_LAYOUT: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["file_path"],
    "column_encoding": {"pos": "DELTA_BINARY_PACKED"},
    "store_schema": False,
}


def position_deletes(uri: str, rows: Sequence[RowRange]) -> bytes:
    """Return a Parquet file with the dead rows of the data file at `uri`, in order.

    A million positions take 20 KB if each is one more than the one before. Few row groups have
    them, even if each range is of one row: a reader reads the footer first.
    """
    positions = chain.from_iterable(range(start, end) for start, end in rows)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, _SCHEMA, **_LAYOUT) as writer:
        while numbers := pa.array(islice(positions, _ROWS_AT_ONCE), pa.int64()):
            paths = pa.repeat(uri, len(numbers))
            writer.write_batch(pa.record_batch([paths, numbers], schema=_SCHEMA))
    return sink.getvalue().to_pybytes()


_DIGEST_BYTES = 16


def content_digest(content: bytes) -> str:
    """Return what the names of metadata and of manifest lists end with."""
    return blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def content_name(uri: str) -> str:
    """Return the part of an object's name that follows from its content. Of a manifest of format 3,
    the numbers of its files follow it: they follow from which publication had these files first.
    """
    name, dot, ending = uri.rpartition("/")[2].partition("-")[2].partition(".")
    return "-".join(name.split("-")[:2]) + dot + ending


@dataclass(frozen=True, slots=True)
class NewObject:
    """An object to put. Its name follows from its content, so one that is there is the same."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A manifest, or a file that says which rows of a shard are dead: its record in what lists it,
    and the object, unless that was put before.
    """

    record: Mapping[str, Any]
    object: NewObject | None = None


@dataclass(frozen=True, slots=True)
class RowLineage:
    """Where the rows of a shard have their numbers from in format 3, for as long as it is listed:
    the id of its first row, and the sequence number of the snapshot that had it first.
    """

    first_row_id: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a table is published, and in which form: its id, the URI of the data root, its schema,
    and the version of Iceberg's format.

    `sequence` is the number of the publication, with which all names begin, and `first_sequence`
    the first sequence number of its snapshots. `listed_schema` is the schema as the metadata lists
    it, with its id. If shards have the ids of their rows (`keeps_row_ids`), they have the sequence
    numbers of their commits, which compactions write beside the ids.
    """

    table_id: str
    root: str
    schema: Schema
    format_version: int
    sequence: int
    first_sequence: int
    listed_schema: Mapping[str, Any]
    keeps_row_ids: bool = False

    def metadata_path(self, name: str) -> str:
        """Return the path of an object of the publication."""
        return iceberg_metadata_path(self.table_id, f"{self.sequence:05d}-{name}")

    def uri(self, path: str) -> str:
        """Return the URI of an object of the data root."""
        return f"{self.root}/{path}"

    def shard_uri(self, shard: Shard) -> str:
        """Return the URI of a shard."""
        return self.uri(shard_path(self.table_id, shard.id))

    def own_sequence(self, shard: Shard) -> int:
        """Return the sequence number that a shard has of its commit; 0 if it has none."""
        return shard.published_sequence if self.keeps_row_ids else 0

    @property
    def schema_text(self) -> str:
        """Return the schema as manifests have it: some readers refuse a table whose metadata lists
        another one with the same id.
        """
        return json.dumps(self.listed_schema)

    def digest(self, *parts: str) -> str:
        """Return a name for what is made of `parts`, of this place and by these libraries."""
        libraries = avro.LIBRARY, LIBRARY
        context = self.table_id, self.root, str(self.format_version), *libraries
        return content_digest(json.dumps([*context, *parts]).encode())


def data_manifest(
    place: Place,
    shards: Sequence[Shard],
    records: Mapping[str, Mapping[str, Any]],
    added_in: tuple[int, int] | None = None,
    lineage: Mapping[str, RowLineage] | None = None,
) -> ListedFile:
    """Return the manifest of some shards; `records` has the records of earlier manifests by
    `content_name`.

    `added_in` has id and sequence number of the snapshot in which the shards are new, if they are.
    Format 3 needs their `lineage`, by shard id.
    """
    name = data_name(place, shards, added_in)
    if name in records:
        return ListedFile(records[name])
    files = [_data_file(place, shard) for shard in shards]
    if lineage is None:
        return _manifest(place, name, avro.DATA, files, added_in)
    lineages = [lineage[shard.id] for shard in shards]
    if added_in is None:
        ids = (each.first_row_id for each in lineages)
        files = [{**file, "first_row_id": id} for file, id in zip(files, ids, strict=True)]
    sequences = [each.sequence for each in lineages]
    return _manifest(place, name, avro.DATA, files, added_in, sequences)


def data_name(
    place: Place, shards: Sequence[Shard], added_in: tuple[int, int] | None = None
) -> str:
    """Return the `content_name` of the manifest of some shards."""
    kind = "data" if added_in is None else "news"
    ids = (f"{shard.id} {place.own_sequence(shard) or ''}".rstrip() for shard in shards)
    return f"{kind}-{place.digest(kind, place.schema_text, *ids, str(added_in))}.avro"


def delete_manifest(
    place: Place,
    deletes: Sequence[ListedFile],
    records: Mapping[str, Mapping[str, Any]],
    sequence: int = avro.FOLDED_SEQUENCE,
) -> ListedFile:
    """Return the manifest of all files that say which rows are dead. These are dead in files with
    the same sequence number, or an earlier one.
    """
    files = [delete.record for delete in deletes]
    paths = (str(file["file_path"]) for file in files)
    name = f"deletes-{place.digest('deletes', place.schema_text, *paths)}.avro"
    if name in records:
        return ListedFile(records[name])
    return _manifest(place, name, avro.DELETES, files, sequences=[sequence] * len(files))


def delete_name(place: Place, live: LiveShard) -> str:
    """Return the `content_name` of the file with the dead rows of a shard."""
    ends = [[gap.low.hex(), None if gap.high is None else gap.high.hex()] for gap in live.dead]
    ends += [[each.id, str(each.number)] for each in live.deletions]
    ends += [[rival, ""] for rival in live.rivals]
    ending = "parquet" if place.format_version == 2 else "puffin"
    return f"{place.digest('dead', live.shard.id, json.dumps(ends))}.{ending}"


def delete_file(place: Place, live: LiveShard, rows: Sequence[RowRange]) -> ListedFile:
    """Return the file that says that these rows of a shard are dead."""
    name, target = f"{place.sequence:05d}-{delete_name(place, live)}", place.shard_uri(live.shard)
    path = iceberg_deletes_path(place.table_id, name)
    count = avro.count_rows(rows)
    bound = [{"key": avro.FILE_PATH_ID, "value": target.encode()}]
    described = {
        "content": avro.DELETES,
        "file_path": place.uri(path),
        "partition": {},
        "record_count": count,
        "referenced_data_file": target,
    }
    if place.format_version == 2:
        content = position_deletes(target, rows)
        described |= {"file_format": "PARQUET", "lower_bounds": bound, "upper_bounds": bound}
    else:
        vector = avro.vector(rows)
        content = avro.puffin(target, vector, count)
        described |= {
            "file_format": "PUFFIN",
            "content_offset": avro.VECTOR_OFFSET,
            "content_size_in_bytes": len(vector),
        }
    described["file_size_in_bytes"] = len(content)
    return ListedFile(described, NewObject(path, content))


def manifest_list(
    place: Place,
    snapshot_id: int,
    parent: int | None,
    sequence: int,
    manifests: Sequence[ListedFile],
) -> NewObject:
    """Return the manifest list of a snapshot."""
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent is None else str(parent),
        "sequence-number": str(sequence),
        "format-version": str(place.format_version),
    }
    content = avro.write_container(
        avro.manifest_schema(place.format_version), [m.record for m in manifests], metadata
    )
    name = f"snap-{snapshot_id}-{content_digest(content)}.avro"
    return NewObject(place.metadata_path(name), content)


def _manifest(
    place: Place,
    name: str,
    content: int,
    files: Sequence[Mapping[str, Any]],
    added_in: tuple[int, int] | None = None,
    sequences: Sequence[int] | None = None,
) -> ListedFile:
    """Return a manifest of files that are new in a snapshot, or were known before under sequence
    numbers: those given, or the one of all files of format 2.
    """
    if sequences is None and added_in is None:
        sequences = [avro.FOLDED_SEQUENCE] * len(files)
    if place.format_version >= 3 and sequences is not None:
        ids = (file.get("first_row_id") for file in files)
        numbers = json.dumps([*sequences, *ids])
        name = name.replace(".", f"-{place.digest('numbers', numbers)}.")
    metadata = {
        "schema": place.schema_text,
        "schema-id": str(place.listed_schema["schema-id"]),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": str(place.format_version),
        "content": "data" if content == avro.DATA else "deletes",
    }
    data = avro.write_container(
        avro.entry_schema(place.format_version),
        map(partial(avro.entry, is_new=added_in is not None), files, sequences or repeat(None)),
        metadata,
    )
    rows, path = sum(file["record_count"] for file in files), place.metadata_path(name)
    record = avro.manifest(
        place.uri(path), len(data), content, len(files), rows, added_in, sequences or ()
    )
    return ListedFile(record, NewObject(path, data))


def _data_file(place: Place, shard: Shard) -> dict[str, Any]:
    lower, upper = key_bounds(place.schema, shard.min_key, shard.max_key)
    return {
        "content": avro.DATA,
        "file_path": place.shard_uri(shard),
        "file_format": "PARQUET",
        "partition": {},
        "record_count": shard.rows,
        "file_size_in_bytes": shard.size_bytes,
        "value_counts": [{"key": key.id, "value": shard.rows} for key in place.schema.keys],
        "null_value_counts": [{"key": key.id, "value": 0} for key in place.schema.keys],
        "lower_bounds": [{"key": number, "value": bound} for number, bound in lower.items()],
        "upper_bounds": [{"key": number, "value": bound} for number, bound in upper.items()],
    }
