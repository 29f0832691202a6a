"""Count the rows of a stream while they pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa


@dataclass
class Tally:
    """The number of rows that a step removed from a stream, counted by that step."""

    rows: int = 0


class RowCounter:
    """An iterator over batches that counts the rows returned so far in `rows`."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Count the rows of `batches`."""
        self.rows = 0
        self._batches = iter(batches)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Return the iterator itself."""
        return self

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch."""
        batch = next(self._batches)
        self.rows += batch.num_rows
        return batch
