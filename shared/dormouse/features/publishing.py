"""What is published of a table, for people: where, how far behind, and whether it is whole."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from dormouse import errors
from dormouse.iceberg.avro import DELETES
from dormouse.iceberg.metadata import Fetch, MetadataFile
from dormouse.messages.requests import PublishIceberg
from dormouse.messages.stages import OutboundMessage, TableChanged
from dormouse.ports import Services
from dormouse.state.versions import PublicationRecord
from dormouse.storage import FILE_SCHEME, root_uri
from dormouse.stored import paths
from dormouse.tables.table import Table, is_published


@dataclass(frozen=True, slots=True)
class PublishedFile:
    """A file that readers of the newest version open, by its URI: of rows, or of dead rows.

    One that `is_quick` is read slowly by Spark with Iceberg before 1.11.
    """

    uri: str
    is_deletes: bool
    is_quick: bool = False


def published_record(services: Services, table: Table) -> PublicationRecord:
    """Return the record of what readers find now.

    Raises:
        InvalidRequestError: the table is not published.
        NotFoundError: it is not published yet.
        CorruptDataError: the record is damaged.
    """
    _check_published(table)
    record = services.publications.get(table.id)
    if record is None or not record.metadata:
        raise errors.NotFoundError(
            f"nothing is published of table {table.name!r} yet",
            hint="it will be with its next change, or in some minutes; `dormouse iceberg publish "
            f"{table.name}` does it now",
        )
    return record


def published_metadata(services: Services, table: Table) -> MetadataFile:
    """Return what readers find now. Raises: as `published_record`; too if it is lost or damaged."""
    return MetadataFile.read(published_record(services, table).metadata, services.storage.get)


def _check_published(table: Table) -> None:
    if not is_published(table.properties):
        raise errors.InvalidRequestError(
            f"table {table.name!r} is not published",
            hint=f"`dormouse table set {table.name} iceberg=on` publishes it",
        )


def published_files(services: Services, table: Table) -> Iterator[PublishedFile]:
    """Yield the files that readers of the newest published version open.
    Raises: as `published_metadata`.
    """
    published = published_metadata(services, table)
    root = published.root.removeprefix(FILE_SCHEME)
    for manifest in published.manifests_in(published.list_path(published.current)):
        is_deletes = manifest["content"] == DELETES
        for path in published.files(manifest):
            shard = None if is_deletes else paths.shard_id_of(path)
            is_quick = shard is not None and not paths.is_plain(shard)
            yield PublishedFile(f"{root}/{path}", is_deletes, is_quick)


def problems(services: Services, table: Table) -> Iterator[str]:
    """Yield what keeps readers from what is published; nothing if all is there.

    Every object that the metadata names is looked for, and the shards of the newest version: those
    of earlier ones are kept for the delay of garbage collection. Objects are listed after the
    metadata was read, so what is missing was deleted too early, or is lost.
    Raises: as `published_metadata`.
    """
    published = published_metadata(services, table)
    if published.root != (here := root_uri(services.storage)):
        yield f"{published.path} is of a data root at {published.root}, which is at {here} now"
        return
    names: set[str] = set()
    newest = published.list_path(published.current)
    for path in sorted({*map(published.list_path, published.snapshots)}):
        try:
            for manifest in published.manifests_in(path):
                names.add(published.relative(manifest["manifest_path"]))
                if manifest["content"] == DELETES or path == newest:
                    names.update(published.files(manifest))
        except errors.DormouseError as error:
            yield f"{path}, or what it names: {error.explanation}"
    prefixes = (paths.data_prefix(table.id), paths.iceberg_prefix(table.id))
    there = {item.path for prefix in prefixes for item in services.storage.list(prefix)}
    yield from (f"{path}: there is no such object" for path in sorted(names - there))


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
    objects = list(services.storage.list(paths.iceberg_prefix(table.id)))
    record = services.publications.get(table.id) if objects else None
    if record is None:  # it may be lost, and then what readers find is not known
        return
    kept_ms = table.properties.gc_delay_seconds * 1000 + READERS_MS
    oldest_ms = services.clock.now_ms() - kept_ms
    metadata = [o for o in objects if o.path.endswith(paths.METADATA_SUFFIX)]
    newest = {each.metadata for each in record.since(oldest_ms) if each.metadata}
    aged = [o for o in metadata if o.path not in newest and o.modified_ms <= oldest_ms]
    if not at_once and all(o.modified_ms > oldest_ms - kept_ms // CHECKS_PER_KEPT for o in aged):
        return
    in_use = reachable(services.storage.get, newest)
    first, last = (choose(map(_number, newest), default=0) for choose in (min, max))
    for each in metadata:  # young, or perhaps current after the first of the newest
        if each.modified_ms > oldest_ms or first < _number(each.path) < last:
            # What a slow publisher put in vain may name what is deleted by now.
            with suppress(errors.CorruptDataError, errors.NotFoundError):
                in_use = reachable(services.storage.get, [each.path], in_use)
    old = [o.path for o in objects if o.modified_ms <= oldest_ms and o.path not in in_use]
    services.storage.delete([path for path in old if _is_over(path, record.sequence)])


def _is_over(path: str, sequence: int) -> bool:
    """Return whether no publisher can rely on an object any more, by the number of the record."""
    return not path.endswith(paths.VERSION_HINT) and _number(path) <= sequence


def _number(path: str) -> int:
    return paths.publication_sequence(path) or 0


def list_replaced(services: Services, table: Table) -> list[str]:
    """Return the paths of what was published and the newest metadata does not reach.

    Until metadata without purged rows is published, that is all that there is.
    Raises CorruptDataError, NotFoundError: what is published now is damaged or lost.
    """
    names = [o.path for o in services.storage.list(paths.iceberg_prefix(table.id))]
    record = services.publications.get(table.id) if names else None
    newest = [record.metadata] if record and record.metadata and record.again != "purged" else []
    in_use = reachable(services.storage.get, newest)
    return [path for path in names if path not in in_use and not path.endswith(paths.VERSION_HINT)]


def reachable(fetch: Fetch, metadata: Iterable[str], known: Collection[str] = ()) -> set[str]:
    """Return the paths of metadata and of what it names, but for the shards, and those `known`."""
    names = {*known, *metadata}
    for path in sorted(names.difference(known)):
        published = MetadataFile.read(path, fetch)
        for list_path in {*map(published.list_path, published.snapshots)} - names:
            names.add(list_path)
            for manifest in published.manifests_in(list_path):
                manifest_path = published.relative(manifest["manifest_path"])
                if manifest["content"] == DELETES and manifest_path not in names:
                    names.update(published.files(manifest))
                names.add(manifest_path)
    return names


# publish_iceberg: publish a table again, from its state, on request.

MARK_ATTEMPTS = 8
"""How often a record is marked again because a publisher was quicker."""


def request_publication(
    services: Services, table: Table, request: PublishIceberg
) -> list[OutboundMessage]:
    """Request what is new of a table, or all of it, to be published.
    Raises InvalidRequestError: the table is not published.
    """
    _check_published(table)
    if request.all:
        publish_again(services, table.id, "all")
    return [OutboundMessage("iceberg-changes", TableChanged(table.id))]


def publish_again(services: Services, table_id: str, what: Literal["all", "purged"]) -> bool:
    """Let the next publication of a table write more than what is new; return whether there is a
    record of one.

    A record that is damaged is deleted: the next publication begins another. Readers of what was
    published before may then find shards deleted.
    Raises ContendedError: publishers were quicker each time.
    """
    for _ in range(MARK_ATTEMPTS):
        try:
            record = services.publications.get(table_id)
        except errors.CorruptDataError:
            if what != "all":
                raise
            services.publications.delete(table_id)
            return False
        if record is None or not record.metadata:
            return False
        what_now = "purged" if "purged" in (what, record.again) else what
        if services.publications.replace(table_id, record, replace(record, again=what_now)):
            return True
    raise errors.ContendedError(
        f"publishers keep changing the record of table {table_id}; try again"
    )
