"""Merge rows that are wide, one by one, with as little of each input in memory as possible.

DataFusion holds about eleven batches of each input, of at least a row each, and its allocator
keeps much of what is freed: 50 inputs with values of a megabyte took a gigabyte. Here an input
holds a row, the page that it is in and the stored column chunk of that. What Python takes for a row
does not matter where rows are as wide as this.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dormouse.arrow.evolution import stored_names
from dormouse.arrow.order import rows_in_ranges, sort_key
from dormouse.arrow.ranges import fit_range
from dormouse.arrow.types import conform
from dormouse.errors import CorruptDataError
from dormouse.keys.ranges import Key, KeyRange
from dormouse.readers.reading import RowGroups
from dormouse.schema.schema import Schema

WIDE_ROW_BYTES = 32 * 1024
"""Rows that are wider on average are merged one by one."""
ROWS_PER_INPUT = 2
"""What is held of an input besides the row group: a row, and the next one while it is decoded."""


@dataclass(frozen=True, slots=True)
class WideRows:
    """The rows of some row groups of a local file, in key order; of all if no `groups` are given.

    `stored` has the names in the file of those columns of `wanted` that it has. `path` is what the
    file is called in errors.
    """

    local: Path
    path: str
    wanted: pa.Schema
    stored: dict[str, str]
    span: KeyRange = KeyRange()
    groups: Sequence[int] | None = None

    @classmethod
    def of_shard(
        cls, local: Path, path: str, groups: RowGroups, wanted: pa.Schema, schema: Schema
    ) -> WideRows:
        """Return the rows of a slice of the shard at `path`, with the columns `wanted` of `schema`,
        from a local copy.
        """
        fields = [field for field in schema.fields if field.name in wanted.names]
        stored = stored_names(groups.index.names, fields)
        span = KeyRange() if groups.slice.is_whole else fit_range(groups.slice.range, schema)
        return cls(local, path, wanted, stored, span, groups.numbers)

    @classmethod
    def of_file(cls, local: Path, columns: pa.Schema) -> WideRows:
        """Return all rows of a file."""
        return cls(local, str(local), columns, {name: name for name in columns.names})

    def rows(self, schema: Schema) -> Iterator[tuple[Key, pa.RecordBatch]]:
        """Yield each row with its key.

        Raises:
            CorruptDataError: the file cannot be decoded.
        """
        for batch in self._batches():
            for part in rows_in_ranges(batch, [self.span], schema):
                for row in range(part.num_rows):
                    yield sort_key(part, row, schema), part.slice(row, 1)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        names = {stored: name for name, stored in self.stored.items()}
        try:
            with pq.ParquetFile(self.local, pre_buffer=False) as file:
                groups = range(file.num_row_groups) if self.groups is None else self.groups
                for batch in file.iter_batches(
                    1, row_groups=list(groups), columns=list(names), use_threads=False
                ):
                    columns = [names[name] for name in batch.schema.names]
                    yield conform(batch.rename_columns(columns), self.wanted)
        except (pa.ArrowException, OSError) as error:
            raise CorruptDataError(f"{self.path} is damaged: {error}") from error


def merge_rows(inputs: Sequence[WideRows], schema: Schema) -> Iterable[pa.RecordBatch]:
    """Return the rows of all inputs in the order of their keys; equal ones in that of the inputs.

    Requires: the inputs have all keys, as their first columns.
    """
    rows = heapq.merge(*(each.rows(schema) for each in inputs), key=itemgetter(0))
    return map(itemgetter(1), rows)
