"""What published metadata names: the objects that must stay as long as it is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dormouse.iceberg.files import avro, entries
from dormouse.iceberg.metadata import VERSION
from dormouse.iceberg.previous import current_snapshot, parse_metadata, relative, root_of
from dormouse.iceberg.snapshots import Totals


@dataclass(frozen=True, slots=True)
class ManifestPath:
    """Where a manifest is, in the data root, and whether it lists files of dead rows."""

    path: str
    is_deletes: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """What the metadata of a table tells its readers.

    `versions` are those that can be asked for, the newest last.
    """

    format_version: int
    root: str
    versions: tuple[int, ...]
    rows: int
    data_files: int
    delete_files: int
    dead_rows: int

    @property
    def version(self) -> int:
        """The version that readers see who ask for none."""
        return self.versions[-1]


def manifest_lists_of(metadata: bytes, path: str) -> tuple[str, ...]:
    """Return the paths of the manifest lists of all snapshots in the metadata at `path`.

    Raises:
        CorruptDataError: it is not the metadata of a published table.
    """
    body = parse_metadata(metadata)
    root = root_of(body, path)
    return tuple(relative(item["manifest-list"], root) for item in body["snapshots"])


def manifests_of(manifest_list: bytes, root: str) -> tuple[ManifestPath, ...]:
    """Return the manifests in a list; `root` is the URI of the data root.

    Raises:
        CorruptDataError: it is no manifest list of that root.
    """
    return tuple(
        ManifestPath(relative(record["manifest_path"], root), record["content"] == entries.DELETES)
        for record in avro.read_container(manifest_list)[1]
    )


def files_of(manifest: bytes, root: str) -> Iterator[str]:
    """Yield the paths of the files in a manifest: shards, or files of dead rows.

    Raises:
        CorruptDataError: it is no manifest of that root.
    """
    for item in avro.read_container(manifest)[1]:
        yield relative(item["data_file"]["file_path"], root)


def show_metadata(metadata: bytes, path: str) -> Summary:
    """Return what the metadata at `path` tells its readers.

    Raises:
        CorruptDataError: it is not the metadata of a published table.
    """
    body = parse_metadata(metadata)
    current = current_snapshot(body)
    totals = Totals.of(current)
    return Summary(
        format_version=body["format-version"],
        root=root_of(body, path),
        versions=tuple(dict.fromkeys(int(item["summary"][VERSION]) for item in body["snapshots"])),
        rows=totals.live_rows,
        data_files=totals.files,
        delete_files=totals.delete_files,
        dead_rows=totals.dead_rows,
    )
