"""Footers of their own for parts of shards.

Parquet's readers take 1 to 2 KB of memory and some microseconds for each column chunk that a footer
describes: DataFusion for each window of a merge again. Fifty shards of hundreds of columns would
take gigabytes. So where a merge copies what one window reads of a shard to a file, at the same
offsets, a footer that describes only that ends the file. It is made from the shard's index, which
has 13 bytes for a chunk.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dormouse.arrow.evolution import present_fields
from dormouse.readers.excerpts import PlacedChunk, file_end, is_flat
from dormouse.readers.reading import RowGroups
from dormouse.schema.schema import Field
from dormouse.shards.format.footer import raise_damaged
from dormouse.shards.format.pages import pages_of

MOST_DESCRIBED = 40_000
"""The most column chunks of all inputs of a merge whose footers DataFusion may read whole: they
take some 40 MB then.
"""


def have_few_chunks(found: Iterable[RowGroups]) -> bool:
    """Return whether DataFusion may read the whole footers of shards."""
    shards = {groups.slice.shard.id: groups.index.stored.chunks for groups in found}
    return sum(shards.values()) <= MOST_DESCRIBED


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
