"""Decode the rows of a shard that were fetched.

Where a few rows of large row groups are wanted, their keys are decoded first, and then of the
other columns only the pages with these rows (`excerpts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa

from dormouse.arrow.evolution import present_fields
from dormouse.arrow.order import rows_in_ranges, spans_in_ranges
from dormouse.arrow.ranges import fit_range
from dormouse.arrow.types import arrow_schema, conform
from dormouse.errors import DamagedShardError
from dormouse.keys.ranges import KeyRange
from dormouse.readers.excerpts import PagesOfChunk, PagesOfGroup, excerpt, is_flat
from dormouse.readers.ranged_reads import FetchedFile
from dormouse.readers.reading import RowGroups
from dormouse.schema.schema import Field, Schema
from dormouse.shards.format.footer import raise_damaged
from dormouse.shards.format.index import ShardIndex
from dormouse.shards.format.pages import ChunkPages, Page, pages_of
from dormouse.shards.writing.parquet import PAGE_ROWS

MIN_PAGES = 2
"""Of row groups with fewer pages, to find the page takes longer than to decode all."""

Span = tuple[int, int]
"""The first row of some in a row group, and the row after the last."""


def numbers_of(found: Sequence[RowGroups]) -> list[int]:
    """Return the row groups that slices of one shard need, in order."""
    return sorted({number for groups in found for number in groups.numbers})


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What is wanted of a row group: the rows in `spans`. `keys` are the keys of all its rows."""

    number: int
    keys: pa.RecordBatch
    spans: list[Span]


@dataclass(frozen=True, slots=True)
class _Picked:
    """The pages of one column in which the wanted rows of a row group are."""

    pages: PagesOfChunk
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """The row groups of some slices of one shard, fetched; `decoded` returns their rows.

    `needed` are the columns to decode, the first of which are `keys`.
    """

    file: FetchedFile
    found: Sequence[RowGroups]
    schema: Schema
    keys: Sequence[Field]
    needed: Sequence[Field]
    columns: Sequence[str]

    def decoded(self) -> list[pa.RecordBatch]:
        """Return the rows of the slices, in order.

        Raises:
            NotFoundError: the shard is gone.
            DamagedShardError: it is damaged.
        """
        path = self.file.path
        try:
            found = self._sparse() if self._wants_few_rows else self._dense()
            wanted = arrow_schema(self.schema)
            result_schema = pa.schema([wanted.field(name) for name in self.columns])
            return [conform(batch, result_schema) for batch in found]
        except (pa.ArrowException, OSError) as error:
            raise DamagedShardError(f"{path} is damaged: {error}", path=path) from error

    @property
    def _index(self) -> ShardIndex:
        return self.found[0].index

    @property
    def _wants_few_rows(self) -> bool:
        """Return whether most row groups are wanted for a few rows, and have several pages.

        Of a wide range, all row groups but the first and the last are wanted whole. Of nested
        columns, no page tells which rows it has.
        """
        numbers = numbers_of(self.found)
        return (
            len(numbers) <= 2 * len(self.found)
            and max(map(self._index.rows, numbers)) >= MIN_PAGES * PAGE_ROWS
            and all(map(is_flat, self.needed))
        )

    def _dense(self) -> Iterator[pa.RecordBatch]:
        """Decode the row groups whole, and yield the rows that are in a range."""
        ranges = [fit_range(groups.slice.range, self.schema) for groups in self.found]
        batch = self._whole_groups(present_fields(self._index.names, self.needed))
        yield from rows_in_ranges(batch, ranges, self.schema)

    def _sparse(self) -> list[pa.RecordBatch]:
        """Decode the keys, and of the other columns the pages that hold rows in a range."""
        numbers = numbers_of(self.found)
        keys = self._whole_groups(self.keys)
        wanted, row = [], 0
        for number in numbers:
            batch = keys.slice(row, self._index.rows(number))
            row += batch.num_rows
            if spans := list(spans_in_ranges(batch, self._ranges(number), self.schema)):
                wanted.append(_Wanted(number, batch, spans))
        if not wanted:
            return []
        layouts: dict[tuple[tuple[Span, ...], ...], list[tuple[Field, list[_Picked]]]] = {}
        for field in present_fields(self._index.names, self.needed[len(self.keys) :]):
            picked = [self._pick(field, group.number, group.spans) for group in wanted]
            layouts.setdefault(tuple(each.spans for each in picked), []).append((field, picked))
        decoded = [(layout, _decode(columns)) for layout, columns in layouts.items()]
        return list(_joined(wanted, decoded))

    def _whole_groups(self, fields: Sequence[Field]) -> pa.RecordBatch:
        """Return all rows of the row groups, with the columns `fields`."""
        leaves = [
            (leaf, is_flat(field)) for field in fields for _, leaf in self._index.leaves([field])
        ]
        return excerpt(
            fields,
            [
                PagesOfGroup(
                    self._index.rows(number),
                    [self._whole(number, leaf, flat=flat) for leaf, flat in leaves],
                )
                for number in numbers_of(self.found)
            ],
        )

    def _whole(self, number: int, leaf: int, *, flat: bool) -> PagesOfChunk:
        """Return all pages of a column chunk."""
        body = self.file.view(*self._index.span(number, leaf))
        stored = self._index.stored
        is_compressed = stored.is_compressed(leaf)
        if flat and not stored.has_dictionary(leaf):
            return PagesOfChunk([body], 0, self._index.rows(number), is_compressed)
        pages = self._pages(body)
        return PagesOfChunk([body], pages.dictionary_bytes, pages.values, is_compressed)

    def _pages(self, chunk: memoryview) -> ChunkPages:
        with raise_damaged(self.file.path):
            return pages_of(chunk)

    def _ranges(self, number: int) -> list[KeyRange]:
        """Return the ranges that may have rows in a row group."""
        return [
            fit_range(groups.slice.range, self.schema)
            for groups in self.found
            if number in groups.numbers
        ]

    def _pick(self, field: Field, number: int, spans: Sequence[Span]) -> _Picked:
        """Return the pages of a flat column that hold some rows."""
        ((_, leaf),) = self._index.leaves([field])
        body = self.file.view(*self._index.span(number, leaf))
        found = self._pages(body)
        pages = [page for page in found.rows if _holds(page, spans)]
        parts = [body[page.start : page.end] for page in pages]
        rows = sum(page.end_row - page.first_row for page in pages)
        dictionary = body[: found.dictionary_bytes]
        is_compressed = self._index.stored.is_compressed(leaf)
        return _Picked(
            PagesOfChunk([dictionary, *parts], len(dictionary), rows, is_compressed),
            tuple((page.first_row, page.end_row) for page in pages),
        )


