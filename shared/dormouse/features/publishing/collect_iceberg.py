"""Delete what was published of a table and no metadata reaches that readers may have.

Readers may have found any metadata that was current within the delay of garbage collection, and
read what it names for a while. So an object is deleted once it is older than the delay and an hour,
and no metadata reaches it that is younger, or that the record names.

The objects are listed before the record is read: what a publication puts later is not in the list,
and no name is ever put again. So a publisher at the same time does not matter. Deleting can be
repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dormouse.features.export.stored import delete_all
from dormouse.iceberg.reachable import files_of, manifest_lists_of, manifests_of, show_metadata
from dormouse.ports import Services
from dormouse.stored.paths import METADATA_SUFFIX, VERSION_HINT, iceberg_prefix
from dormouse.tables.table import Table

CHECKS_PER_KEPT = 8
"""What is kept too long is looked for after this fraction of the time for which it is kept."""
READERS_MS = 60 * 60 * 1000
"""How much longer than the delay what is published is kept: for readers, and clocks that differ."""


def collect_iceberg(services: Services, table: Table, *, at_once: bool = False) -> None:
    """Delete the objects that readers need no more: once there are enough, or `at_once`.

    Raises:
        CorruptDataError: metadata that readers may have is damaged; nothing was deleted.
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
    young = {o.path for o in metadata if o.modified_ms > oldest_ms}
    needed = reachable(services.storage.get, named | young)
    old = (o.path for o in listed if o.modified_ms <= oldest_ms)
    delete_all(services, [o for o in old if o not in needed and not o.endswith(VERSION_HINT)])


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


def reachable(fetch: Callable[[str], bytes], metadata: Iterable[str]) -> set[str]:
    """Return the paths of metadata and of what it names, but for the shards."""
    found = set(metadata)
    for path in sorted(found):
        body = fetch(path)
        root = show_metadata(body, path).root
        for listed in set(manifest_lists_of(body, path)) - found:
            found.add(listed)
            for manifest in manifests_of(fetch(listed), root):
                if manifest.is_deletes and manifest.path not in found:
                    found.update(files_of(fetch(manifest.path), root))
                found.add(manifest.path)
    return found
