"""What row groups take in memory when they are merged, from the indexes of their shards.

A merge decides for each of its windows how long batches are and how many inputs it may have at
once: by the row groups that it reads there, not by the widest of all. So a few wide rows at one end
of the keys do not make the merge of all others slow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dormouse.readers.reading import RowGroups
from dormouse.schema.schema import Field
from dormouse.shards.format.index import VALUE_BYTES
from dormouse.shards.format.row_groups import MANY_COLUMNS
from dormouse.shards.writing.parquet import MAX_ROW_GROUP_BYTES

PAGE_BYTES = 1024 * 1024
"""About the most that a page takes, unless it has longer values; pyarrow writes it so."""
CHUNK_BYTES = 3 * 1024
"""What DataFusion takes for each column chunk of a window, besides its bytes: measured, about."""
READER_BYTES, ZSTD_READER_BYTES = 4 * 1024, 24 * 1024
"""What it takes for each column that it reads of an input, besides the bytes that are stored and
decoded. A decoder of zstd takes 96 KB of address space until its column chunk is read; short pages
touch a quarter of it.
"""
LONGEST_STATISTICS = 4096
"""pyarrow writes no statistics of longer values."""

UNEVEN = 2
"""Rows count as wider than most of their shard beyond this many times what its least row group has
on the average.
"""
LEAST_GROUPS = 4
"""With fewer row groups in a shard, all of its rows count as possibly uneven."""


@dataclass(frozen=True, slots=True)
class GroupSize:
    """The rows of a row group; what some of its columns take in the file, and decoded about; what a
    page of each takes decoded; and what the readers of these columns take.
    """

    rows: int
    stored_bytes: int
    decoded_bytes: int
    pages_bytes: int
    readers_bytes: int
    columns: int

    @property
    def window_bytes(self) -> int:
        """What a window that reads it takes: its bytes, and what describes its chunks if they are
        so many that this matters.
        """
        return self.stored_bytes + CHUNK_BYTES * max(0, self.columns - MANY_COLUMNS)

    @property
    def row_bytes(self) -> float:
        """What a row takes decoded, on the average."""
        return self.decoded_bytes / max(1, self.rows)


Sizes = Mapping[str, Mapping[int, GroupSize]]
"""Sizes of row groups, by the id of the shard and the number of the row group."""


def sizes_of(
    found: Iterable[RowGroups], fields: Collection[Field]
) -> dict[str, dict[int, GroupSize]]:
    """Return the size of each row group, of some columns."""
    sizes: dict[str, dict[int, GroupSize]] = {}
    for groups in found:
        leaves = [leaf for _, leaf in groups.index.leaves(fields)]
        of_shard = sizes.setdefault(groups.slice.shard.id, {})
        of_shard.update((number, _size_of(groups, number, leaves)) for number in groups.numbers)
    return sizes


def _size_of(groups: RowGroups, number: int, leaves: Sequence[int]) -> GroupSize:
    """Return the size of a row group. Values of unknown length count as if the row group with most
    rows were as large as the writer makes one.
    """
    index, rows = groups.index.stored, groups.index.rows(number)
    first = number * index.leaves
    decoded = [index.memory_bytes(first + leaf) + VALUE_BYTES * rows for leaf in leaves]
    most = MAX_ROW_GROUP_BYTES * rows // max(index.rows)
    known_bytes = sum(decoded)
    for at, leaf in enumerate(leaves):
        if index.has_dictionary(leaf) and _is_unknown(groups, number, leaf):
            decoded[at] = max(decoded[at], most)
    return GroupSize(
        rows,
        sum(index.starts[first + leaf + 1] - index.starts[first + leaf] for leaf in leaves),
        min(sum(decoded), max(known_bytes, most)),
        sum(min(size_bytes, PAGE_BYTES) for size_bytes in decoded),
        sum(ZSTD_READER_BYTES if index.is_compressed(leaf) else READER_BYTES for leaf in leaves),
        len(leaves),
    )


def _is_unknown(groups: RowGroups, number: int, leaf: int) -> bool:
    """Return whether nothing says how long the values of a dictionary are: an earlier writer did
    not count them, and some are so long that there are no statistics of them. Without the footer,
    any dictionary may have such values that is as large as one.
    """
    stored = groups.index.stored
    if stored.counts_dictionary(leaf):
        return False
    if groups.index.footer is None:
        return stored.memory_bytes(number * stored.leaves + leaf) >= LONGEST_STATISTICS
    chunk = groups.metadata.row_group(number).column(leaf)
    statistics = chunk.statistics
    return chunk.has_dictionary_page and (statistics is None or not statistics.has_min_max)


def _usual_row_bytes(sizes: Collection[GroupSize]) -> float:
    """Return what most rows of a shard take at least; 0 if it has too few row groups to say."""
    return min(size.row_bytes for size in sizes) if len(sizes) >= LEAST_GROUPS else 0


@dataclass(frozen=True, slots=True)
class Widest:
    """The most that the row groups of a window take: a row on the average of one, and of the one
    that takes most what is stored, decoded, decoded of a page of each column, and its readers.

    `uneven_bytes` is what rows that are wider than most of their shard take together, if those of
    all shards meet: the widest of each.
    """

    row_bytes: float
    stored_bytes: int
    decoded_bytes: int
    pages_bytes: int
    readers_bytes: int
    uneven_bytes: float

    @staticmethod
    def of(sizes: Sizes, found: Sequence[RowGroups]) -> Widest:
        """Return it for the row groups of a window. Requires: there is one."""
        read = [[sizes[g.slice.shard.id][number] for number in g.numbers] for g in found]
        usual = [_usual_row_bytes(sizes[g.slice.shard.id].values()) for g in found]
        everything = [size for some in read for size in some]
        return Widest(
            max(size.row_bytes for size in everything),
            max(size.stored_bytes for size in everything),
            max(size.decoded_bytes for size in everything),
            max(size.pages_bytes for size in everything),
            max(size.readers_bytes for size in everything),
            sum(
                max(0, *(size.decoded_bytes - UNEVEN * least * size.rows for size in some))
                for some, least in zip(read, usual, strict=True)
            ),
        )
