"""What a table's current publication consists of, read back: the next one begins there."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dormouse.errors import CorruptDataError
from dormouse.iceberg.files import avro, entries
from dormouse.iceberg.files.manifests import Lineage, content_digest, content_name
from dormouse.stored.paths import METADATA_SUFFIX, shard_id_of

AGAIN = "`dormouse iceberg publish NAME --all` publishes the table again, from its state"
_LIST = "-snap-"
Fetch = Callable[[str], bytes]
"""Gets an object by its path in the data root."""


@dataclass(frozen=True, slots=True)
class Previous:
    """The metadata of a publication, at `path`; the data root then had the URI `root`.

    `manifests` are those of its current snapshot, in order, and `deletes` the files that say which
    rows are dead.
    """

    path: str
    root: str
    metadata: Mapping[str, Any]
    manifests: Sequence[Mapping[str, Any]]
    deletes: Sequence[Mapping[str, Any]]
    _fetch: Fetch

    @property
    def data_manifests(self) -> list[Mapping[str, Any]]:
        """The records of the manifests of shards."""
        return [record for record in self.manifests if record["content"] == entries.DATA]

    def lineage(self, kept: Collection[str]) -> dict[str, Lineage]:
        """Return the lineage of all shards, by id, but for those in the manifests with a
        `content_name` in `kept`, which are not read.

        Raises: as `read_previous`.
        """
        found: dict[str, Lineage] = {}
        for record in self.data_manifests:
            if content_name(record["manifest_path"]) not in kept:
                path = relative(record["manifest_path"], self.root)
                for item in avro.read_container(self._fetch(path))[1]:
                    file = item["data_file"]
                    number = Lineage(file["first_row_id"], item["sequence_number"])
                    if shard := shard_id_of(file["file_path"]):
                        found[shard] = number
        return found

    @property
    def snapshots(self) -> list[dict[str, Any]]:
        """The snapshots that it lists, the oldest first."""
        return list(self.metadata["snapshots"])

    @property
    def current(self) -> Mapping[str, Any]:
        """The snapshot of the published version."""
        return current_snapshot(self.metadata)


def read_previous(metadata_path: str, fetch: Fetch) -> Previous:
    """Read the metadata of a publication, the manifests of its version, and what is dead in it.

    Raises:
        CorruptDataError: an object is not what Dormouse put there. What `fetch` raises, too.
    """
    fetch = intact(fetch)
    metadata = parse_metadata(fetch(metadata_path))
    root = root_of(metadata, metadata_path)
    listed = fetch(relative(current_snapshot(metadata)["manifest-list"], root))
    manifests = avro.read_container(listed)[1]
    deletes = [
        item["data_file"]
        for record in manifests
        if record["content"] == entries.DELETES
        for item in avro.read_container(fetch(relative(record["manifest_path"], root)))[1]
    ]
    for item in deletes:
        check_own(relative(item["file_path"], root), metadata_path)
    return Previous(metadata_path, root, metadata, manifests, deletes, fetch)


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


def check_own(path: str, metadata_path: str) -> None:
    """Check that what is named at a path is of the table that the metadata is of.

    Raises:
        CorruptDataError: it is of another.
    """
    table_id = metadata_path.partition("/")[0]
    if not path.startswith(f"{table_id}/"):
        raise CorruptDataError(
            f"what is published of table {table_id} names {path}, which is of another", hint=AGAIN
        )


def parse_metadata(content: bytes) -> dict[str, Any]:
    """Return the metadata of a published table.

    Raises:
        CorruptDataError: it is no such metadata.
    """
    try:
        metadata = json.loads(content)
        metadata["snapshots"], current_snapshot(metadata)
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise CorruptDataError(
            "the metadata published for readers of Iceberg is damaged",
            hint=AGAIN,
        ) from error
    return dict(metadata)


def current_snapshot(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the snapshot that readers see who ask for none."""
    current = metadata["current-snapshot-id"]
    return next(item for item in metadata["snapshots"] if item["snapshot-id"] == current)


def root_of(metadata: Mapping[str, Any], metadata_path: str) -> str:
    """Return the URI that the data root had when metadata was put at a path in it."""
    table_id = metadata_path.partition("/")[0]
    return str(metadata["location"]).removesuffix(f"/{table_id}/iceberg")


def relative(uri: str, root: str) -> str:
    """Return the path in the data root of what is published at a URI.

    Raises:
        CorruptDataError: it lies elsewhere.
    """
    if not uri.startswith(f"{root}/"):
        raise CorruptDataError(f"published metadata names {uri!r}, which is not below {root!r}")
    return uri.removeprefix(f"{root}/")
