"""Index objects: what is behind the rows of a shard, as an object of its own.

The shard has the same bytes: term index, Bloom filters, page indexes, footer. Look-ups, merges read
the index object first, so that of a shard in a class of dear requests they read rows alone. What
must know the shard itself, as checks, purges and rebuilds, reads it there.

It is put when the shard is an object, and before the shard is committed; by whom, does not matter.
It is deleted with the shard. A crash may leave a shard without it, and then the shard is read.
"""

import logging
import os
from collections.abc import Callable
from typing import TypeVar

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.ports import Objects
from dormouse.stored.paths import has_index_object, index_path, is_index_object, shard_path

logger = logging.getLogger(__name__)
_T = TypeVar("_T")


def read_by_index_object(read: Callable[[str], _T], table_id: str, shard_id: str) -> _T:
    """Return what `read` finds at a path: that of the index object of a shard, or if it has none,
    or a bad one, of the shard.

    Raises what `read` does of the shard.
    """
    if has_index_object(shard_id):
        path = index_path(table_id, shard_id)
        try:
            return read(path)
        except NotFoundError:
            logger.warning("There is no %s; the end of the shard is read.", path)
        except CorruptDataError as error:
            logger.warning("%s is damaged, and the end of the shard is read: %s", path, error)
    return read(shard_path(table_id, shard_id))


def read_end(objects: Objects, path: str, length: int) -> bytes:
    """Return the last `length` bytes of an object of unknown size, or all of it, by one read."""
    with objects.open(path, 0) as file:
        try:
            file.seek(-length, os.SEEK_END)
        except (OSError, ValueError):  # of this machine, and shorter
            file.seek(0)
        return file.read(length)


def shift_at(path: str, first: int) -> int:
    """Return by how much the offsets of what is behind the rows of a shard, from `first` on, are
    less in the object at a path: that of its index object, or its own.
    """
    return first if is_index_object(path) else 0
