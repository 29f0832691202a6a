"""Index objects: what is behind the rows of a shard, as an object of its own.

The shard has the same bytes: term index, Bloom filters, page indexes, footer. Look-ups, merges read
the index object first, so that of a shard in a class of dear requests they read rows alone. What
must know the shard itself, as checks, purges and rebuilds, reads it there.

It is put when the shard is an object, and before the shard is committed; by whom, does not matter.
It is deleted with the shard. A crash may leave a shard without it, and then the shard is read.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeVar, cast

from dormouse.errors import CorruptDataError, NotFoundError
from dormouse.ports import Objects, StreamedObjects
from dormouse.storage import WrappedFile
from dormouse.stored.paths import has_index_object, index_path, is_index_object, shard_path

logger = logging.getLogger(__name__)
_T = TypeVar("_T")
_Objects = TypeVar("_Objects", bound=Objects)


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


def behind_rows(objects: _Objects, path: str, first: int) -> _Objects:
    """Return objects in which the bytes of a shard from `first` on, which are behind its rows, are
    at a path: that of its index object, or its own.
    """
    return cast(_Objects, _Behind(objects, first)) if is_index_object(path) else objects


@dataclass(frozen=True, slots=True)
class _Behind:
    """Index objects, by the offsets in their shards."""

    objects: Objects
    first: int

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        file = self.objects.open(path, size_bytes - self.first)
        return cast(BinaryIO, _FileBehind(file, self.first))

    def stream(self, path: str, size_bytes: int, start: int, end: int) -> Iterator[bytes]:
        first = self.first
        objects = cast(StreamedObjects, self.objects)
        return objects.stream(path, size_bytes - first, start - first, end - first)


class _FileBehind(WrappedFile):
    """The file of an index object, by the offsets in its shard."""

    def __init__(self, file: BinaryIO, first: int) -> None:
        super().__init__(file)
        self._first = first

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return super().seek(offset - self._first, whence)

    def read(self, size: int = -1) -> bytes:
        return self._file.read(size)
