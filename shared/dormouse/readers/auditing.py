"""Verify every byte of a shard against its checksums, a few megabytes at a time."""

from __future__ import annotations

from dormouse.errors import DamagedShardError
from dormouse.ports.services import Objects
from dormouse.readers.ranged_reads import coalesce, read_sections
from dormouse.shards.format.crcs import all_sections, index_of
from dormouse.shards.format.footer import raise_damaged, read_metadata
from dormouse.shards.format.stored_index import MAGIC

READ_BYTES = 4 * 1024 * 1024
"""About how much of a shard is in memory at a time."""


def audit_shard(objects: Objects, path: str, size_bytes: int) -> None:
    """Read the whole shard at `path`, and verify each byte of it.

    Raises:
        NotFoundError: it is gone.
        DamagedShardError: it is damaged; the message says where.
    """
    metadata = read_metadata(objects, path, size_bytes)
    index = index_of(metadata, path)
    with raise_damaged(path), objects.open(path, size_bytes) as file:
        start = file.read(len(MAGIC))
    if start != MAGIC:
        raise DamagedShardError(
            f"{path} is damaged: it does not begin with the magic bytes of a Parquet file",
            path=path,
        )
    sections = all_sections(metadata, index, path, size_bytes)
    for together in coalesce(sections, READ_BYTES):
        read_sections(objects, path, size_bytes, together)
