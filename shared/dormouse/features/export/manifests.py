"""The manifest of an export: what it took of which version, and every file with its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from dormouse.errors import AlreadyExistsError, NotFoundError
from dormouse.features.export.export import Export, ExportedFile
from dormouse.key_forms.codec import KeyCodec
from dormouse.ports import Services, Storage
from dormouse.stored import checksums
from dormouse.stored.decoding import decode_json, raise_corrupt
from dormouse.stored.json_objects import check_format, with_checksum
from dormouse.stored.paths import MANIFEST

FORMAT = 2
JsonKey = tuple[object, ...]


class ManifestFile(msgspec.Struct, frozen=True):
    """A file of an export. `name` is relative to the manifest; names sort as the rows do."""

    name: str
    rows: int
    size_bytes: int


class Manifest(msgspec.Struct, frozen=True):
    """What lies below an export's prefix. It is written last: where it is, the export is whole.

    `schema` is that of the table, `columns` the columns of the files. `ranges` are pairs of keys,
    as lists of parts: the first inclusive, the second exclusive, null for an open end. `checksum`
    is of all bytes of the manifest but its own digits.
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
    v: int = FORMAT
    checksum: str = checksums.BLANK


def build_manifest(export: Export, files: Sequence[ExportedFile]) -> Manifest:
    """Return the manifest of a finished export; the same whoever finishes it."""
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
    )


def save_manifest(services: Services, export: Export, manifest: Manifest) -> None:
    """Put a manifest where the files are, once.

    Raises:
        AlreadyExistsError: that of another export is there.
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
    """Return a manifest as it lies beside the files, with its checksum."""
    return with_checksum(msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def load_manifest(results: Storage, to: str) -> Manifest | None:
    """Return the manifest of what was exported to a prefix; None if there is none, or not yet.

    Raises:
        CorruptDataError: it is no manifest.
    """
    path = manifest_path(to)
    try:
        body = results.get(path)
    except NotFoundError:
        return None
    with raise_corrupt(f"{path} is no manifest of an export", hint="export the rows once more"):
        checksums.verify(body)
        manifest = decode_json(body, Manifest)
        check_format(manifest.v, FORMAT)
        return replace(manifest, checksum=checksums.BLANK)


def manifest_path(to: str) -> str:
    """Return the path of the manifest of what is exported to a prefix."""
    return f"{to}/{MANIFEST}"
