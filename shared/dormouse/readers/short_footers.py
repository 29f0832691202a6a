"""Footers of their own for parts of shards with many column chunks.

Parquet's readers take 1 to 2 KB of memory for each column chunk that a footer describes: Arrow as
long as a merge lasts, and DataFusion for each of its windows again. Fifty shards of hundreds of
columns would take gigabytes. So if the inputs of a merge have many chunks, their footers are not
read. What one window reads of a shard is copied to a file, at the same offsets, and a footer that
describes only that ends the file. It is made from the shard's index, which has 13 bytes for a
chunk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dormouse.arrow.evolution import present_fields
from dormouse.model.shards import Shard
from dormouse.readers.excerpts import PlacedChunk, file_end, is_flat
from dormouse.readers.reading import RowGroups
from dormouse.schema.schema import Field, Schema
from dormouse.shards.format.footer import raise_damaged
from dormouse.shards.format.pages import pages_of
from dormouse.shards.format.row_groups import CHUNK_FOOTER_BYTES, estimated_footer_bytes

MOST_DESCRIBED = 40_000
"""The most column chunks of all inputs of a merge whose footers are held: some 50 MB in Arrow."""


def have_long_footers(shards: Iterable[Shard], schema: Schema) -> bool:
    """Return whether shards probably have so many column chunks that a merge does without their
    footers.
    """
    sizes = (estimated_footer_bytes(shard.size_bytes, schema.leaf_columns) for shard in shards)
    return sum(sizes) > MOST_DESCRIBED * CHUNK_FOOTER_BYTES


def without_long_footers(found: Sequence[RowGroups]) -> Sequence[RowGroups]:
    """Return row groups without the footers of their shards if these have too many chunks."""
    shards = {groups.slice.shard.id: groups.index.stored.chunks for groups in found}
    if sum(shards.values()) <= MOST_DESCRIBED:
        return found
    return [replace(groups, index=replace(groups.index, footer=None)) for groups in found]


def write_short_footer(local: Path, groups: RowGroups, fields: Sequence[Field], path: str) -> None:
    """End the local copy of what is read of a shard, which is called `path` in errors: describe the
    columns `fields` of its row groups.

    Raises:
        DamagedShardError: its pages are in a form that Dormouse does not write.
    """
    names, stored = groups.index.names, present_fields(groups.index.names, fields)
    with local.open("r+b") as file:
        placed = (
            (groups.index.rows(n), list(_placed(file.fileno(), groups, n, stored, path)))
            for n in groups.numbers
        )
        end = file_end([replace(field, name=names[field.id]) for field in stored], placed)
        file.seek(groups.index.stored.starts[-1])
        file.write(end)
        file.truncate()


def _placed(
    file: int, groups: RowGroups, number: int, fields: Sequence[Field], path: str
) -> Iterator[PlacedChunk]:
    """Yield where the chunks of a row group are. Only the pages of dictionaries and of nested
    columns have to be looked at.
    """
    index, rows = groups.index, groups.index.rows(number)
    for field in fields:
        for _, leaf in index.leaves([field]):
            start, end = index.span(number, leaf)
            memory_bytes = index.stored.memory_bytes(number * index.stored.leaves + leaf)
            chunk = PlacedChunk(start, end, 0, rows, index.stored.is_compressed(leaf), memory_bytes)
            if index.has_dictionary(leaf) or not is_flat(field):
                with raise_damaged(path):
                    pages = pages_of(os.pread(file, end - start, start))
                chunk.dictionary_bytes, chunk.values = pages.dictionary_bytes, pages.values
            yield chunk
