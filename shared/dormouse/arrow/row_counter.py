"""Count rows where they pass by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa


@dataclass
class Tally:
    """How many rows were left out on the way, counted by the step that left them out."""

    rows: int = 0


class RowCounter:
    """Batches on their way; `rows` counts those which were taken so far."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Count the rows of `batches`."""
        self.rows = 0
        self._batches = iter(batches)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Return the batches themselves."""
        return self

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch."""
        batch = next(self._batches)
        self.rows += batch.num_rows
        return batch