def _holds(page: Page, spans: Sequence[Span]) -> bool:
    return any(page.first_row < end and start < page.end_row for start, end in spans)


def _decode(columns: Sequence[tuple[Field, Sequence[_Picked]]]) -> pa.RecordBatch:
    """Return the rows of pages of several columns, in all row groups; they have the same rows."""
    fields = [field for field, _ in columns]
    groups = zip(*(picked for _, picked in columns), strict=True)
    return excerpt(
        fields,
        [PagesOfGroup(group[0].pages.values, [each.pages for each in group]) for group in groups],
    )


def _joined(
    wanted: Sequence[_Wanted],
    decoded: Sequence[tuple[tuple[tuple[Span, ...], ...], pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield the wanted rows of each row group: their keys, and what was decoded of the others.

    Each layout has the rows of its pages, by row group; they follow each other in its batch.
    """
    starts = [
        [0, *accumulate(sum(end - start for start, end in pages) for pages in layout)]
        for layout, _ in decoded
    ]
    for at, group in enumerate(wanted):
        for start, end in group.spans:
            parts = [group.keys.slice(start, end - start)]
            for (layout, batch), firsts in zip(decoded, starts, strict=True):
                first = firsts[at] + _rows_before(layout[at], start)
                parts.append(batch.slice(first, end - start))
            columns = [column for part in parts for column in part.columns]
            names = [name for part in parts for name in part.schema.names]
            yield pa.RecordBatch.from_arrays(columns, names=names)


def _rows_before(pages: Sequence[Span], row: int) -> int:
    """Return how many rows of some pages precede a row that is in one of them."""
    return sum(min(end, row) - start for start, end in pages if start < row)
