"""What is published of a table, for people: where, how far behind, and whether it is whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dormouse.errors import DormouseError, InvalidRequestError, NotFoundError
from dormouse.features.publishing.lag import lag_ms
from dormouse.iceberg.encodings import quick_shards
from dormouse.iceberg.previous import (
    check_own,
    current_snapshot,
    intact,
    parse_metadata,
    relative,
)
from dormouse.iceberg.reachable import (
    Summary,
    files_of,
    manifest_lists_of,
    manifests_of,
    show_metadata,
)
from dormouse.ports.services import FILE_SCHEME, Services, root_uri
from dormouse.stored.paths import data_prefix, iceberg_prefix, is_plain, shard_id_of
from dormouse.tables.published import is_published
from dormouse.tables.table import Table


@dataclass(frozen=True, slots=True)
class PublishedMetadata:
    """What readers of a table find now: `path` is that of its metadata in the data root, and
    `folder` that of all that is published. `lag_ms` is for how long a change has waited to follow.
    `quick_shards` are those that Spark with Iceberg before 1.11 reads slowly. `in_glue` is the name
    of the table in Glue; empty if it is not there, or has other metadata there.
    """

    path: str
    folder: str
    published_ms: int
    lag_ms: int
    quick_shards: int
    in_glue: str
    summary: Summary


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file that readers of the newest version open, by its URI: of rows, or of dead rows.

    One that `is_quick` is read slowly by Spark with Iceberg before 1.11.
    """

    uri: str
    is_deletes: bool
    is_quick: bool = False


def published_metadata(services: Services, table: Table) -> PublishedMetadata:
    """Return what readers find now.

    Raises:
        InvalidRequestError: the table is not published.
        NotFoundError: it is not published yet, or the metadata is lost.
        CorruptDataError: the record of it is damaged, or the metadata is.
    """
    if not is_published(table.properties):
        raise InvalidRequestError(
            f"table {table.name!r} is not published",
            hint=f"`dormouse table set {table.name} iceberg=on` publishes it",
        )
    record = services.publications.get(table.id)
    newest = record.newest if record is not None else None
    if newest is None or not newest.metadata:
        raise NotFoundError(
            f"nothing is published of table {table.name!r} yet",
            hint="it will be with its next change, or in some minutes; `dormouse iceberg publish "
            f"{table.name}` does it now",
        )
    state = services.store(table).current()
    return PublishedMetadata(
        newest.metadata,
        iceberg_prefix(table.id).rstrip("/"),
        newest.published_ms,
        lag_ms(services, table, state),
        len(quick_shards(state)),
        record.mirror if record is not None and record.mirrored == record.metadata else "",
        show_metadata(intact(services.storage.get)(newest.metadata), newest.metadata),
    )


def published_files(services: Services, table: Table) -> Iterator[PublishedFile]:
    """Yield the files that readers of the newest published version open.

    Raises: as `published_metadata`.
    """
    found = published_metadata(services, table)
    shown = found.summary.root.removeprefix(FILE_SCHEME)
    listed = services.storage.get(_newest_list(services, found))
    for manifest in manifests_of(listed, found.summary.root):
        for path in files_of(services.storage.get(manifest.path), found.summary.root):
            shard = None if manifest.is_deletes else shard_id_of(path)
            is_quick = shard is not None and not is_plain(shard)
            yield PublishedFile(f"{shown}/{path}", manifest.is_deletes, is_quick)


def problems(services: Services, table: Table) -> Iterator[str]:
    """Yield what keeps readers from what is published; nothing if all is there.

    Every object that the metadata names is looked for, and the shards of the newest version: those
    of earlier ones are kept for the delay of garbage collection. Objects are listed after the
    metadata was read, so what is missing was deleted too early, or is lost.

    Raises: as `published_metadata`.
    """
    found = published_metadata(services, table)
    fetch, root = intact(services.storage.get), found.summary.root
    if root != (here := root_uri(services.storage)):
        yield f"{found.path} is of a data root at {root}, which is at {here} now"
        return
    named: set[str] = set()
    newest = _newest_list(services, found)
    for path in sorted({newest, *manifest_lists_of(fetch(found.path), found.path)}):
        try:
            manifests = set(manifests_of(fetch(path), root))
            for manifest in manifests:
                named.add(manifest.path)
                if manifest.is_deletes or path == newest:
                    files = set(files_of(fetch(manifest.path), root))
                    for each in files:
                        check_own(each, found.path)
                    named |= files
        except DormouseError as error:
            yield f"{path}, or what it names: {error.explanation}"
    prefixes = (data_prefix(table.id), iceberg_prefix(table.id))
    there = {stored.path for prefix in prefixes for stored in services.storage.list(prefix)}
    yield from (f"{path}: there is no such object" for path in sorted(named - there))


def _newest_list(services: Services, found: PublishedMetadata) -> str:
    """Return the path of the manifest list of the newest version."""
    body = parse_metadata(services.storage.get(found.path))
    return relative(current_snapshot(body)["manifest-list"], found.summary.root)
