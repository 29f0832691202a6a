"""Decode the rows of a shard that were fetched.

Where a few rows of large row groups are wanted, their keys are decoded first, and then of the
other columns only the pages with these rows (`excerpts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.evolution import rename_columns, stored_names
from dormouse.arrow.order import rows_in_ranges, spans_in_ranges
from dormouse.arrow.ranges import fit_range
from dormouse.arrow.types import arrow_schema, conform
from dormouse.errors import DamagedShardError
from dormouse.keys.ranges import KeyRange
from dormouse.readers.excerpts import PagesOfChunk, can_be_excerpted, excerpt
from dormouse.readers.ranged_reads import FetchedFile
from dormouse.readers.reading import RowGroups
from dormouse.schema.schema import Field, Schema
from dormouse.shards.crcs import chunk_span
from dormouse.shards.pages import Page, pages_of
from dormouse.shards.parquet import PAGE_ROWS

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
        try:
            rows = self._sparse() if self._wants_few_rows else None
            found = self._dense() if rows is None else rows
            wanted = arrow_schema(self.schema)
            result_schema = pa.schema([wanted.field(name) for name in self.columns])
            return [conform(batch, result_schema) for batch in found]
        except (pa.ArrowException, OSError) as error:
            path = self.file.path
            raise DamagedShardError(f"{path} is damaged: {error}", path=path) from error

    @property
    def _metadata(self) -> pq.FileMetaData:
        return self.found[0].metadata

    @property
    def _wants_few_rows(self) -> bool:
        """Return whether most row groups are wanted for a few rows, and have several pages.

        Of a wide range, all row groups but the first and the last are wanted whole.
        """
        numbers = numbers_of(self.found)
        rows = max(self._metadata.row_group(number).num_rows for number in numbers)
        # without CRCs, only whole chunks are verified
        is_verified = self.found[0].index.crcs is not None
        return is_verified and rows > PAGE_ROWS and len(numbers) <= 2 * len(self.found)

    def _source(self) -> pq.ParquetFile:
        return pq.ParquetFile(
            pa.PythonFile(self.file, mode="r"),
            metadata=self._metadata,
            # with CRCs, all bytes were verified when they were fetched
            page_checksum_verification=self.found[0].index.crcs is None,
            pre_buffer=False,  # all is in memory
        )

    def _dense(self) -> Iterator[pa.RecordBatch]:
        """Decode the row groups whole, and yield the rows that are in a range."""
        present = stored_names(self.found[0].index.names, self.needed)
        batches = self._source().iter_batches(
            row_groups=numbers_of(self.found), columns=list(present.values()), use_threads=False
        )
        ranges = [fit_range(groups.slice.range, self.schema) for groups in self.found]
        for batch in batches:
            yield from rows_in_ranges(rename_columns(batch, present), ranges, self.schema)

    def _sparse(self) -> list[pa.RecordBatch] | None:
        """Decode the keys, and of the other columns the pages that hold rows in a range.

        Return None if a column is nested, or stored in a form that Dormouse does not write.
        """
        numbers = numbers_of(self.found)
        keys = self._decoded_keys(numbers)
        if keys is None:
            return None
        wanted = [
            _Wanted(number, batch, spans)
            for number, batch in zip(numbers, keys, strict=True)
            if (spans := list(spans_in_ranges(batch, self._ranges(number), self.schema)))
        ]
        if not wanted:
            return []
        layouts: dict[tuple[tuple[Span, ...], ...], list[tuple[Field, list[_Picked]]]] = {}
        for field in self._present(self.needed[len(self.keys) :]):
            picked = [self._pick(field, group.number, group.spans) for group in wanted]
            known = [each for each in picked if each is not None]
            if len(known) < len(picked):
                return None
            layouts.setdefault(tuple(each.spans for each in known), []).append((field, known))
        decoded = [(layout, _decode(columns)) for layout, columns in layouts.items()]
        return list(_joined(wanted, decoded))

    def _decoded_keys(self, numbers: Sequence[int]) -> list[pa.RecordBatch] | None:
        """Return the keys of each row group; None if they cannot be excerpted."""
        groups = [[self._chunk(key, number) for key in self.keys] for number in numbers]
        known = [[self._whole(chunk) for chunk in group if chunk is not None] for group in groups]
        if min(map(len, known)) < len(self.keys):
            return None
        keys = excerpt(self.keys, known)
        rows = [self._metadata.row_group(number).num_rows for number in numbers]
        starts = [0, *accumulate(rows)]
        return [keys.slice(start, length) for start, length in zip(starts, rows, strict=False)]

    def _whole(self, chunk: pq.ColumnChunkMetaData) -> PagesOfChunk:
        start, end = chunk_span(chunk)
        dictionary_bytes = chunk.data_page_offset - start
        return PagesOfChunk(chunk, [self.file.view(start, end)], dictionary_bytes, chunk.num_values)

    def _chunk(self, field: Field, number: int) -> pq.ColumnChunkMetaData | None:
        """Return the chunk of a column in a row group; None if it cannot be excerpted."""
        index = self.found[0].index
        at = index.flat.get(index.names[field.id])
        chunk = None if at is None else index.metadata.row_group(number).column(at)
        return chunk if chunk is not None and can_be_excerpted(field, chunk) else None

    def _ranges(self, number: int) -> list[KeyRange]:
        """Return the ranges that may have rows in a row group."""
        return [
            fit_range(groups.slice.range, self.schema)
            for groups in self.found
            if number in groups.numbers
        ]

    def _present(self, fields: Sequence[Field]) -> list[Field]:
        """Return the fields that the shard has."""
        present = stored_names(self.found[0].index.names, fields)
        return [field for field in fields if field.name in present]

    def _pick(self, field: Field, number: int, spans: Sequence[Span]) -> _Picked | None:
        """Return the pages of a column that hold some rows; None if they cannot be excerpted."""
        chunk = self._chunk(field, number)
        if chunk is None:
            return None
        body = self.file.view(*chunk_span(chunk))
        found = pages_of(body)
        if found is None:
            return None
        pages = [page for page in found.rows if _holds(page, spans)]
        parts = [body[page.start : page.end] for page in pages]
        rows = sum(page.end_row - page.first_row for page in pages)
        dictionary = body[: found.dictionary_bytes]
        return _Picked(
            PagesOfChunk(chunk, [dictionary, *parts], len(dictionary), rows),
            tuple((page.first_row, page.end_row) for page in pages),
        )


def _holds(page: Page, spans: Sequence[Span]) -> bool:
    return any(page.first_row < end and start < page.end_row for start, end in spans)


def _decode(columns: Sequence[tuple[Field, Sequence[_Picked]]]) -> pa.RecordBatch:
    """Return the rows of pages of several columns, in all row groups; they have the same rows."""
    fields = [field for field, _ in columns]
    groups = zip(*(picked for _, picked in columns), strict=True)
    return excerpt(fields, [[each.pages for each in group] for group in groups])


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
