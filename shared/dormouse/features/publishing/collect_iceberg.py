"""Delete what was published of a table and no metadata reaches that readers may have.

Readers may have found any metadata that was current within the delay of garbage collection, and
read what it names for a while. So an object is deleted once it is older than the delay and an hour,
and no metadata reaches it that the record names, or that may have been current since what it names
first: it is younger, or was published in between. (The record leaves out some checkpoints.)

A publisher at the same time puts objects under the number after that of the record, and replaces
the record only if it is still the one that it read. So what has a greater number than the record
is left alone: a publisher may rely on it that finds it there, put by another that died. What else
it names, the record names too. Deleting can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.features.export.stored import delete_all
from dormouse.iceberg.previous import intact
from dormouse.iceberg.reachable import files_of, manifest_lists_of, manifests_of, show_metadata
from dormouse.ports.services import Services
from dormouse.stored.paths import (
    METADATA_SUFFIX,
    VERSION_HINT,
    iceberg_prefix,
    publication_sequence,
)
from dormouse.tables.table import Table

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
    listed = list(services.storage.list(iceberg_prefix(table.id)))
    record = services.publications.get(table.id) if listed else None
    if record is None:  # it may be lost, and then what readers find is not known
        return
    kept_ms = table.properties.gc_delay_seconds * 1000 + READERS_MS
    oldest_ms = services.clock.now_ms() - kept_ms
    metadata = [o for o in listed if o.path.endswith(METADATA_SUFFIX)]
    named = {each.metadata for each in record.since(oldest_ms) if each.metadata}
    aged = [o for o in metadata if o.path not in named and o.modified_ms <= oldest_ms]
    if not at_once and all(o.modified_ms > oldest_ms - kept_ms // CHECKS_PER_KEPT for o in aged):
        return
    needed = reachable(services.storage.get, named)
    for each in metadata:
        if each.modified_ms > oldest_ms or _is_between(each.path, named):
            # What a slow publisher put in vain may name what is deleted by now.
            with suppress(CorruptDataError, NotFoundError):
                needed = reachable(services.storage.get, [each.path], needed)
    old = [o.path for o in listed if o.modified_ms <= oldest_ms and o.path not in needed]
    delete_all(services, [path for path in old if _is_over(path, record.sequence)])


def _is_between(path: str, named: Collection[str]) -> bool:
    """Return whether metadata may have been current after the first of `named`, before the last."""
    first, last = (choose(map(_number, named), default=0) for choose in (min, max))
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
    listed = [o.path for o in services.storage.list(iceberg_prefix(table.id))]
    record = services.publications.get(table.id) if listed else None
    newest = [record.metadata] if record and record.metadata and record.again != "purged" else []
    needed = reachable(services.storage.get, newest)
    return [path for path in listed if path not in needed and not path.endswith(VERSION_HINT)]


def reachable(
    fetch: Callable[[str], bytes], metadata: Iterable[str], known: Collection[str] = ()
) -> set[str]:
    """Return the paths of metadata and of what it names, but for the shards, and those `known`."""
    fetch, found = intact(fetch), {*known, *metadata}
    for path in sorted(found.difference(known)):
        body = fetch(path)
        root = show_metadata(body, path).root
        for listed in set(manifest_lists_of(body, path)) - found:
            found.add(listed)
            for manifest in manifests_of(fetch(listed), root):
                if manifest.is_deletes and manifest.path not in found:
                    found.update(files_of(fetch(manifest.path), root))
                found.add(manifest.path)
    return found
