"""What is published of a table, for people: where, how far behind, and whether it is whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from dormouse.errors import (
    ContendedError,
    CorruptDataError,
    DormouseError,
    InvalidRequestError,
    NotFoundError,
)
from dormouse.features.measure import lag_ms
from dormouse.iceberg.liveness import quick_shards
from dormouse.iceberg.metadata import (
    Summary,
    check_own,
    current_snapshot,
    files_of,
    intact,
    manifest_lists_of,
    manifests_of,
    parse_metadata,
    relative,
    show_metadata,
)
from dormouse.messages.requests import PublishIceberg
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports import Services
from dormouse.storage import FILE_SCHEME, root_uri
from dormouse.stored.paths import (
    METADATA_SUFFIX,
    VERSION_HINT,
    data_prefix,
    iceberg_prefix,
    is_plain,
    publication_sequence,
    shard_id_of,
)
from dormouse.tables.table import Table, is_published


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
    metadata = published_metadata(services, table)
    root = metadata.summary.root.removeprefix(FILE_SCHEME)
    body = services.storage.get(_newest_list(services, metadata))
    for manifest in manifests_of(body, metadata.summary.root):
        for path in files_of(services.storage.get(manifest.path), metadata.summary.root):
            shard = None if manifest.is_deletes else shard_id_of(path)
            is_quick = shard is not None and not is_plain(shard)
            yield PublishedFile(f"{root}/{path}", manifest.is_deletes, is_quick)


def problems(services: Services, table: Table) -> Iterator[str]:
    """Yield what keeps readers from what is published; nothing if all is there.

    Every object that the metadata names is looked for, and the shards of the newest version: those
    of earlier ones are kept for the delay of garbage collection. Objects are listed after the
    metadata was read, so what is missing was deleted too early, or is lost.

    Raises: as `published_metadata`.
    """
    metadata = published_metadata(services, table)
    fetch, root = intact(services.storage.get), metadata.summary.root
    if root != (here := root_uri(services.storage)):
        yield f"{metadata.path} is of a data root at {root}, which is at {here} now"
        return
    names: set[str] = set()
    newest = _newest_list(services, metadata)
    for path in sorted({newest, *manifest_lists_of(fetch(metadata.path), metadata.path)}):
        try:
            manifests = set(manifests_of(fetch(path), root))
            for manifest in manifests:
                names.add(manifest.path)
                if manifest.is_deletes or path == newest:
                    files = set(files_of(fetch(manifest.path), root))
                    for each in files:
                        check_own(each, metadata.path)
                    names |= files
        except DormouseError as error:
            yield f"{path}, or what it names: {error.explanation}"
    prefixes = (data_prefix(table.id), iceberg_prefix(table.id))
    there = {stored.path for prefix in prefixes for stored in services.storage.list(prefix)}
    yield from (f"{path}: there is no such object" for path in sorted(names - there))


def _newest_list(services: Services, metadata: PublishedMetadata) -> str:
    """Return the path of the manifest list of the newest version."""
    body = parse_metadata(services.storage.get(metadata.path))
    return relative(current_snapshot(body)["manifest-list"], metadata.summary.root)


# Delete what was published of a table and no metadata reaches that readers may have.
#
# Readers may have found any metadata that was current within the delay of garbage collection, and
# read what it names for a while. So an object is deleted once it is older than the delay and an
# hour, and no metadata reaches it that the record names, or that may have been current since what
# it names first: it is younger, or was published in between. (The record leaves out some
# checkpoints.)
#
# A publisher at the same time puts objects under the number after that of the record, and replaces
# the record only if it is still the one that it read. So what has a greater number than the record
# is left alone: a publisher may rely on it that finds it there, put by another that died. What else
# it names, the record names too. Deleting can be repeated.

CHECKS_PER_KEPT = 8
"""What is kept too long is looked for after this fraction of the time for which it is kept."""
READERS_MS = 60 * 60 * 1000
"""How much longer than the delay what is published is kept: for readers, and clocks that differ."""


def collect_iceberg(services: Services, table: Table, *, at_once: bool = False) -> None:
    """Delete the objects that readers need no more: once there are enough, or `at_once`.

    Raises:
        CorruptDataError: metadata that the record names is damaged; nothing was deleted.
        NotFoundError: something is lost that this metadata names; nothing was deleted.
    """
    objects = list(services.storage.list(iceberg_prefix(table.id)))
    record = services.publications.get(table.id) if objects else None
    if record is None:  # it may be lost, and then what readers find is not known
        return
    kept_ms = table.properties.gc_delay_seconds * 1000 + READERS_MS
    oldest_ms = services.clock.now_ms() - kept_ms
    metadata = [o for o in objects if o.path.endswith(METADATA_SUFFIX)]
    newest = {each.metadata for each in record.since(oldest_ms) if each.metadata}
    aged = [o for o in metadata if o.path not in newest and o.modified_ms <= oldest_ms]
    if not at_once and all(o.modified_ms > oldest_ms - kept_ms // CHECKS_PER_KEPT for o in aged):
        return
    in_use = reachable(services.storage.get, newest)
    for each in metadata:
        if each.modified_ms > oldest_ms or _is_between(each.path, newest):
            # What a slow publisher put in vain may name what is deleted by now.
            with suppress(CorruptDataError, NotFoundError):
                in_use = reachable(services.storage.get, [each.path], in_use)
    old = [o.path for o in objects if o.modified_ms <= oldest_ms and o.path not in in_use]
    services.storage.delete([path for path in old if _is_over(path, record.sequence)])


def _is_between(path: str, names: Collection[str]) -> bool:
    """Return whether metadata may have been current after the first of `names`, before the last."""
    first, last = (choose(map(_number, names), default=0) for choose in (min, max))
    return first < _number(path) < last


def _is_over(path: str, sequence: int) -> bool:
    """Return whether no publisher can rely on an object any more, by the number of the record."""
    return not path.endswith(VERSION_HINT) and _number(path) <= sequence


def _number(path: str) -> int:
    return publication_sequence(path) or 0


def list_replaced(services: Services, table: Table) -> list[str]:
    """Return the paths of what was published and the newest metadata does not reach.

    Until metadata without purged rows is published, that is all that there is.

    Raises:
        CorruptDataError, NotFoundError: what is published now is damaged or lost.
    """
    paths = [o.path for o in services.storage.list(iceberg_prefix(table.id))]
    record = services.publications.get(table.id) if paths else None
    newest = [record.metadata] if record and record.metadata and record.again != "purged" else []
    in_use = reachable(services.storage.get, newest)
    return [path for path in paths if path not in in_use and not path.endswith(VERSION_HINT)]


def reachable(
    fetch: Callable[[str], bytes], metadata: Iterable[str], known: Collection[str] = ()
) -> set[str]:
    """Return the paths of metadata and of what it names, but for the shards, and those `known`."""
    fetch, paths = intact(fetch), {*known, *metadata}
    for path in sorted(paths.difference(known)):
        body = fetch(path)
        root = show_metadata(body, path).root
        for list_path in set(manifest_lists_of(body, path)) - paths:
            paths.add(list_path)
            for manifest in manifests_of(fetch(list_path), root):
                if manifest.is_deletes and manifest.path not in paths:
                    paths.update(files_of(fetch(manifest.path), root))
                paths.add(manifest.path)
    return paths


# publish_iceberg: publish a table again, from its state, on request.

MARK_ATTEMPTS = 8
"""How often a record is marked again because a publisher was quicker."""


def request_publication(
    services: Services, table: Table, request: PublishIceberg
) -> list[OutboundMessage]:
    """Request what is new of a table, or all of it, to be published.

    Raises:
        InvalidRequestError: the table is not published.
        NotFoundError: no table of that name exists, or it is being deleted.
    """
    if not is_published(table.properties):
        raise InvalidRequestError(
            f"table {table.name!r} is not published",
            hint=f"`dormouse table set {table.name} iceberg=on` publishes it",
        )
    if request.all:
        publish_again(services, table.id, "all")
    return [OutboundMessage("iceberg-changes", TableChanged(table.id))]


def publish_again(services: Services, table_id: str, what: Literal["all", "purged"]) -> bool:
    """Let the next publication of a table write more than what is new; return whether there is a
    record of one.

    A record that is damaged is deleted: the next publication begins another. Readers of what was
    published before may then find shards deleted.

    Raises:
        ContendedError: publishers were quicker each time.
    """
    for _ in range(MARK_ATTEMPTS):
        try:
            record = services.publications.get(table_id)
        except CorruptDataError:
            if what != "all":
                raise
            services.publications.delete(table_id)
            return False
        if record is None or not record.metadata:
            return False
        what_now = "purged" if "purged" in (what, record.again) else what
        if services.publications.replace(table_id, record, replace(record, again=what_now)):
            return True
    raise ContendedError(f"publishers keep changing the record of table {table_id}; try again")
