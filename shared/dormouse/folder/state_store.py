"""The state store of a folder: deltas are items of its SQLite file, what is large is a file."""

from collections.abc import Callable

from dormouse.items.blobs import ItemBlobs
from dormouse.items.pages import ItemPages
from dormouse.items.store import ItemStore, Put
from dormouse.log.blobs import ObjectBlobs
from dormouse.log.engine import DEFAULTS, LogStateStore, Options
from dormouse.log.log import Log, Reader
from dormouse.ports import Clock, Ids, Storage
from dormouse.stored.paths import segment_prefix, snapshot_prefix
from dormouse.system import WITHOUT_PAUSES, RetryPolicy

PART_BYTES = 1024 * 1024
"""A larger delta, of some thousand shards, takes several items."""


class FolderStateStore(LogStateStore):
    """The engine over items and files.

    A small delta is written in half the time that a file of its own takes, with its name.
    """

    def __init__(
        self,
        table_id: str,
        storage: Storage,
        items: ItemStore,
        pages: ItemPages,
        clock: Clock,
        ids: Ids,
        *,
        retry_policy: RetryPolicy = WITHOUT_PAUSES,
        options: Options = DEFAULTS,
        defer: Callable[[Put], None] | None = None,
    ) -> None:
        """Use the state of `table_id`; nothing is read yet. With `defer`, deltas are put by that:
        with the next change of `pages`.
        """
        reader = Reader(
            Log(table_id, pages, retry_policy, options.name),
            ItemBlobs(items, table_id, "delta", retry_policy, part_bytes=PART_BYTES, defer=defer),
            segments=ObjectBlobs(storage, segment_prefix(table_id), "segment", retry_policy),
            snapshots=ObjectBlobs(storage, snapshot_prefix(table_id), "snapshot", retry_policy),
        )
        super().__init__(reader, clock, ids, options)
