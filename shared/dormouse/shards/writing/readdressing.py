"""Verify a whole shard in a local file, and make it a shard of another table.

Only the table's id in the footer and in its index, and their checksums, change; all keep their
length. So no row is decoded, and every CRC of rows stays what it was.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import BinaryIO

import pyarrow.parquet as pq

from dormouse.errors import DamagedShardError, InvariantError
from dormouse.model.shards import Shard
from dormouse.shards.format.crcs import TRAILER_BYTES, all_sections, index_of
from dormouse.shards.format.footer import METADATA_KEY, check_identity, read_metadata
from dormouse.shards.format.stored_index import INDEX_KEY, MAGIC, rename_table
from dormouse.stored import checksums


class _LocalObject:
    """`ports.Objects` with a local file in place of the one object that is asked for."""

    is_remote = False

    def __init__(self, local: Path) -> None:
        self._local = local

    def open(self, path: str, size_bytes: int) -> BinaryIO:
        """Open the file, whatever the path."""
        return self._local.open("rb")


def verify_local_shard(local: Path, path: str, table_id: str, shard: Shard) -> pq.FileMetaData:
    """Check every byte of a shard that was copied from `path` to a local file.

    Raises:
        DamagedShardError: a byte differs from what was written, or it is another shard.
    """
    size_bytes = local.stat().st_size
    if size_bytes != shard.size_bytes:
        raise DamagedShardError(
            f"{path} is damaged: it has {size_bytes:,} of {shard.size_bytes:,} bytes", path=path
        )
    metadata = read_metadata(_LocalObject(local), path, size_bytes)
    check_identity(metadata, path, table_id, shard)
    index = index_of(metadata, path)
    with local.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as body:
        if body[: len(MAGIC)] != MAGIC:
            raise DamagedShardError(f"{path} does not begin as a Parquet file does", path=path)
        for section in all_sections(metadata, index, path, size_bytes):
            with memoryview(body) as view, view[section.start : section.end] as part:
                section.check(path, part)
    return metadata


def readdress_shard(local: Path, metadata: pq.FileMetaData, table_id: str, other_id: str) -> None:
    """Make a local shard of table `table_id` one of table `other_id`.

    Raises:
        InvariantError: the footer does not name the table where it is expected to.
    """
    held = metadata.metadata or {}
    stored, index = (held.get(key.encode(), b"") for key in (METADATA_KEY, INDEX_KEY))
    named, renamed = (f'"table_id":"{each}"'.encode() for each in (table_id, other_id))
    changes = [(stored, stored.replace(named, renamed, 1)), (index, rename_table(index, other_id))]
    with local.open("r+b") as file:
        file.seek(-TRAILER_BYTES, os.SEEK_END)
        (length,) = struct.unpack("<I", file.read(4))
        start = file.seek(-TRAILER_BYTES - length, os.SEEK_END)
        footer = file.read()
        for before, after in changes:
            place = footer.rfind(before)
            if place < 0 or before == after or len(before) != len(after):
                raise InvariantError(f"the footer of {local} does not name table {table_id}")
            footer = footer[:place] + after + footer[place + len(before) :]
        file.seek(start)
        file.write(checksums.renew(footer))
