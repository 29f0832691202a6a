"""The manifest of an export: its selection, the version it read, and every file with its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from dormouse.errors import AlreadyExistsError, NotFoundError
from dormouse.features.export.export import Export, ExportedFile, SkippedShard
from dormouse.key_forms.codec import KeyCodec
from dormouse.ports.services import Services, Storage
from dormouse.stored import checksums
from dormouse.stored.decoding import decode_json, raise_corrupt
from dormouse.stored.json_objects import check_format, with_checksum
from dormouse.stored.paths import MANIFEST

FORMAT = 1
JsonKey = tuple[object, ...]


class ManifestFile(msgspec.Struct, frozen=True):
    """A file of an export. `name` is relative to the manifest; names sort in key order."""

    name: str
    rows: int
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """The content of an export's prefix. It is written last: if it exists, the export is complete.

    `schema` is the table's, `columns` are those of the files. `ranges` are pairs of keys, each a
    list of parts: the first inclusive, the second exclusive, null for an open end. `checksum`
    covers all bytes of the manifest except its own digits. `skipped` are the shards that are lost
    or damaged, of which an export with `skip_damaged` has no rows; unset if there are none.
    """

    export: str
    table: str
    table_id: str
    version: int
    time_ms: int
    schema: dict[str, Any]
    columns: tuple[str, ...]
    ranges: tuple[tuple[JsonKey, JsonKey | None], ...]
    where: str
    files: tuple[ManifestFile, ...]
    rows: int
    size_bytes: int
    skipped: tuple[SkippedShard, ...] | UnsetType = UNSET
    v: int = FORMAT
    checksum: str = checksums.BLANK


def build_manifest(
    export: Export, files: Sequence[ExportedFile], skipped: Sequence[SkippedShard] = ()
) -> Manifest:
    """Return the manifest of a finished export; every run that finishes it builds the same."""
    schema, selection = export.schema, export.selection
    codec = KeyCodec(schema)
    return Manifest(
        export.id,
        export.table_name,
        export.table_id,
        selection.version,
        selection.time_ms,
        schema.to_json(),
        selection.columns,
        tuple(
            (
                codec.to_json(wanted.min),
                None if wanted.max is None else codec.to_json(wanted.max),
            )
            for wanted in selection.ranges
        ),
        selection.where,
        tuple(ManifestFile(file.name, file.rows, file.size_bytes) for file in files),
        sum(file.rows for file in files),
        sum(file.size_bytes for file in files),
        tuple(skipped) or UNSET,
    )


def save_manifest(services: Services, export: Export, manifest: Manifest) -> None:
    """Put the manifest beside its files; if this export has put it before, do nothing.

    Raises:
        AlreadyExistsError: the manifest of another export is there.
    """
    if services.results.put(manifest_path(export.to), encode_manifest(manifest)):
        return
    found = load_manifest(services.results, export.to)
    if found is None or found.export != export.id:
        raise AlreadyExistsError(
            f"the manifest of another export lies below {export.to!r} already",
            hint="export to a prefix of its own",
        )


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the stored form of a manifest, with its checksum."""
    return with_checksum(msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def load_manifest(results: Storage, to: str) -> Manifest | None:
    """Return the manifest below a prefix; None if no export is complete there.

    Raises:
        CorruptDataError: the object is damaged or is no manifest.
    """
    path = manifest_path(to)
    try:
        body = results.get(path)
    except NotFoundError:
        return None
    with raise_corrupt(f"{path} is no manifest of an export", hint="export the rows again"):
        checksums.verify(body)
        manifest = decode_json(body, Manifest)
        check_format(manifest.v, FORMAT)
        return replace(manifest, checksum=checksums.BLANK)


def manifest_path(to: str) -> str:
    """Return the path of the manifest below a prefix."""
    return f"{to}/{MANIFEST}"
