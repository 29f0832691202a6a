"""Verify every byte of a shard against its checksums, a few megabytes at a time."""

from __future__ import annotations

from io import IOBase
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.errors import DamagedShardError
from dormouse.ports import Objects
from dormouse.readers.ranged_reads import coalesce, read_sections
from dormouse.shards.crcs import MAGIC, all_sections, read_crcs
from dormouse.shards.footer import raise_damaged, read_metadata

READ_BYTES = 4 * 1024 * 1024
"""About how much of a shard is in memory at a time."""


def audit_shard(objects: Objects, path: str, size_bytes: int) -> None:
    """Read the whole shard at `path`, and verify each byte of it.

    In a shard without CRCs, the values are verified by the checksums of the pages.

    Raises:
        NotFoundError: it is gone.
        DamagedShardError: it is damaged; the message says where.
    """
    metadata = read_metadata(objects, path, size_bytes)
    crcs = read_crcs(metadata, path)
    with raise_damaged(path), objects.open(path, size_bytes) as file:
        start = file.read(len(MAGIC))
    if start != MAGIC:
        raise DamagedShardError(
            f"{path} is damaged: it does not begin with the magic bytes of a Parquet file",
            path=path,
        )
    sections = all_sections(metadata, crcs, path, size_bytes)
    for together in coalesce(sections, READ_BYTES):
        read_sections(objects, path, size_bytes, together)
    if crcs is None:
        _read_rows(objects, path, size_bytes, metadata)


def _read_rows(objects: Objects, path: str, size_bytes: int, metadata: pq.FileMetaData) -> None:
    with raise_damaged(path), objects.open(path, size_bytes) as opened:
        file = pq.ParquetFile(
            pa.PythonFile(cast(IOBase, opened), mode="r"),
            metadata=metadata,
            page_checksum_verification=True,
        )
        try:
            for number in range(metadata.num_row_groups):
                file.read_row_group(number, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise DamagedShardError(f"{path} is damaged: {error}", path=path) from error
