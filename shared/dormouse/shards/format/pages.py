"""The pages of a column chunk: where each begins, and which rows it holds.

A page is the smallest part of a Parquet file that can be decoded. The chunk must have been verified
by its CRC, which covers the headers of its pages, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from dormouse.errors import CorruptDataError
from dormouse.shards.format.thrift import Body, read_struct

_DATA, _DICTIONARY = 0, 2
_TYPE, _STORED_BYTES, _DATA_HEADER, _VALUES = 1, 3, 5, 1
"""Types of pages, and fields of their headers, as Parquet numbers them."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of rows: its offsets in the chunk, header included, and its rows in the row group."""

    start: int
    end: int
    first_row: int
    end_row: int


@dataclass(frozen=True, slots=True)
class ChunkPages:
    """The pages of a chunk; the bytes before the first one are its dictionary, if it has one."""

    rows: tuple[Page, ...]

    @property
    def dictionary_bytes(self) -> int:
        """The size of the dictionary page; 0 if there is none."""
        return self.rows[0].start

    @property
    def values(self) -> int:
        """The number of values in all pages."""
        return self.rows[-1].end_row


def pages_of(chunk: Body) -> ChunkPages:
    """Return the pages of a verified chunk. In a nested column, they count values and not rows.

    Raises:
        CorruptDataError: they are in a form that Dormouse does not write.
    """
    found: list[Page] = []
    at = row = 0
    while at < len(chunk):
        header, body = read_struct(chunk, at)
        end = body + header[_STORED_BYTES]
        if header[_TYPE] == _DATA:
            rows = header[_DATA_HEADER][_VALUES]  # nulls included: one a row, unless nested
            found.append(Page(at, end, row, row + rows))
            row += rows
        elif header[_TYPE] != _DICTIONARY or found:
            raise CorruptDataError(f"a page is of the unknown type {header[_TYPE]}")
        at = end
    if not found:
        raise CorruptDataError("a column chunk has no pages")
    return ChunkPages(tuple(found))
